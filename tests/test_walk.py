"""The cuts as plain nodes: those that so many clusters need, with the labels of the model's own tree."""

from __future__ import annotations

import numpy as np
import pytest

from imdh_cli.core import pruning
from imdh_cli.errors import UsageError
from imdh_cli.model import Cut, walk
from imdh_cli.report.summary import summarise
from tests.models import make


def label(side: Cut | int, z: np.ndarray) -> int:
    """Of one row, by the rule for z."""
    while isinstance(side, Cut):
        side = side.left if side.direction @ z < side.threshold else side.right
    return side


@pytest.mark.parametrize(("clusters", "min_size"), [(None, 1), (2, 1), (9, 1), (5, 150)])
def test_the_way_down_gives_the_labels_of_the_leaves(clusters, min_size):
    made = make(depth=5, d=4, k=6, min_size=min_size)
    model = made.model
    leaves = model.cluster_of_leaf
    if clusters is not None:
        leaves = pruning.cut(model.merge_order, model.counts, clusters, min_size)[1]
    root = walk(model, clusters)
    found = [label(root, z) for z in model.scaling.apply(made.X)]
    assert np.array_equal(found, leaves[made.leaf - len(leaves)])


def test_as_many_clusters_need_as_many_cuts_and_one_less():
    model = make(depth=5, d=4, k=6).model
    for k in (2, 5, 12):
        root = walk(model, k)
        assert isinstance(root, Cut)
        assert len(list(root)) == k - 1
        assert next(iter(root)).node == 1
    assert walk(model, 1) == 1


def test_cuts_come_before_what_is_below_them():
    root = walk(make(depth=5, d=4, k=6).model, 10)
    seen = set()
    for cut in root:
        assert cut.node == 1 or cut.node // 2 in seen
        seen.add(cut.node)


def test_the_user_s_units_tell_the_same_sides():
    """Of rows without a clipped coordinate; the report shows the same figures."""
    made = make(depth=4, d=5, k=4)
    model = made.model
    Z = (made.X - model.center) / model.scale
    inside = (np.abs(Z) < 10.0).all(axis=1)
    summary = summarise(model)
    for cut in walk(model):
        left = made.X[inside] @ cut.coefficients < cut.bound
        assert np.array_equal(left, Z[inside] @ cut.direction < cut.threshold)
        shown = summary.split(cut.node)
        assert np.array_equal(shown.coefficients, cut.coefficients)
        assert shown.cut == cut.bound


@pytest.mark.parametrize("clusters", [0, 1000])
def test_a_number_of_clusters_that_cannot_be_is_refused(clusters):
    with pytest.raises(UsageError, match=f"{clusters} clusters were asked for"):
        walk(make(depth=3).model, clusters)
