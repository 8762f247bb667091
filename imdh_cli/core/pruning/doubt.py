"""Cuts between clusters -> why these cannot be clear, whatever their valleys."""

from __future__ import annotations

from typing import Literal

import numpy as np

from imdh_cli.compiled.histogram import BINS
from imdh_cli.core.piles import LEANS
from imdh_cli.core.pruning.cut import labels_of_nodes

Doubt = Literal["codes", "pile"]
NOISY = 0.1  # part of the variance along a cut: of planted clusters 0.08 at most
PILED = 0.9  # the part of the rows on a side of a cut, and at most the rest on the other, or
SHARED = 0.5  # the part of the rows on the other that can have the same value


def doubt_of(
    cluster_of_leaf: np.ndarray,
    histograms: np.ndarray,
    on_piles: np.ndarray | None,
    noise_shares: np.ndarray | None,
    shared: np.ndarray | None = None,
) -> Doubt | None:
    """What makes clusters doubtful, None where nothing does.

    codes  some cut between them goes along columns of few values, that is, through noise: of thirteen choices
           on tables of codes that were called clear ten were wrong
    pile   some cut has the rows of one value on one side and hardly one on the other, or those of another
           value: whether 0 is an amount, or stands for none or a missing one, these rows cannot tell

    cluster_of_leaf : (L,). histograms, on_piles : (m, 128), noise_shares : (m,), shared : (m, 2), see
    `pruning.prune`.
    """
    cuts = _between(cluster_of_leaf)
    if noise_shares is not None and (noise_shares[cuts] > NOISY).any():
        return "codes"
    if on_piles is None:
        return None
    sides = np.count_nonzero(cuts), 2, BINS // 2
    piled, rows = (part[cuts].reshape(sides).sum(axis=2) for part in (on_piles, histograms))
    share = piled / np.maximum(rows, 1)
    on_it = share if shared is None else np.where(shared[cuts] <= SHARED, 0.0, share)
    return "pile" if ((share >= PILED) & (on_it[:, ::-1] <= 1 - PILED)).any() else None


def leans(cluster_of_leaf: np.ndarray, directions: np.ndarray, columns: np.ndarray) -> bool:
    """Whether some cut between clusters leans on these columns, (d,) bool, together. directions : (m, d)."""
    cuts = directions[_between(cluster_of_leaf)][:, columns]
    return bool(((cuts**2).sum(axis=1) >= LEANS).any())


def _between(cluster_of_leaf: np.ndarray) -> np.ndarray:
    """(m,) bool: splits with a cluster, or more, on either side."""
    return labels_of_nodes(cluster_of_leaf)[0][: len(cluster_of_leaf) - 1] == 0
