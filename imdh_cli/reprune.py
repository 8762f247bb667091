"""Model -> the same tree cut anew. No data, no compiled code."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from imdh_cli import pruning
from imdh_cli.model import Model
from imdh_cli.params import PruneParams
from imdh_cli.pruning import Pruning


def reprune(model: Model, params: PruneParams) -> tuple[Model, Pruning]:
    """Choose the clusters of `model` again by `params`; a new model that shares its other arrays.

    Raises
    ------
    UsageError
        When more clusters are asked for than leaves are in use.
    """
    chosen = pruning.prune(
        model.counts, model.means, model.sums_of_squares, model.pivots, model.histograms, params
    )
    metadata = model.metadata | {
        "parameters": replace(model.params, prune=params).to_dict(),
        "choice": choice(chosen, params),
    }
    changed = replace(
        model,
        merge_order=chosen.merge_order,
        cluster_of_leaf=chosen.cluster_of_leaf,
        metadata=metadata,
    )
    return changed, chosen


def choice(chosen: Pruning, params: PruneParams) -> dict[str, Any]:
    """How the number of clusters was chosen, as a model's metadata keep it."""
    return {
        "requested": params.clusters,
        "clusters": chosen.n_clusters,
        "clarity": chosen.clarity,
        "alternatives": list(chosen.alternatives),
        "largest": chosen.largest,
    }
