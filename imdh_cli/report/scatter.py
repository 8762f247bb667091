"""Rows of a second reading -> one small picture per split: its plane, a bounded random sample as dots.

Across: the projection that is cut. Up: the leading direction of the rows orthogonal to it. The picture
is a raster of dots, not a list of rows; still it shows rows one by one, and the page says so.
"""

from __future__ import annotations

import base64
import struct
import zlib
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from imdh_cli.errors import UsageError
from imdh_cli.report.figures import Summary

if TYPE_CHECKING:
    pass

ROWS = 400  # dots in a picture
NODES = 40  # pictures, of the splits that matter to the fewest clusters
BYTES = 64 << 20  # of rows kept while reading
WIDTH, HEIGHT = 640, 240  # pixels; shown at half that, for sharp screens
RADIUS = 4.5
LEFT, RIGHT = (0x1F, 0x77, 0xC4), (0xD9, 0x6C, 0x06)  # seen on white and on black
ALPHA = (150, 200, 235)  # of one dot, of two above each other, of three and more


@dataclass(frozen=True, eq=False)
class Scatter:
    """A sample of the rows that meet one split, in its plane."""

    node: int
    rows: int  # that met it in the reading
    across: np.ndarray  # (r,) projection from the cut, in its sds
    up: np.ndarray  # (r,) leading direction orthogonal to it, centred, in sds of all rows
    loadings: np.ndarray  # (d,) of that direction


class Sampler:
    """Keeps a random sample of the rows of each split, whatever the number of rows read.

    Each row draws a number; a split keeps the rows with the least. So the sample does not depend on
    how the rows are cut into chunks, only on their order and the seed.

    Parameters
    ----------
    summary : Summary
        Of the model whose leaves are passed to `add`.
    also : splits to take rows of beside those that the page shows, by node
    seed : int
    """

    def __init__(self, summary: Summary, *, also: Iterable[int] = (), seed: int = 0) -> None:
        if summary.model is None:
            raise UsageError("a summary without its model cannot take rows")
        self._model = summary.model
        self._scaling = self._model.scaling
        nodes = sorted(summary.splits, key=lambda i: summary.splits[i].from_k or 0)[:NODES]
        nodes = list(dict.fromkeys([*also, *nodes]))
        d = self._model.n_features
        self._least = max(1, summary.min_size)
        self._limit = int(np.clip(BYTES // (8 * d * max(1, len(nodes))), 20, ROWS))
        self._kept = {i: (np.empty(0), np.empty((0, d))) for i in nodes}
        self._seen = dict.fromkeys(nodes, 0)
        self._rng = np.random.default_rng([seed, 7])

    def add(self, X: np.ndarray, leaf: np.ndarray) -> None:
        """Meet some rows.

        Parameters
        ----------
        X : (n, d) float64, the user's units; NaN is a missing cell that counts as the mean
        leaf : (n,) int64, the tree node of each row's leaf
        """
        draw = self._rng.random(len(X))
        for node, (least, rows) in self._kept.items():
            below = self._model.depth + 1 - node.bit_length()
            here = (leaf >> below) == node
            self._seen[node] += int(np.count_nonzero(here))
            if len(least) == self._limit:
                here &= draw < least.max()
            new = np.flatnonzero(here)
            if not len(new):
                continue
            if len(new) > self._limit:
                new = new[np.argpartition(draw[new], self._limit - 1)[: self._limit]]
            least = np.concatenate([least, draw[new]])
            rows = np.concatenate([rows, X[new]])
            keep = np.argsort(least, kind="stable")[: self._limit]
            self._kept[node] = least[keep], rows[keep]

    def scatters(self) -> dict[int, Scatter]:
        """The samples in their planes, by node; splits with too few rows are left out."""
        return {
            node: self._scatter(node, rows)
            for node, (_, rows) in self._kept.items()
            if len(rows) >= 3 and self._seen[node] >= self._least
        }

    def _scatter(self, node: int, rows: np.ndarray) -> Scatter:
        model, i = self._model, node - 1
        Z = self._scaling.apply(rows)
        v = model.directions[i]
        p = Z @ v
        c = Z - Z.mean(axis=0)
        rest = c - np.outer(c @ v, v)
        w = _leading(rest)
        s = model.projection_sd[i] or 1.0
        return Scatter(node, self._seen[node], (p - model.thresholds[i]) / s, rest @ w, w)


def _leading(c: np.ndarray) -> np.ndarray:
    """(d,) the unit direction of the most variance of centred rows (r, d); from the smaller product."""
    if c.shape[1] <= c.shape[0]:
        return np.linalg.eigh(c.T @ c)[1][:, -1]
    w = c.T @ np.linalg.eigh(c @ c.T)[1][:, -1]
    length = float(np.sqrt(w @ w))
    return w / length if length > 0.0 else w


def picture(scatter: Scatter, low: float, high: float) -> str:
    """A transparent PNG as a data URI, its left and right edge at `low` and `high` across."""
    up = scatter.up
    bottom, top = np.quantile(up, [0.005, 0.995])
    margin = 0.06 * (top - bottom) or 1.0
    bottom, top = bottom - margin, top + margin
    x = (scatter.across - low) / (high - low) * WIDTH
    y = (top - np.clip(up, bottom, top)) / (top - bottom) * HEIGHT
    seen = (x > -RADIUS) & (x < WIDTH + RADIUS)
    is_left, steps = scatter.across < 0.0, len(ALPHA)
    left = np.minimum(_stamp(x[seen & is_left], y[seen & is_left]), steps)
    right = np.minimum(_stamp(x[seen & ~is_left], y[seen & ~is_left]), steps)
    pixels = np.where(left >= right, left, steps + right).astype(np.uint8)
    palette = [(0, 0, 0, 0), *((*LEFT, a) for a in ALPHA), *((*RIGHT, a) for a in ALPHA)]
    return "data:image/png;base64," + base64.b64encode(_png(pixels, palette)).decode("ascii")


def _stamp(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """(HEIGHT, WIDTH) how many dots cover each pixel."""
    reach = int(np.ceil(RADIUS))
    offset = np.arange(-reach, reach + 1)
    dx, dy = (a.ravel() for a in np.meshgrid(offset, offset))
    disc = dx**2 + dy**2 <= RADIUS**2
    column = np.floor(x)[:, None].astype(np.int64) + dx[disc]
    row = np.floor(y)[:, None].astype(np.int64) + dy[disc]
    inside = (column >= 0) & (column < WIDTH) & (row >= 0) & (row < HEIGHT)
    flat = row[inside] * WIDTH + column[inside]
    return np.bincount(flat, minlength=WIDTH * HEIGHT).reshape(HEIGHT, WIDTH)


def _png(pixels: np.ndarray, palette: list[tuple[int, int, int, int]]) -> bytes:
    """An 8-bit picture with a palette (PNG specification, colour type 3); pixels are (h, w) uint8."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    h, w = pixels.shape
    lines = np.concatenate([np.zeros((h, 1), np.uint8), pixels], axis=1)  # each begins with its filter: none
    return b"".join(
        [
            b"\x89PNG\r\n\x1a\n",
            chunk(b"IHDR", struct.pack(">IIBBBBB", w, h, 8, 3, 0, 0, 0)),
            chunk(b"PLTE", bytes(part for colour in palette for part in colour[:3])),
            chunk(b"tRNS", bytes(colour[3] for colour in palette)),
            chunk(b"IDAT", zlib.compress(lines.tobytes(), 6)),
            chunk(b"IEND", b""),
        ]
    )
