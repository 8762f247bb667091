"""Whatever has rows is learned from, to the same bytes; and parts that were counted apart add up."""

from __future__ import annotations

import re
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

import imdh_cli
from imdh_cli.core import learner as learner_module
from imdh_cli.core.columns import ColumnMoments
from imdh_cli.core.counter import Counter
from imdh_cli.core.learn import Learned, NoRows, Snapshot, learn
from imdh_cli.features import select_features
from imdh_cli.model.build import learner_state
from imdh_cli.model.model import load, save
from imdh_cli.params import FeatureParams, FitParams, LearnParams, SourceParams
from imdh_cli.pipeline.feature_rows import FeatureRows
from imdh_cli.rows.source import ArrayRows, RowSource, StreamRows
from imdh_cli.sources import open_source
from tests.benchmarks.in_process import fit_rows
from tests.benchmarks.planted import planted

PARAMS = FitParams(learn=LearnParams(depth=4))


def blobs(n: int = 3000, d: int = 3, seed: int = 0) -> np.ndarray:
    rng = np.random.default_rng(seed)
    return rng.standard_normal((n, d)) + 6.0 * rng.integers(0, 3, (n, 1))


def arrays(learned: Learned) -> list[np.ndarray]:
    found = [*vars(learned.tree).values(), *vars(learned.statistics).values()]
    return [*found, learned.scaling.center, learned.scaling.scale, *learned.state.to_arrays().values()]


def assert_same(a: Learned, b: Learned) -> None:
    for one, other in zip(arrays(a), arrays(b), strict=True):
        np.testing.assert_array_equal(one, other)


class Parts(RowSource):
    """Somebody else's rows: a partition of a table, by a generator."""

    n_features = 3

    def __init__(self, X: np.ndarray) -> None:
        self._X = X

    def blocks(self, epoch, start=0):
        for k in range(start, len(self._X), 700):
            yield self._X[k : k + 700]


@pytest.mark.parametrize(
    "params",
    [
        replace(PARAMS, n_init=2),
        replace(PARAMS, buffer_rows=500),
        replace(PARAMS, buffer_rows=500, passes=1, recount="yes"),
        replace(PARAMS, shuffle="none", passes=1, recount="no"),
        replace(PARAMS, shuffle="buffer", buffer_rows=64, passes=3),
    ],
    ids=["in memory", "streamed", "one pass", "in order", "small buffer"],
)
def test_an_array_a_list_a_file_a_stream_and_a_partition_are_learned_from_alike(tmp_path, params):
    X = blobs()
    whole = learn(ArrayRows(X), params)
    assert_same(whole, learn(ArrayRows(np.split(X, [0, 10, 1500])), params, threads=2))
    assert_same(whole, learn(Parts(X), params))
    pq.write_table(pa.table({f"x{f}": X[:, f] for f in range(3)}), tmp_path / "x.parquet")
    with closing(open_source([str(tmp_path / "x.parquet")], SourceParams(batch_rows=333))) as source:
        spec = select_features(source, FeatureParams()).spec
        assert_same(whole, learn(FeatureRows(source, spec), params))
        assert_same(whole, learn(FeatureRows(source, spec, threads=8), params, threads=8))
    if params.passes != "auto":  # what can be read once is kept, or needed once
        assert_same(whole, learn(StreamRows(np.split(X, [5, 2000]), 3), params))


def test_the_callers_array_is_left_as_it_was():
    X = blobs()
    before = X.copy()
    learn(ArrayRows(X), replace(PARAMS, buffer_rows=500))
    np.testing.assert_array_equal(X, before)


def test_nothing_to_learn_from_is_an_error():
    for params in (PARAMS, replace(PARAMS, shuffle="none", passes=1)):
        with pytest.raises(NoRows):
            learn(ArrayRows(np.empty((0, 2))), params)


@pytest.mark.parametrize("shape", [(3,), (2, 2, 2)])
def test_what_is_no_matrix_is_no_rows(shape):
    with pytest.raises(ValueError, match="two dimensions"):
        ArrayRows(np.zeros(shape))


@pytest.mark.parametrize("n", [8192, 8700, 9300])
def test_going_on_shortly_after_cuts_were_moved_equals_having_streamed_both(n):
    """A model that is of the tree of before goes on from the tree that moved."""
    params = replace(PARAMS, shuffle="none", passes=1, recount="no")
    X = np.random.default_rng(0).standard_normal((n, 3))
    X[:, 0] += 9.0 * np.random.default_rng(1).integers(0, 3, n)
    whole = learn(ArrayRows(X), params)
    assert (whole.state.former is not None) == (n < 8192 + learner_module.TRIED_ROWS)
    assert whole.statistics.counts.sum() == (8192 if whole.state.former else n - 8192)
    state = None
    for part in np.split(X, [6000, 8192, 8300][: 2 + (n > 8300)]):
        if len(part):
            last = learn(ArrayRows(part), params, state)
            state = last.state
    assert_same(whole, last)


@pytest.mark.parametrize("cut", [1024, 2048, 5000, 8192])
def test_going_on_later_equals_having_streamed_both(cut):
    params = replace(PARAMS, shuffle="none", passes=1, recount="no")
    X = blobs(10_000)
    first = learn(ArrayRows(X[:cut]), params)
    assert_same(learn(ArrayRows(X), params), learn(ArrayRows(X[cut:]), params, first.state))


