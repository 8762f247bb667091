"""The passes: from a source to a model and from a model to labels, held against the slow twin."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from contextlib import closing
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from imdh_cli.errors import DataError, OutputError, UsageError
from imdh_cli.features import Selection, Tally, select_features
from imdh_cli.params import FeatureParams, FitParams, LearnParams, PruneParams, SourceParams
from imdh_cli.pipeline.assign import AssignParams, Labeller
from imdh_cli.pipeline.assign import assign as assign_rows
from imdh_cli.pipeline.feature_rows import Progress, no_rows
from imdh_cli.pipeline.fit import Fit
from imdh_cli.pipeline.fit import fit as fit_rows
from imdh_cli.pipeline.recount import recount as recount_rows
from imdh_cli.rows.shuffle import interleave
from imdh_cli.rows.stream import RowStream
from imdh_cli.sources import TableSource, open_source
from tests import naive
from tests.cli import blobs, imdh, write

DEPTH = 3


def opened(path: Path, **params: Any) -> tuple[TableSource, Selection]:
    source = open_source([str(path)], SourceParams(**params))
    return source, select_features(source, FeatureParams())


def fitted(path: Path, params: FitParams, **how: Any) -> Fit:
    source, selection = opened(path)
    with closing(source):
        return fit_rows(source, selection, params, **how)


def depth(levels: int, **more: Any) -> FitParams:
    return FitParams(learn=LearnParams(depth=levels), **{"n_init": 1, **more})


@pytest.fixture(scope="module")
def data(tmp_path_factory) -> tuple[Path, np.ndarray]:
    X, _ = blobs(500, k=4, d=3, distance=9.0)
    X = X * [1, 1e3, 1e-3] + [5, 0, 1]
    return write(tmp_path_factory.mktemp("pipeline") / "t.parquet", X), X


# --- the twin -------------------------------------------------------------------------------------


def twin_of(X: np.ndarray, passes: int, recount: bool) -> tuple[naive.Tree, naive.Summary]:
    Z, *_ = naive.standardise(X)
    tree = naive.Tree(DEPTH, naive.start_directions(DEPTH, X.shape[1]))
    for number in range(passes):
        if number:
            naive.relocate(tree)
        tree.pass_over(Z)
    if not recount:
        return tree, naive.windowed(tree)
    return tree, naive.recount(naive.freeze(tree), Z, naive.pivots(tree))


@pytest.fixture(scope="module")
def counted_twin(data) -> naive.Summary:
    return twin_of(data[1], 2, recount=True)[1]


@pytest.mark.parametrize(
    ("passes", "recount"),
    [
        (1, "no"),
        (1, "yes"),
        (2, "yes"),
        *(pytest.param(*run, marks=pytest.mark.long) for run in [(2, "no"), (3, "yes")]),
    ],
)
def test_a_fit_is_what_the_twin_learns_counts_and_prunes(data, passes, recount):
    path, X = data
    params = depth(DEPTH, passes=passes, recount=recount, shuffle="none")
    model = fitted(path, params).model
    again = recount == "yes" or passes > 1  # what the buffer held is counted at the end
    tree, summary = twin_of(X, passes, again)
    frozen = naive.freeze(tree)
    near = {"rtol": 1e-9, "atol": 1e-9}
    np.testing.assert_allclose(model.directions, frozen.v, **near)
    np.testing.assert_allclose(model.thresholds, frozen.threshold, **near)
    np.testing.assert_allclose(model.offsets, frozen.offset, **near)
    np.testing.assert_allclose(model.projection_sd, frozen.s, **near)
    np.testing.assert_allclose(model.pivots, summary.pivots, **near)
    np.testing.assert_array_equal(model.counts, summary.counts)
    np.testing.assert_allclose(model.means, summary.means, **near)
    np.testing.assert_allclose(model.sums_of_squares, summary.ss, **near)
    np.testing.assert_array_equal(model.histograms, summary.histograms)
    chosen = naive.prune(summary)
    assert model.n_clusters == chosen.K
    np.testing.assert_array_equal(model.merge_order, chosen.order)
    np.testing.assert_array_equal(model.cluster_of_leaf, chosen.cluster_of_leaf)
    assert model.metadata["choice"]["clarity"] == chosen.clarity


@pytest.mark.parametrize("weight", ["valley", "ss"])
@pytest.mark.parametrize("clusters", [1, 2, 3, 5, "valleys", "auto"])
def test_every_number_of_clusters_is_the_twins(data, counted_twin, clusters, weight):
    path, _ = data
    params = depth(
        DEPTH, passes=2, recount="yes", shuffle="none", prune=PruneParams(clusters=clusters, weight=weight)
    )
    model = fitted(path, params).model
    chosen = naive.prune(counted_twin, clusters=clusters, weight=weight)
    np.testing.assert_array_equal(model.cluster_of_leaf, chosen.cluster_of_leaf)


def test_a_shuffled_fit_is_the_twin_of_the_shuffled_rows(data):
    """Each pass over rows in memory has a permutation of its own, drawn from the seed."""
    path, X = data
    model = fitted(path, depth(DEPTH, passes=2, recount="yes", seed=7)).model
    Z, *_ = naive.standardise(X)
    tree = naive.Tree(DEPTH, naive.start_directions(DEPTH, 3, seed=7))
    for number in range(2):
        if number:
            naive.relocate(tree)
        tree.pass_over(Z[np.random.default_rng([7, 2, number]).permutation(len(Z))])
    np.testing.assert_allclose(model.directions, naive.freeze(tree).v, rtol=1e-8, atol=1e-8)
    assert model.counts[0] == len(X)


# --- labels ---------------------------------------------------------------------------------------


class Memory:
    """A sink that keeps what it gets; fails at batch `fail_at`."""

    def __init__(self, fail_at: int | None = None) -> None:
        self.batches: list[pa.RecordBatch] = []
        self._fail_at = fail_at

    def write(self, batch: pa.RecordBatch) -> None:
        if len(self.batches) == self._fail_at:
            raise OutputError("full")
        self.batches.append(batch)


@pytest.mark.parametrize("threads", [1, 2, 8])
def test_labels_are_the_twins_in_the_order_of_the_rows(data, threads):
    path, X = data
    model = fitted(path, depth(DEPTH)).model
    frozen = naive.Frozen(DEPTH, model.directions, model.thresholds, model.offsets, model.projection_sd)
    leaf = [naive.path_of(frozen, z)[-1] for z in naive.standardise(X)[0]]
    source, _ = opened(path, batch_rows=17)
    sink = Memory()
    with closing(source):
        done = assign_rows(model, source, sink, AssignParams(keep=("x2",), extra=("leaf",)), threads=threads)
    got = pa.Table.from_batches(sink.batches)
    np.testing.assert_array_equal(got["x2"], X[:, 1])
    np.testing.assert_array_equal(got["leaf"], leaf)
    np.testing.assert_array_equal(got["cluster"], model.cluster_of_leaf[np.array(leaf) - 2**DEPTH])
    assert done.sizes.tolist() == np.bincount(got["cluster"]).tolist()
    assert max(batch.num_rows for batch in sink.batches) <= 17


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("fail_at", [0, 3, 28])
def test_an_error_of_the_sink_is_raised_and_no_thread_stays(data, threads, fail_at):
    path, _ = data
    model = fitted(path, depth(2)).model
    source, _ = opened(path, batch_rows=17)
    before = threading.active_count()
    with closing(source), pytest.raises(OutputError, match="full"):
        assign_rows(model, source, Memory(fail_at), AssignParams(), threads=threads)
    assert threading.active_count() == before


@pytest.mark.parametrize("threads", [1, 2, 5])
@pytest.mark.parametrize("row", [3, 499])
def test_an_error_of_the_source_is_raised_and_no_thread_stays(data, tmp_path, threads, row):
    path, X = data
    lines = ["x1,x2,x3", *(",".join(map(str, x)) for x in X.tolist())]
    lines[row] = "1,2"
    (tmp_path / "t.csv").write_text("\n".join(lines))
    model = fitted(path, depth(2)).model
    before = threading.active_count()
    source = open_source([str(tmp_path / "t.csv")], SourceParams(batch_rows=50))
    with closing(source), pytest.raises(DataError, match="2 cells"):
        assign_rows(model, source, Memory(), AssignParams(), threads=threads)
    source = open_source([str(tmp_path / "t.csv")], SourceParams(batch_rows=50))
    with closing(source), pytest.raises(DataError, match="2 cells"):
        fit_rows(source, select_features(source, FeatureParams()), depth(2), threads=threads)
    assert threading.active_count() == before


@pytest.mark.parametrize("threads", [1, 2, 8])
def test_a_missing_cell_is_named_by_its_row_whichever_thread_meets_it(data, tmp_path, threads):
    path, X = data
    columns = {f"x{j + 1}": pa.array(X[:, j], mask=np.arange(len(X)) == 400) for j in range(3)}
    pq.write_table(pa.table(columns), tmp_path / "holes.parquet")
    model = fitted(path, depth(2)).model
    source, _ = opened(tmp_path / "holes.parquet", batch_rows=17)
    sink = Memory()
    with closing(source), pytest.raises(DataError, match='row 401, column "x1": the value is missing'):
        assign_rows(model, source, sink, AssignParams(), missing="error", threads=threads)
    assert sum(batch.num_rows for batch in sink.batches) == 23 * 17  # the batches before it


@pytest.mark.parametrize("passes", [1, 2])
def test_rows_mixed_from_many_row_groups_are_learned_from_alike_by_any_threads(tmp_path, passes):
    X, _ = blobs(4000, k=3, d=4, distance=9.0)
    X[::50, 1] = -999.0  # what is watched for, and counted, is the same too
    columns = pa.table({f"x{j}": X[:, j] for j in range(4)})
    pq.write_table(columns, tmp_path / "t.parquet", row_group_size=97)
    params = depth(4, passes=passes, buffer_rows=300)
    one, *others = (fitted(tmp_path / "t.parquet", params, threads=threads) for threads in (1, 3, 8))
    for many in others:
        assert vars(many.tally) == vars(one.tally)
        assert many.model.metadata == one.model.metadata
        for name, array in vars(one.model).items():
            if isinstance(array, np.ndarray):
                np.testing.assert_array_equal(getattr(many.model, name), array, err_msg=name)


def test_more_clusters_than_the_tree_can_give_are_refused(data):
    path, _ = data
    model = fitted(path, depth(2)).model
    for k in (0, 5):
        with pytest.raises(UsageError, match=f"{k} clusters were asked for"):
            Labeller(model, k)


# --- progress -------------------------------------------------------------------------------------


def seen_by(path: Path, params: FitParams, threads: int = 1) -> list[Progress]:
    seen: list[Progress] = []
    source, selection = opened(path, batch_rows=40)
    with closing(source):
        fit_rows(source, selection, params, threads=threads, on_progress=seen.append)
    return seen


def test_progress_goes_up_to_all_rows_in_every_pass(data):
    seen = seen_by(data[0], depth(2, passes=2, recount="yes", buffer_rows=100))
    tasks = list(dict.fromkeys(p.task for p in seen))
    assert tasks == ["learning", "pass 2", "counting"]
    for task in tasks:
        rows = [p.rows for p in seen if p.task == task]
        assert rows == sorted(rows)
        assert rows[-1] == 500
    assert {p.total_rows for p in seen} == {500}
    assert all(p.size is None or 0 <= p.read <= p.size for p in seen)


def test_rows_in_memory_are_read_once(data):
    seen = seen_by(data[0], depth(2, passes=5, recount="yes"))
    assert {p.task for p in seen} == {"learning"}
    assert seen[-1].rows == 500


# --- the order of rows ----------------------------------------------------------------------------


def cut(X: np.ndarray, sizes: Sequence[int]) -> Iterator[np.ndarray]:
    at = 0
    for size in sizes:
        yield X[at : at + size]
        at += size
    yield X[at:]


@given(st.lists(st.integers(0, 9), max_size=8), st.lists(st.integers(1, 20), min_size=1, max_size=9))
def test_a_row_stream_gives_the_same_rows_in_any_portions(sizes, portions):
    X = np.arange(60.0).reshape(30, 2)
    stream = RowStream(cut(X, sizes))
    first = np.empty((portions[0], 2))
    filled = stream.fill(first)
    assert filled == min(portions[0], 30)
    got = [first[:filled]]
    for n in portions[1:]:
        taken = stream.take(n)
        if taken is None:
            assert sum(map(len, got)) == 30
            break
        assert len(taken) <= n
        assert len(taken) == n or sum(map(len, got)) + len(taken) == 30
        got.append(taken.copy())
    got += [block.copy() for block in stream.blocks(4)]
    np.testing.assert_array_equal(np.concatenate(got), X)


@given(
    st.lists(st.integers(0, 40), min_size=1, max_size=12),
    st.integers(1, 6),
    st.integers(1, 9),
    st.integers(0, 99),
)
def test_interleaved_fragments_give_each_row_once_and_fragments_in_order(sizes, at_once, run_rows, seed):
    ends = np.cumsum([0, *sizes])
    fragments = [
        (size, lambda a=a, size=size: cut(np.arange(a, a + size, dtype=float)[:, None], [7, 0, 5]))
        for a, size in zip(ends, sizes, strict=False)
    ]
    rng = np.random.default_rng(seed)
    got = [X.copy() for X in interleave(fragments, rng, at_once=at_once, run_rows=run_rows)]
    assert all(0 < len(X) <= run_rows for X in got)
    rows = np.concatenate(got)[:, 0] if got else np.empty(0)
    np.testing.assert_array_equal(np.sort(rows), np.arange(ends[-1]))
    for low, high in pairwise(ends):
        inside = rows[(rows >= low) & (rows < high)]
        assert (np.diff(inside) > 0).all()


def test_interleaved_rows_come_from_all_over():
    """In every tenth of what comes out, the fragments have about equal shares."""
    X = [np.full((1000, 1), float(k)) for k in range(10)]
    fragments = [(1000, lambda k=k: iter([X[k]])) for k in range(10)]
    got = np.concatenate(list(interleave(fragments, np.random.default_rng(0), at_once=64, run_rows=1)))
    shares = np.stack([np.bincount(part[:, 0].astype(int), minlength=10) for part in np.split(got, 10)])
    assert shares[:9].min() >= 50
    assert shares[:9].max() <= 160


# --- streams --------------------------------------------------------------------------------------


def test_a_pieced_input_is_read_as_often_as_there_are_passes(data, monkeypatch):
    """Rows used, skipped and missing are those of one reading, not of all of them together."""
    path, X = data
    holed = X.copy()
    holed[::10, 0] = np.nan
    source, selection = opened(write(path.parent / "holed.parquet", holed))
    with closing(source):
        done = fit_rows(source, selection, depth(2, passes=3, recount="yes", buffer_rows=60))
    rows = done.model.metadata["rows"]
    assert rows == {"read": 500, "used": 450, "skipped": 50, "bad": 0, "counted": 450}
    assert done.model.metadata["missing"] == {"x1": 50}
    assert (done.passes, done.recounted) == (3, True)


@pytest.mark.parametrize(
    ("rows", "passes", "recounted", "how"),
    [
        (10, 4, True, "recounted"),
        (600, 4, True, "recounted"),
        (800, 2, True, "recounted"),
        (1500, 1, False, "sampled"),
    ],
)
def test_few_rows_are_met_more_often_than_many(tmp_path, monkeypatch, rows, passes, recounted, how):
    monkeypatch.setattr("imdh_cli.core.learn.AGAIN_ROWS", 1000)
    monkeypatch.setattr("imdh_cli.core.learn.FEW_ROWS", 700)
    X, _ = blobs(rows)
    done = fitted(write(tmp_path / "t.parquet", X), depth(2, buffer_rows=200))
    assert (done.passes, done.recounted) == (passes, recounted)
    assert done.model.metadata["statistics"] == how
    counted = done.model.metadata["rows"]["counted"]
    assert counted == rows if recounted else rows / 2 <= counted <= rows


@pytest.mark.parametrize("suffix", ["parquet", "csv"])
def test_what_the_buffer_cannot_hold_is_not_read_to_find_that_out(tmp_path, suffix):
    X, _ = blobs(500)
    rows: list[int] = []
    fitted(
        write(tmp_path / f"t.{suffix}", X),
        depth(2, buffer_rows=400, passes=1, recount="no"),
        on_progress=lambda p: rows.append(p.rows),
    )
    assert rows == sorted(rows)
    assert rows[-1] == 500


def test_the_buffer_takes_all_rows_that_fit_however_many_files(tmp_path):
    X, _ = blobs(300)
    for k in range(3):
        write(tmp_path / f"part-{k}.parquet", X[k * 100 : (k + 1) * 100])
    whole = write(tmp_path.parent / f"{tmp_path.name}.parquet", X)
    several = fitted(tmp_path, depth(4)).model
    one = fitted(whole, depth(4)).model
    np.testing.assert_array_equal(several.directions, one.directions)
    np.testing.assert_array_equal(several.histograms, one.histograms)


def test_a_recount_of_a_model_of_the_users_units(tmp_path):
    """scale none: neither centred nor cut, and a missing cell stands at the training mean."""
    X, _ = blobs(400, d=2)
    X[:, 1] *= 1e6
    path = write(tmp_path / "t.parquet", X)
    model = fitted(path, depth(3, scale="none", shuffle="none", passes=2, recount="yes")).model
    holed = X.copy()
    holed[5, 0] = np.nan
    source, _ = opened(write(tmp_path / "holed.parquet", holed))
    with closing(source):
        counted, tally = recount_rows(model, source, missing="mean")
    assert tally.missing == {"x1": 1}
    holed[5, 0] = X[:, 0].mean()
    np.testing.assert_allclose(counted.means[0], holed.mean(axis=0), rtol=1e-9)
    assert counted.counts[0] == 400


def test_the_last_batch_of_one_row_is_a_row(tmp_path):
    X, _ = blobs(129)
    pq.write_table(pa.table({"a": X[:, 0], "b": X[:, 1]}), tmp_path / "t.parquet")
    source, selection = opened(tmp_path / "t.parquet", batch_rows=64)
    with closing(source):
        assert fit_rows(source, selection, depth(2)).model.counts[0] == 129


# --- out of range ---------------------------------------------------------------------------------


def test_learning_that_diverges_says_so_and_what_to_change(tmp_path):
    X = np.random.default_rng(0).standard_normal((700, 2))
    pq.write_table(pa.table({"a": X[:, 0], "b": X[:, 1]}), tmp_path / "n.parquet")
    words = ["fit", tmp_path / "n.parquet", "-o", tmp_path / "m.npz"]
    told = imdh(*words, "--clamp", 0, "--learning-decay", 0, status=2).err
    assert "diverged" in told
    assert "--clamp" in told


def test_values_too_large_to_go_unscaled_are_named(tmp_path):
    X = np.random.default_rng(0).standard_normal((300, 2)) * [1.0, 1e80]
    pq.write_table(pa.table({"a": X[:, 0], "huge": X[:, 1]}), tmp_path / "n.parquet")
    words = ["fit", tmp_path / "n.parquet", "-o", tmp_path / "m.npz"]
    assert '"huge"' in imdh(*words, "--scale", "none", status=3).err
    imdh(*words)


def test_numbers_that_are_too_large_are_called_so(tmp_path):
    tally = Tally(rows=2, skipped=2, infinite={"x": 2})
    (tmp_path / "t.csv").write_text("x\n1e200\n1e200\n")
    source = open_source([str(tmp_path / "t.csv")], SourceParams())
    raised = no_rows(tally, source)
    assert 'column "x" is empty, infinite or beyond 1e100 in 2 of 2 rows' in (raised.hint or "")
