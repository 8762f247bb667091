"""Learning from raw rows: coordinates, windows, passes, recount, threads and the shuffle buffer."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from imdh_cli.compiled import kernel
from imdh_cli.core import learn as learning
from imdh_cli.core import learner as learner_module
from imdh_cli.core import thread_pipeline
from imdh_cli.core.columns import ColumnMoments, Drift
from imdh_cli.core.counter import Counter
from imdh_cli.core.learner import Learner, streams
from imdh_cli.core.statistics import Statistics
from imdh_cli.core.tree import Scaling, Tree
from imdh_cli.params import FitParams, LearnParams
from imdh_cli.rows.shuffle import ShuffleBuffer
from tests import naive

BLOCK = 16
DEPTH = 3


@pytest.fixture
def small_blocks(monkeypatch):
    """Blocks and first windows of 16 rows: the same turns as with 8192, met sooner."""
    monkeypatch.setattr(thread_pipeline, "BLOCK_ROWS", BLOCK)
    monkeypatch.setattr(learner_module, "WINDOW_ROWS", BLOCK)


def table(n: int, d: int = 2, seed: int = 0) -> np.ndarray:
    X = np.random.default_rng(seed).standard_normal((n, d))
    X[::3] += 4.0
    return X


def scaling_of(X: np.ndarray) -> Scaling:
    _, center, scale = naive.standardise(X)
    return Scaling(center, scale, np.zeros(X.shape[1]), 10.0)


def learner_for(
    X: np.ndarray, *, depth: int = DEPTH, threads: int = 1, learn: LearnParams | None = None
) -> Learner:
    params = FitParams(learn=learn or LearnParams(depth=depth))
    return Learner(Tree.start(depth, X.shape[1]), scaling_of(X), ColumnMoments(X.shape[1]), params, threads)


def partial_fit(learner: Learner, X: np.ndarray) -> None:
    block = thread_pipeline.block_rows(X.shape[1])
    for k in range(0, len(X), block):
        learner.partial_fit(X[k : k + block])
    learner.join()


def twin_for(X: np.ndarray, depth: int = DEPTH) -> tuple[naive.Tree, np.ndarray]:
    V = naive.start_directions(depth, X.shape[1])
    return naive.Tree(depth, V, window_rows=BLOCK), naive.standardise(X)[0]


def counted(learner: Learner, X: np.ndarray, threads: int = 1) -> Statistics:
    """Down the learner's tree as it stands."""
    counter = Counter(learner.tree.freeze(), learner.scaling, threads)
    counter.update(X)
    counter.join()
    return counter.statistics()