def test_a_tree_grows_by_two_levels_where_its_last_finds_clusters(monkeypatch):
    monkeypatch.setattr("imdh_cli.params.START_DEPTH", 1)
    short = FitParams()
    assert learn(ArrayRows(blobs()), FitParams(learn=LearnParams(depth=1))).tree.depth == 1  # as asked
    assert learn(ArrayRows(blobs()), short).tree.depth == 3
    assert learn(ArrayRows(blobs()), FitParams(learn=LearnParams(reseat="no"))).tree.depth == 1
    assert learn(ArrayRows(np.random.default_rng(0).standard_normal((3000, 3))), short).tree.depth == 1


def test_fifty_clusters_are_found_and_the_model_is_as_deep_as_its_tree(tmp_path):
    X = planted(np.random.default_rng(3000), k=50, d=10)
    made = fit_rows(X, FitParams()).model
    assert abs(made.n_clusters - 50) <= 1
    assert (made.depth, made.params.learn.depth) == (10, 10)
    save(made, tmp_path / "m.npz")
    state = learner_state(load(tmp_path / "m.npz"))
    assert learn(ArrayRows(X[:2000]), made.params, state).tree.depth == 10


class Memory:
    """Takes the n-th snapshot and stops the run there."""

    class Stop(Exception):
        pass

    def __init__(self, at: int, found: Snapshot | None = None) -> None:
        self.found = found
        self._left = at

    def due(self) -> bool:
        self._left -= 1
        return self._left < 0

    def save(self, snapshot: Snapshot) -> None:
        copies = {name: array.copy() for name, array in snapshot.arrays.items()}
        self.found = snapshot._replace(arrays=copies)
        raise self.Stop


@pytest.mark.parametrize("ats", [(1, 3, 8), pytest.param((0, 2, 5, 12), marks=pytest.mark.long)], ids=str)
@pytest.mark.parametrize(
    "params",
    [
        replace(PARAMS, n_init=2),
        replace(PARAMS, buffer_rows=9000, passes=2),
        replace(PARAMS, shuffle="none", passes=1, recount="yes"),
        FitParams(n_init=2),
        replace(PARAMS, buffer_rows=9000, passes=1, recount="no"),
        replace(PARAMS, shuffle="none", passes=1, recount="no"),
    ],
    ids=["in memory", "streamed", "in order", "growing", "sampled", "windowed"],
)
def test_a_run_goes_on_from_any_position(params, ats, monkeypatch):
    monkeypatch.setattr("imdh_cli.params.START_DEPTH", 1)
    X = blobs(20_000)
    monkeypatch.setattr("imdh_cli.core.learn.COUNTED_ROWS", 5000)
    undisturbed = learn(ArrayRows(X), params)
    for at in ats:
        memory = Memory(at)
        try:
            learn(ArrayRows(X), params, snapshots=memory)
        except Memory.Stop:
            again = learn(ArrayRows(X), params, snapshots=Memory(10**9, memory.found))
            assert_same(undisturbed, again)
        else:
            assert memory.found is None


# --- parts that were counted apart ----------------------------------------------------------------

cuts = st.lists(st.integers(0, 400), max_size=5).map(sorted)


def parts(X: np.ndarray, cuts: list[int]) -> list[np.ndarray]:
    return np.split(X, cuts)


@given(cuts=cuts, seed=st.integers(0, 9))
def test_counters_of_any_parts_add_up(cuts, seed):
    X = blobs(400, seed=seed)
    learned = learn(ArrayRows(X), replace(PARAMS, passes=1))
    tree, scaling = learned.tree.freeze(), learned.scaling

    def counted(rows: np.ndarray) -> Counter:
        counter = Counter(tree, scaling)
        counter.update(rows)
        return counter

    total = Counter(tree, scaling)
    for part in parts(X, cuts):
        total += counted(part)
    one, other = counted(X).statistics(), total.statistics()
    np.testing.assert_array_equal(one.counts, other.counts)
    np.testing.assert_array_equal(one.histograms, other.histograms)
    np.testing.assert_allclose(other.means, one.means, rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(other.sums_of_squares, one.sums_of_squares, rtol=1e-12, atol=1e-10)


@given(cuts=cuts, seed=st.integers(0, 9))
def test_column_moments_of_any_parts_add_up(cuts, seed):
    rng = np.random.default_rng(seed)
    X = blobs(400, 4, seed) * [1.0, 1e-3, 1e6, 1.0] + [0.0, 1e4, 0.0, -7.0]
    X[rng.random(X.shape) < 0.1] = np.nan
    total = ColumnMoments(4)
    for part in parts(X, cuts):
        profile = ColumnMoments(4)
        profile.add(part)
        total += profile
    np.testing.assert_array_equal(total.count, (~np.isnan(X)).sum(axis=0))
    np.testing.assert_allclose(total.mean, np.nanmean(X, axis=0), rtol=1e-12)
    np.testing.assert_allclose(total.square, np.nanvar(X, axis=0) * total.count, rtol=1e-10)


# --- what CONTRIBUTING.md says --------------------------------------------------------------------


def test_an_estimator_is_three_lines():
    """Those of CONTRIBUTING.md, run as they stand there: the labels are the commands'."""
    text = (Path(__file__).parents[1] / "CONTRIBUTING.md").read_text(encoding="utf-8")
    (lines,) = re.findall(r"^```python\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    names = {"X": blobs(1000)}
    exec(lines, names)
    table = pa.table({f"x{f}": names["X"][:, f] for f in range(3)})
    labels = imdh_cli.assign(table, imdh_cli.fit(table)).column("cluster").to_numpy()
    np.testing.assert_array_equal(names["labels"], labels)
