"""Model -> the same tree cut anew, and its clusters named. No data, no compiled code."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from imdh_cli.core import pruning
from imdh_cli.core.pruning import Pruning
from imdh_cli.core.tree import level_of
from imdh_cli.errors import UsageError
from imdh_cli.model import Model
from imdh_cli.model.metadata import MAX_NAME, choice
from imdh_cli.params import PruneParams


def reprune(model: Model, params: PruneParams) -> tuple[Model, Pruning]:
    """Choose the clusters of `model` again by `params`; a new model that shares its other arrays.

    Raises
    ------
    UsageError
        When more clusters are asked for than leaves are in use.
    """
    chosen = model.pruned(params)
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


def rename(model: Model, items: Sequence[str]) -> Model:
    """The same model with names of clusters, which their tree nodes keep whatever the number of clusters.

    items : `3=Nordics`, a cluster's number and its name; none takes the name away. A node that is no cluster
    now gives up a name that goes to another.

    Raises
    ------
    UsageError
        When an item is something else, or there is no such cluster, or two would have one name.
    """
    nodes = pruning.cluster_nodes(model.cluster_of_leaf, model.counts)
    given: dict[str, str] = {}
    for item in items:
        number, equals, name = item.partition("=")
        if not equals or not (number.strip().isascii() and number.strip().isdigit()):
            raise UsageError(
                f"--rename {item}: not a cluster's number and its name", "as in 1=Nordics,2=Alps"
            )
        if not 1 <= int(number) <= len(nodes):
            raise UsageError(
                f"--rename {item}: the clusters are 1 to {len(nodes)}", "see imdh report; -k N comes first"
            )
        if len(name) > MAX_NAME:
            raise UsageError(f"--rename {number}=...: a name has at most {MAX_NAME} characters")
        node = str(nodes[int(number) - 1])
        if node in given:
            raise UsageError(f"--rename: cluster {int(number)} is named twice", "give it one name")
        given[node] = name.strip()
    shown, new = set(map(str, nodes)), set(given.values())
    old = model.metadata.get("cluster_names", {})
    kept = {node: name for node, name in old.items() if node in shown or name not in new}
    named = {node: name for node, name in (kept | given).items() if name}
    for name, n in sorted(Counter(named[node] for node in shown & named.keys()).items()):
        if n > 1:
            raise UsageError(
                f"--rename: {n} clusters would be called {name}", "give each its own, as in 1=North,2=South"
            )
    metadata = {key: value for key, value in model.metadata.items() if key != "cluster_names"}
    return replace(model, metadata=metadata | ({"cluster_names": named} if named else {}))


def cluster_changes(old: Model, new: Model) -> list[dict[str, Any]]:
    """What became of each cluster of `old` in `new`, a later state of the same tree.

    For each: its number, its tree node, the new numbers of what lies below that node, and `how`: kept
    (the same node), merged (the new cluster covers more), or split.
    """
    label, stop = pruning.labels_of_nodes(new.cluster_of_leaf)
    nodes = pruning.cluster_nodes(new.cluster_of_leaf, new.counts)
    found = []
    for number, node in enumerate(pruning.cluster_nodes(old.cluster_of_leaf, old.counts), start=1):
        below = new.depth - level_of(int(node))
        first = (int(node) << below) - len(new.cluster_of_leaf)
        labels = np.unique(new.cluster_of_leaf[first : first + (1 << below)]).tolist()
        if len(labels) > 1:
            how = "split"
        else:
            how = "kept" if stop[node - 1] and nodes[label[node - 1] - 1] == node else "merged"
        found.append({"cluster": number, "node": int(node), "became": labels, "how": how})
    return found