def assert_same_summary(statistics: Statistics, summary: naive.Summary) -> None:
    counts, means, squares = statistics.of_nodes()
    np.testing.assert_array_equal(counts, summary.counts)
    np.testing.assert_allclose(means, summary.means, rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(squares, summary.ss, rtol=1e-9, atol=1e-9)
    np.testing.assert_array_equal(statistics.histograms, summary.histograms)


# --- passes, windows, recount ---------------------------------------------------------------------


@pytest.mark.parametrize("n", [1, 2, 5, 15, 16, 17, 31, 32, 33, 63, 64, 100, 128, 200])
def test_windows_of_one_pass_are_the_twins(small_blocks, n):
    X = table(n)
    learner = learner_for(X)
    learner.begin_epoch(0, counting=True)
    partial_fit(learner, X)
    twin, Z = twin_for(X)
    twin.pass_over(Z)
    assert_same_summary(learner.statistics(), naive.windowed(twin))
    np.testing.assert_allclose(learner.tree.pivots, naive.pivots(twin), rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("n", [5, 40, 100])
def test_only_the_last_of_two_passes_is_counted(small_blocks, n):
    X = table(n, seed=1)
    learner = learner_for(X)
    twin, Z = twin_for(X)
    for number in range(2):
        learner.begin_epoch(0, counting=number == 1)
        partial_fit(learner, X)
        twin.pass_over(Z)
    assert_same_summary(learner.statistics(), naive.windowed(twin))
    assert learner.tree.learned[0] == 2 * n


@pytest.mark.parametrize("n", [1, 3, 40, 200])
def test_recount_is_the_twins(small_blocks, n):
    X = table(n, seed=2)
    X[0] *= 1e4  # one row is clipped
    learner = learner_for(X)
    twin, Z = twin_for(X)
    learner.begin_epoch(0, counting=False)
    partial_fit(learner, X)
    twin.pass_over(Z)
    assert_same_summary(counted(learner, X), naive.recount(naive.freeze(twin), Z, naive.pivots(twin)))


def test_two_distinct_rows_are_counted_apart_and_nowhere_twice(small_blocks):
    X = np.array([[0.0, 1.0], [5.0, -2.0]])[np.random.default_rng(0).integers(0, 2, 100)]
    learner = learner_for(X)
    learner.begin_epoch(0, counting=False)
    partial_fit(learner, X)
    statistics = counted(learner, X)
    counts = statistics.counts
    first = int((X[:, 0] == 0).sum())
    assert sorted(counts[counts > 0]) == sorted([first, 100 - first])
    np.testing.assert_allclose(statistics.sums_of_squares, 0, atol=1e-20)


def test_the_windows_of_many_rows_are_8192_and_its_doublings():
    X = table(3 * 8192 + 5, d=1)
    learner = learner_for(X, depth=1)
    learner.begin_epoch(0, counting=True)
    partial_fit(learner, X)
    assert learner.statistics().counts.sum() == 8192 + 8192 + 5
    counts, means, _ = learner.statistics().of_nodes()
    assert counts[0] == len(X[8192:])
    Z = scaling_of(X).apply(X)
    np.testing.assert_allclose(means[0], Z[8192:].mean(axis=0), rtol=1e-9)


@pytest.mark.parametrize("step", ["scaled", "paper"])
def test_every_learning_parameter_reaches_the_rule(small_blocks, step):
    learn = LearnParams(
        depth=2,
        alpha=0.2,
        penalty=3.0,
        bandwidth=1.5,
        bandwidth_decay=0.25,
        learning_decay=0.9,
        rate=0.5,
        clamp=2.0,
        step=step,
    )
    rule = naive.Rule(delta=1.5, q=0.25, r=0.9, C=3.0, alpha=0.2, rate=0.5, clamp=2.0, step=step)
    X = table(60)
    learner = learner_for(X, depth=2, learn=learn)
    learner.begin_epoch(0, counting=True)
    partial_fit(learner, X)
    twin = naive.Tree(2, naive.start_directions(2, 2), rule)
    twin.pass_over(naive.standardise(X)[0])
    for i, node in twin.splits.items():
        np.testing.assert_allclose(learner.tree.directions[i - 1], node.v, rtol=1e-9, atol=1e-9)
        assert learner.tree.offsets[i - 1] == pytest.approx(node.b, rel=1e-9, abs=1e-9)


# --- the same result whatever the machine ---------------------------------------------------------


@pytest.mark.parametrize("depth", [1, 3, 8, 9, 11])
@pytest.mark.parametrize("threads", [2, 5, 8, 32])
def test_threads_change_no_bit(small_blocks, depth, threads):
    X = table(300, d=3)
    runs = []
    for count in (1, threads):
        learner = learner_for(X, depth=depth, threads=count)
        learner.begin_epoch(0, counting=True)
        partial_fit(learner, X)
        runs.append([*vars(learner.tree).values(), *vars(learner.statistics()).values()])
        runs[-1] += vars(counted(learner, X, count)).values()
    for one, many in zip(*runs, strict=True):
        np.testing.assert_array_equal(one, many)


def test_an_error_on_a_thread_reaches_the_caller(small_blocks, monkeypatch):
    learner = learner_for(table(100), threads=2)

    def broken(*_):
        raise MemoryError("no more")

    monkeypatch.setattr(kernel, "learn_leaves", broken)
    learner.begin_epoch(0, counting=True)
    with pytest.raises(MemoryError, match="no more"):
        partial_fit(learner, table(100))


@given(d=st.integers(1, 20_000))
def test_a_block_divides_the_window(d):
    assert learner_module.WINDOW_ROWS % thread_pipeline.block_rows(d) == 0


@given(level=st.integers(0, 5), count=st.integers(1, 8), rows=st.integers(0, 60), seed=st.integers(0, 99))
def test_streams_meet_no_node_in_common_and_keep_the_order_of_rows(level, count, rows, seed):
    node = np.random.default_rng(seed).integers(1 << level, 2 << level, rows)
    order, starts = streams(node, level, count)
    assert sorted(order) == list(range(rows))
    assert len(starts) == count + 1
    parts = [order[low:high] for low, high in pairwise(starts)]
    assert sum(len(set(node[part])) for part in parts) == len(set(node))
    assert all((np.diff(part) > 0).all() for part in parts)


def test_streams_are_about_equally_long():
    node = np.random.default_rng(0).integers(16, 32, 8192)
    _, starts = streams(node, 4, 2)
    assert starts[1] == pytest.approx(4096, abs=512)


@given(depth=st.integers(1, 20), stages=st.integers(1, 20))
def test_every_level_is_in_one_stage_and_none_has_more_than_the_kernel_takes(depth, stages):
    bounds = learner_module.stage_bounds(depth, stages)
    assert bounds[0] == 0
    assert bounds[-1] == depth
    assert all(0 < high - low <= kernel.LANES for low, high in pairwise(bounds))


# --- other coordinates on the way -----------------------------------------------------------------


def test_coordinates_changed_between_blocks_leave_the_counted_moments_exact(small_blocks):
    """Moments of all rows counted are those of the raw rows in the coordinates of the end."""
    X = table(150, d=3, seed=4) * [1.0, 50.0, 0.01] + [0.0, 7.0, -3.0]
    learner = learner_for(X[:40])
    learner.begin_epoch(0, counting=True)
    for k in range(0, 144, BLOCK):
        learner.partial_fit(X[k : k + BLOCK])
        if k in (32, 80):
            learner.re_express(scaling_of(X[: k + BLOCK]))
    learner.re_express(scaling_of(X))
    learner.join()
    Z = scaling_of(X).apply(X)
    assert not (np.abs(Z) == 10).any()
    counts, means, squares = learner.statistics().of_nodes()
    counted = Z[144 - counts[0] : 144]
    np.testing.assert_allclose(means[0], counted.mean(axis=0), rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(squares[0], counted.var(axis=0) * len(counted), rtol=1e-9)
    np.testing.assert_allclose(learner.tree.pivots[0], Z[:144].mean(axis=0), rtol=1e-9, atol=1e-9)


def test_new_coordinates_send_rows_where_the_old_ones_did(small_blocks):
    X = table(200, d=3, seed=5)
    learner = learner_for(X * [1, 2, 3] + 1)
    learner.begin_epoch(0, counting=False)
    partial_fit(learner, X)
    thresholds = learner.tree.frozen()[0]
    before = learner.scaling.apply(X) @ learner.tree.directions.T < thresholds
    learner.re_express(scaling_of(X))
    after = learner.scaling.apply(X) @ learner.tree.directions.T < learner.tree.frozen()[0]
    taught = learner.tree.learned[: len(thresholds)] > 1
    np.testing.assert_array_equal(after[:, taught], before[:, taught])


# --- column moments -------------------------------------------------------------------------------


@given(
    n=st.integers(1, 60),
    cut=st.integers(0, 60),
    offset=st.sampled_from([0.0, 1e8, -1e12]),
    spread=st.sampled_from([1.0, 1e-6, 1e6]),
    missing=st.booleans(),
    seed=st.integers(0, 99),
)
def test_column_moments_are_those_of_numpy(n, cut, offset, spread, missing, seed):
    rng = np.random.default_rng(seed)
    X = offset + spread * rng.standard_normal((n, 2))
    if missing:
        X[rng.random((n, 2)) < 0.3] = np.nan
    moments = ColumnMoments(2)
    moments.add(X[:cut])
    moments.add(X[cut:])
    for j in range(2):
        here = X[~np.isnan(X[:, j]), j]
        assert moments.count[j] == len(here)
        if len(here):
            rounding = 1e-15 * abs(offset)
            assert moments.mean[j] == pytest.approx(here.mean(), rel=1e-12)
            sd = np.sqrt(moments.square[j] / len(here))
            assert sd == pytest.approx((here - here[0]).std(), rel=1e-9, abs=4 * rounding)


@pytest.mark.parametrize("value", [0.0, 0.1, 1e8, -3e15])
def test_a_constant_column_has_scale_one(value):
    moments = ColumnMoments(1)
    for _ in range(5):
        moments.add(np.full((1000, 1), value))
    scaling = moments.scaling("standard")
    assert scaling.scale[0] == 1.0
    assert scaling.center[0] == pytest.approx(value)


def test_epoch_seconds_keep_their_spread():
    X = 1.7e9 + np.random.default_rng(0).uniform(0, 86_400, (5000, 1))
    moments = ColumnMoments(1)
    moments.add(X)
    assert moments.scaling("standard").scale[0] == pytest.approx(X.std(), rel=1e-9)


def test_without_scaling_rows_stay_as_they_are():
    X = table(50) * 100
    moments = ColumnMoments(2)
    moments.add(X)
    scaling = moments.scaling("none")
    np.testing.assert_array_equal(scaling.apply(X), X)
    np.testing.assert_allclose(scaling.apply(np.full((1, 2), np.nan))[0], X.mean(axis=0))


# --- drift ----------------------------------------------------------------------------------------


def excess_of(X: np.ndarray, rows: int) -> np.ndarray:
    drift = Drift(X.shape[1], rows)
    drift.add(X)
    return drift.excess()


@pytest.mark.parametrize("seed", range(5))
def test_shuffled_rows_do_not_drift(seed):
    assert (excess_of(table(20_000, d=5, seed=seed), 500) < Drift.CLEAR).all()


def test_rows_sorted_by_a_column_drift_in_that_column():
    X = np.random.default_rng(0).standard_normal((20_000, 2))
    excess = excess_of(X[np.argsort(X[:, 0])], 500)
    assert excess[0] > 0.9
    assert excess[1] < Drift.CLEAR


def test_a_constant_column_does_not_drift():
    assert excess_of(np.full((1000, 1), 3.0), 100)[0] <= 0


# --- shuffle buffer -------------------------------------------------------------------------------


def through(X: np.ndarray, size: int, block: int, rng: np.random.Generator | None) -> np.ndarray:
    buffer, out, at = ShuffleBuffer(X[:size].copy(), rng), [], size
    while len(X) - at >= block:
        rows = X[at : at + block].copy()
        buffer.exchange(rows)
        out.append(rows)
        at += block
    return np.concatenate([*out, *buffer.rest(X[at:], block)])


@given(n=st.integers(1, 200), size=st.integers(1, 50), block=st.integers(1, 50), seed=st.integers(0, 9))
def test_every_row_that_goes_in_comes_out_once(n, size, block, seed):
    size = min(size, n)
    block = min(block, size)
    X = np.arange(n, dtype=float)[:, np.newaxis]
    for rng in (None, np.random.default_rng(seed)):
        out = through(X, size, block, rng)
        np.testing.assert_array_equal(np.sort(out.ravel()), X.ravel())
        if rng is None:
            np.testing.assert_array_equal(out, X)


def test_a_row_waits_for_the_buffers_size_on_average():
    X = np.arange(20_000, dtype=float)[:, np.newaxis]
    out = through(X, 1000, 100, np.random.default_rng(0)).ravel()
    waited = np.argsort(out) - np.arange(20_000) + 1000
    assert waited[2000:15_000].mean() == pytest.approx(1000, rel=0.05)
    assert np.abs(np.diff(out)).mean() > 200


def test_the_buffer_is_shuffled_by_the_seed_alone():
    X = np.arange(500, dtype=float)[:, np.newaxis]
    one, same, other = (through(X, 100, 10, np.random.default_rng(s)) for s in (1, 1, 2))
    np.testing.assert_array_equal(one, same)
    assert (one != other).any()


def test_the_buffer_is_as_large_as_asked_and_else_as_memory_allows():
    params = FitParams()
    assert learning.buffer_rows(replace(params, buffer_rows=77), 10) == 77
    assert learning.buffer_rows(params, 10) == 200_000
    assert 8 * 10_000 * learning.buffer_rows(params, 10_000) <= learning.BUFFER_BYTES
