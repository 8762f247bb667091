"""A model and its choice of clusters -> what to do next, where there is something to do."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np

from imdh_cli.core.pruning import labels_of_nodes
from imdh_cli.report.choice import Choice
from imdh_cli.report.words import percent
from imdh_cli.words import count, listing, printable

if TYPE_CHECKING:
    from imdh_cli.model import Model

GIANT = 0.9  # of the rows in one cluster: the others are what stands apart from it
CARRIED = 0.75  # of the cuts' directions that a few columns carry
FEW = 0.25  # of the columns, to be called few
MANY = 8  # columns from which some may be noise
NAME = 40  # characters of a name


def next_steps(model: Model, choice: Choice, path: str) -> tuple[str, ...]:
    """Sentences with commands, the most important first; none where the result speaks for itself.

    path : of the model file, for the commands
    """
    where = shlex.quote(printable(path)) if path else "MODEL"
    found = (_close(choice, where), _no_valley(choice, where), _giant(model, where), _noise(model))
    return tuple(step for steps in found for step in steps)


def _close(choice: Choice, path: str) -> Iterator[str]:
    """Which two numbers to look at."""
    if choice.clarity == "close" and choice.runner_up is not None:
        yield (
            f"compare {choice.clusters} with {count(choice.runner_up, 'cluster')} "
            f"(imdh prune {path} -k {choice.runner_up} -o other.npz); "
            f"imdh report {path} DATA --stability tells which come back"
        )


def _no_valley(choice: Choice, path: str) -> Iterator[str]:
    """Groups without gaps. By sums of squares they are of like size: of 20,000 rows of one Gaussian in ten
    columns eight groups have 1,309 to 4,084 rows, by valleys 255 to 4,444."""
    if choice.found == "none" and not choice.by_size and choice.largest > 1:
        yield (
            "one cluster does not mean no use for groups: "
            f"imdh prune {path} -k N --weight ss makes N of like spread, wherever the rows are"
        )


def _giant(model: Model, path: str) -> Iterator[str]:
    """One cluster with nearly all rows, and by which column the others stand apart."""
    sizes = np.array(model.cluster_sizes())
    largest = int(sizes.argmax())
    if len(sizes) < 2 or sizes[largest] <= GIANT * sizes.sum():
        return
    leaves = slice(model.n_splits, None)
    apart = model.cluster_of_leaf != largest + 1
    rows = model.counts[leaves] * apart
    center = (rows[:, None] * np.abs(model.means[leaves] - model.means[0])).sum(axis=0) / max(1, rows.sum())
    name = printable(model.feature_names[int(center.argmax())], NAME)
    yield (
        f"cluster {largest + 1} has {percent(sizes[largest] / sizes.sum())} of the rows, and the others "
        f'stand apart most by "{name}": if these are outliers or errors, fit without them, without the '
        f"column (-x), or let no cluster be small (imdh prune {path} --min-size N)"
    )


def _noise(model: Model) -> Iterator[str]:
    """Few of many columns carry the cuts between clusters."""
    d = model.n_features
    cuts = np.flatnonzero(labels_of_nodes(model.cluster_of_leaf)[0] == 0)
    if d < MANY or not len(cuts):
        return
    rows = model.counts[cuts]
    weights = (rows[:, None] * model.directions[cuts] ** 2).sum(axis=0) / max(1, rows.sum())
    order = np.argsort(-weights, kind="stable")
    few = int(np.searchsorted(np.cumsum(weights[order]), CARRIED)) + 1
    if few <= FEW * d:
        names = listing([f'"{printable(model.feature_names[j], NAME)}"' for j in order[:few]])
        carry = "carries" if few == 1 else "carry"
        share = percent(float(weights[order[:few]].sum()))
        yield (
            f"{few} of {d} columns {carry} {share} of the cuts ({names}): what the others add may be noise; "
            "compare a fit with these alone (-c)"
        )
