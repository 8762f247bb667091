"""Several trees from the same rows: which is kept, and that nothing else depends on how they were learned."""

from __future__ import annotations

from dataclasses import replace
from itertools import combinations

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from sklearn.metrics import adjusted_rand_score

from imdh_cli.core import learn as learning
from imdh_cli.core import restarts
from imdh_cli.core.learn import Learned, learn
from imdh_cli.model import load
from imdh_cli.model.build import prune
from imdh_cli.params import FitParams, LearnParams, PruneParams
from imdh_cli.rows.source import ArrayRows
from tests import naive
from tests.cli import imdh
from tests.test_learn import assert_same

PARAMS = FitParams(learn=LearnParams(depth=5))


def elongated(n: int = 2000, seed: int = 0) -> np.ndarray:
    """(n, 4): six wide clusters, near each other; seeds differ in what they make of them."""
    rng = np.random.default_rng(seed)
    return 3.5 * rng.standard_normal((6, 4))[rng.integers(0, 6, n)] + rng.standard_normal((n, 4))


def trees(X: np.ndarray, starts: int, params: FitParams = PARAMS) -> list[Learned]:
    """As many trees, each learned by itself; the first is that of the seed."""
    made = []
    for k in range(starts):
        alone = learning._Run(ArrayRows(X), replace(params, n_init=1), None, None, 1, None, start=k)
        made.append(alone.learned())
    return made


def summary_of(tree: Learned) -> naive.Summary:
    counts, means, squares = tree.statistics.of_nodes()
    return naive.Summary(counts, means, squares, tree.tree.pivots, tree.statistics.histograms)


def agreements(made: list[Learned], X: np.ndarray, params: PruneParams) -> list[float]:
    labels = [prune(tree, params).cluster_of_leaf[tree.leaves(X)] for tree in made]
    return [
        float(np.mean([adjusted_rand_score(labels[k], labels[j]) for j in range(len(made)) if j != k]))
        for k in range(len(made))
    ]


@pytest.mark.parametrize("threads", [1, 2, 3, 9])
def test_the_tree_that_is_kept_is_one_learned_alone_on_any_number_of_threads(threads):
    X = elongated()
    alone = trees(X, 3)
    kept = learn(ArrayRows(X), replace(PARAMS, n_init=3), threads=threads)
    assert kept.starts == 3
    assert_same(kept, alone[restarts.best(alone, X, PARAMS.prune)[0]])


def test_one_start_is_the_first_of_several():
    X = elongated()
    assert_same(learn(ArrayRows(X), replace(PARAMS, n_init=1)), trees(X, 1)[0])


def test_trees_of_different_starts_differ():
    first, second = trees(elongated(), 2)
    assert not np.array_equal(first.tree.directions, second.tree.directions)
    assert not np.array_equal(first.tree.learned, second.tree.learned)  # the order of rows, too


@pytest.mark.parametrize("seed", range(4))
def test_what_is_kept_agrees_with_the_others_and_is_worth_most(seed):
    X = elongated(seed=seed)
    made = trees(X, 4)
    kept = naive.kept_tree([summary_of(tree) for tree in made], agreements(made, X, PruneParams()))
    for clusters in ("auto", "valleys", 4):  # the number asked for does not matter
        assert restarts.best(made, X, PruneParams(clusters=clusters))[0] == kept


def test_more_clusters_than_a_tree_has_are_as_many_as_it_has():
    X = elongated(60)
    made = trees(X, 2, replace(PARAMS, learn=LearnParams(depth=3)))
    for tree in made:
        labels, _ = restarts.leaf_clusters(tree, PruneParams(clusters=1000))
        assert labels.max() == prune(tree, PruneParams()).largest


def test_of_rows_of_one_cluster_the_tree_is_kept_that_most_agree_with():
    X = np.random.default_rng(3).standard_normal((2000, 2))
    made = trees(X, 4)
    assert all(restarts.worth(restarts.splits_of(tree)) == 0.0 for tree in made)
    assert restarts.best(made, X, PruneParams())[0] == int(np.argmax(agreements(made, X, PruneParams())))


def test_seeds_give_more_alike_answers_than_single_trees_do():
    X = elongated(4000, seed=5)

    def spread(n_init: int) -> float:
        found = [learn(ArrayRows(X), replace(PARAMS, n_init=n_init, seed=seed)) for seed in range(6)]
        labels = [restarts.leaf_clusters(tree, PruneParams())[0][tree.leaves(X)] for tree in found]
        return float(np.mean([adjusted_rand_score(a, b) for a, b in combinations(labels, 2)]))

    assert spread(4) > spread(1)


# --- the command


def write(path, X: np.ndarray) -> str:
    pq.write_table(pa.table({f"x{j}": column for j, column in enumerate(X.T)}), path)
    return str(path)


def test_the_command_says_how_many_trees_it_chose_from(tmp_path, monkeypatch):
    monkeypatch.setattr(learning, "TREES", 4)
    data, out = write(tmp_path / "d.parquet", elongated()), str(tmp_path / "m.npz")
    ran = imdh("fit", data, "-o", out, "--n-init", "auto")
    assert "the best of 4 trees" in ran.err
    assert load(out).metadata["starts"] == 4
    ran = imdh("fit", data, "-o", out, "-f", "--n-init", 1)
    assert "trees" not in ran.err
    assert "starts" not in load(out).metadata
    plan = imdh("fit", data, "-o", out, "--dry-run", "--json", "--n-init", 7).json
    assert plan["n_init"] == 7


@pytest.mark.parametrize(
    "words", [["--buffer-rows", 1000], ["--shuffle", "none", "--passes", 1], ["--update", "{model}"]]
)
def test_several_trees_of_rows_that_are_not_all_there_are_refused(tmp_path, words):
    data, model = write(tmp_path / "d.parquet", elongated()), str(tmp_path / "m.npz")
    imdh("fit", data, "-o", model)
    words = [model if word == "{model}" else word for word in words]
    ran = imdh("fit", data, "-o", str(tmp_path / "n.npz"), "--n-init", 3, *words, status=2)
    assert "--n-init" in ran.err


def test_many_rows_have_one_tree_by_default(monkeypatch):
    monkeypatch.setattr(learning, "FEW_ROWS", 2000)
    monkeypatch.setattr(learning, "TREES", 3)
    assert learn(ArrayRows(elongated(2000)), PARAMS).starts == 3
    assert learn(ArrayRows(elongated(2001)), PARAMS).starts == 1


def test_ctrl_c_does_not_wait_for_the_trees_under_way(monkeypatch):
    met = []

    def interrupted(self, X):
        met.append(len(X))
        if self.start == 1:
            raise KeyboardInterrupt
        return once(self, X)

    once = learning._Run._epochs_in_memory
    monkeypatch.setattr(learning._Run, "_epochs_in_memory", interrupted)
    with pytest.raises(KeyboardInterrupt):
        learn(ArrayRows(elongated()), replace(PARAMS, n_init=50), threads=2)
    assert len(met) < 50
