"""What has moved between the rows of a model and new ones: shares, splits, features, cells."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

MODERATE, LARGE = 0.1, 0.25  # the usual bands of the population stability index
Z = 2.326  # the normal law's 99 % point


@dataclass(frozen=True)
class ClusterDrift:
    """One cluster, then and now. psi: its part of the index."""

    cluster: int
    name: str | None
    rows_then: int
    rows_now: int
    share_then: float
    share_now: float
    psi: float


@dataclass(frozen=True)
class SplitDrift:
    """The projections at one split. ks: the largest distance of their distributions at the edges of the
    histogram's bins, None where one is empty. chance: what it stays below 99 times of 100 without drift."""

    node: int
    rows_then: int
    rows_now: int
    ks: float | None
    chance: float | None


@dataclass(frozen=True)
class FeatureDrift:
    """One feature, in the user's units. shift, stretch: the change of the mean and of the sd in sds of then,
    None where it was constant."""

    name: str
    share: bool  # a one-hot level: its mean is a share
    mean_then: float
    mean_now: float
    sd_then: float
    sd_now: float
    shift: float | None
    stretch: float | None


@dataclass(frozen=True)
class CellDrift:
    """Cells of one column without a usable value, as shares of the rows read."""

    column: str
    kind: str  # missing, infinite, unseen
    then: float
    now: float


@dataclass(frozen=True)
class Finding:
    """Something that moved. size: in multiples of what is worth a sentence."""

    size: float
    message: str


@dataclass(frozen=True)
class Drift:
    """Then and now. Shares are of the rows read (left_out) or used (all others)."""

    rows_read: int
    rows_used: int
    psi: float
    chance: float  # what psi stays below 99 times of 100 without drift
    clusters: tuple[ClusterDrift, ...]
    splits: tuple[SplitDrift, ...]
    features: tuple[FeatureDrift, ...]
    cells: tuple[CellDrift, ...]
    left_out: tuple[float, float]  # rows that could not be used, then and now
    clipped: tuple[float, float] | None  # rows with a value farther out than the model sees
    findings: tuple[Finding, ...] = ()  # what moved most first

    @property
    def level(self) -> str:
        """none (below the first band or no more than chance), moderate or large."""
        if self.psi < MODERATE or self.psi <= self.chance:
            return "none"
        return "moderate" if self.psi < LARGE else "large"

    @property
    def headline(self) -> str:
        """In a few words."""
        words = {
            "moderate": "the clusters' shares have moved",
            "large": "the clusters' shares have moved much",
        }
        hold = "no more than chance moves them" if self.psi >= MODERATE else "the clusters' shares hold"
        return f"PSI {self.psi:.3f}, {words.get(self.level, hold)}"

    @property
    def sentence(self) -> str:
        """In words, with what to do."""
        if self.level == "large":
            return "The model describes other rows than these: find the reason below, or fit again."
        if self.level == "moderate":
            return "Look at what moved before the clusters are used as before."
        if self.findings:
            return "The clusters are as large as they were, but not all is as it was."
        return "These rows are like those that the model was made from."

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        return {
            "psi": self.psi,
            "chance": self.chance,
            "level": self.level,
            "sentence": self.sentence,
            "rows": {"read": self.rows_read, "used": self.rows_used},
            "clusters": [vars(c).copy() for c in self.clusters],
            "splits": [vars(s).copy() for s in self.splits],
            "features": [
                {"feature": f.name, **{k: v for k, v in vars(f).items() if k not in ("name", "share")}}
                for f in self.features
            ],
            "cells": [vars(c).copy() for c in self.cells],
            "left_out": dict(zip(("then", "now"), self.left_out, strict=True)),
            "clipped": None
            if self.clipped is None
            else dict(zip(("then", "now"), self.clipped, strict=True)),
            "findings": [vars(f).copy() for f in self.findings],
        }


def stability_index(then: np.ndarray, now: np.ndarray) -> np.ndarray:
    """Each cluster's part of the population stability index, (K,): (q - p) ln(q / p), p and q its shares.

    then, now : (K,) rows, some. An empty cluster counts as half a row.
    """
    p, q = (np.maximum(rows, 0.5) / rows.sum() for rows in (then, now))
    parts: np.ndarray = (q - p) * np.log(q / p)
    return parts


def compare_shares(
    then: np.ndarray, now: np.ndarray, names: Sequence[str | None]
) -> tuple[ClusterDrift, ...]:
    """Each of K clusters: rows (K,) then and now, some of both, and names."""
    parts = stability_index(then, now)
    all_then, all_now = float(then.sum()), float(now.sum())
    found = zip(names, then.tolist(), now.tolist(), parts.tolist(), strict=True)
    return tuple(
        ClusterDrift(k, name, int(a), int(b), a / all_then, b / all_now, part)
        for k, (name, a, b, part) in enumerate(found, start=1)
    )


def index_by_chance(clusters: int, then: int, now: int) -> float:
    """What the index stays below 99 times of 100 for so many rows of one population.

    Times n m / (n + m) it is about a chi-square of K - 1 degrees of freedom (its point: Wilson and Hilferty).
    """
    if clusters < 2:
        return 0.0
    part = 2.0 / (9.0 * (clusters - 1))
    point = (clusters - 1) * (1.0 - part + Z * part**0.5) ** 3
    return float(point * (1.0 / then + 1.0 / now))
