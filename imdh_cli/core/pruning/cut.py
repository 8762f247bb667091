"""Splits in the order they are removed, and counts -> clusters, from one to as many as leaves are in use.

A node is a number from 1 (the root), of which 2i and 2i + 1 are the children; of m splits the leaves are
m + 1 .. 2 m + 1. Arrays over nodes hold node i at index i - 1.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable

import numpy as np

from imdh_cli.core.tree import level_of
from imdh_cli.errors import UsageError


def children(values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Of an array over nodes (n,): the values of every split's left and right child, (m,) each."""
    return values[1::2], values[2::2]


def removal_order(keys: Iterable[tuple[float, ...]]) -> np.ndarray:
    """All splits in the order they are removed, (m,): of those without splits below, the least key first."""
    key = list(keys)
    m = len(key)
    order = np.empty(m, dtype=np.int64)
    waiting = np.zeros(m + 1, dtype=np.int64)  # children that are still split
    waiting[1 : (m + 1) // 2] = 2
    heap = [(key[i - 1], i) for i in range((m + 1) // 2, m + 1)]
    heapq.heapify(heap)
    for step in range(m):
        _, node = heapq.heappop(heap)
        order[step] = node
        parent = node // 2
        if parent:
            waiting[parent] -= 1
            if waiting[parent] == 0:
                heapq.heappush(heap, (key[parent - 1], parent))
    return order


def cut(
    merge_order: np.ndarray, counts: np.ndarray, k: int, min_size: int = 1
) -> tuple[np.ndarray, np.ndarray]:
    """The clusters when splits are removed in order until K are left.

    A terminal node with fewer than min_size rows (at least one) is no cluster: it goes with the nearest
    cluster in its sibling's part of the tree.

    Returns
    -------
    cluster_nodes : (K,) int64, tree nodes from left to right
    cluster_of_leaf : (2^D,) int32, 1..K
    """
    splits = len(merge_order)
    min_rows = max(1, min_size)
    left = clusters_after(merge_order, counts, min_rows)
    steps = int(np.argmax(left <= k)) if (left <= k).any() else splits
    closed = np.zeros(2 * splits + 2, dtype=bool)  # by node number: no split stands here
    closed[splits + 1 :] = True
    closed[merge_order[:steps]] = True
    enough = np.concatenate([[False], counts >= min_rows])
    for level in range(level_of(splits + 1) - 1, -1, -1):  # a split that divides off too few stands for none
        here = np.arange(1 << level, 2 << level)
        void = closed[2 * here] & closed[2 * here + 1] & ~(enough[2 * here] & enough[2 * here + 1])
        closed[here] |= void
    terminals = []  # from left to right
    stack = [1]
    while stack:
        node = stack.pop()
        if closed[node]:
            terminals.append(node)
        else:
            stack += [2 * node + 1, 2 * node]
    in_use = enough[terminals]
    if not in_use.any():
        in_use[:] = True
    number = np.cumsum(in_use)
    leaves = splits + 1
    depth = level_of(leaves)
    cluster_of_leaf = np.empty(leaves, dtype=np.int32)
    for place, node in enumerate(terminals):
        below = depth - level_of(node)
        first = (node << below) - leaves
        # Left of its sibling: the next cluster to the right, which is the sibling's first; else its last.
        label = number[place] + (1 if not in_use[place] and node % 2 == 0 else 0)
        cluster_of_leaf[first : first + (1 << below)] = label
    return np.array(terminals, dtype=np.int64)[in_use], cluster_of_leaf


def largest(merge_order: np.ndarray, counts: np.ndarray, min_size: int = 1) -> int:
    """The largest number of clusters that a cut can give."""
    return int(clusters_after(merge_order, counts, max(1, min_size))[0])


def too_many(k: int, merge_order: np.ndarray, counts: np.ndarray, min_size: int = 1) -> UsageError:
    """What to raise when more clusters are asked for than there can be: whether the tree is too small for
    them or the least size of a cluster too large."""
    most = largest(merge_order, counts, min_size)
    leaves = largest(merge_order, counts)
    if most < leaves:
        return UsageError(
            f"{k} clusters were asked for, but --min-size {min_size} leaves room for only {most}",
            f"use -k {most}{' or fewer' if most > 1 else ''}, or fit or prune with a smaller --min-size",
        )
    return UsageError(
        f"{k} clusters were asked for, but the tree has only "
        f"{leaves} {'leaf' if leaves == 1 else 'leaves'} in use",
        f"use -k {leaves}{' or fewer' if leaves > 1 else ''}, or fit a deeper tree with --depth",
    )


def removed_at(merge_order: np.ndarray, counts: np.ndarray, min_size: int = 1) -> np.ndarray:
    """At index K - 1: the split whose removal leads from K clusters to K - 1; 0 for K = 1."""
    after = clusters_after(merge_order, counts, max(1, min_size))
    removed = np.zeros(int(after[0]), dtype=np.int64)
    for step in np.flatnonzero(after[1:] < after[:-1]):
        removed[after[step] - 1] = merge_order[step]
    return removed


def clusters_after(order: np.ndarray, counts: np.ndarray, min_rows: int) -> np.ndarray:
    """Terminal nodes with at least min_rows rows after 0, 1, 2 ... m removals, (m + 1,), at least 1.

    While splits that divide off too few rows go, small leaves join into large ones: the count of the
    state in which those are gone stands for all the states before it.
    """
    after = in_use_after(order, counts, min_rows)
    after = np.maximum.accumulate(after[::-1])[::-1]
    return np.maximum(after, 1)


def in_use_after(order: np.ndarray, counts: np.ndarray, min_rows: int) -> np.ndarray:
    """Terminal nodes with at least min_rows rows after 0, 1, 2 ... m removals, (m + 1,), as they are."""
    in_use = counts >= min_rows
    left, right = children(in_use.astype(np.int64))
    change = in_use[: len(order)] - left - right
    leaves = int(np.count_nonzero(in_use[len(order) :]))
    return leaves + np.concatenate([[0], np.cumsum(change[order - 1])])


def labels_of_nodes(cluster_of_leaf: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Where the way down may end: at the highest nodes below which all leaves are of one cluster.

    Returns
    -------
    label : (n,) int32, the cluster of such a node (and of all below it), 0 where leaves differ
    stop : (n,) bool, label > 0
    """
    leaves = len(cluster_of_leaf)
    label = np.zeros(2 * leaves - 1, dtype=np.int32)
    label[leaves - 1 :] = cluster_of_leaf
    for level in range(level_of(leaves) - 1, -1, -1):
        here = np.arange((1 << level) - 1, (2 << level) - 1)
        left, right = label[2 * here + 1], label[2 * here + 2]
        label[here] = np.where(left == right, left, 0)
    return label, label > 0


def cluster_nodes(cluster_of_leaf: np.ndarray, counts: np.ndarray) -> np.ndarray:
    """The tree node of each cluster 1..K, (K,) int64: of the nodes that cover it, the one with most rows.

    A cluster covers more than one when a node too small to be a cluster goes with it.
    """
    label, stop = labels_of_nodes(cluster_of_leaf)
    above = np.concatenate([[False], np.repeat(stop[: len(stop) // 2], 2)])
    nodes = np.zeros(int(cluster_of_leaf.max()), dtype=np.int64)
    for i in np.flatnonzero(stop & ~above):
        k = label[i] - 1
        if nodes[k] == 0 or counts[i] > counts[nodes[k] - 1]:
            nodes[k] = i + 1
    return nodes
