"""Partial results of the parts of a table add up, however it is cut, in this process or in others."""

from __future__ import annotations

from concurrent.futures import ProcessPoolExecutor
from copy import deepcopy
from dataclasses import replace
from functools import cache, partial
from itertools import pairwise
from multiprocessing import get_context

import numpy as np
import pyarrow as pa
import pyarrow.compute
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import imdh_cli
from imdh_cli.engines import parts
from imdh_cli.errors import DataError, ModelError
from imdh_cli.features import Column, FeatureSpec
from imdh_cli.params import AssignParams, FitParams, LearnParams, SourceParams
from tests.models import make_model

SPEC = FeatureSpec(tuple(Column(f"x{f}") for f in range(3)))
PARAMS = FitParams(learn=LearnParams(depth=4), n_init=1)


@cache
def table(n: int = 2000, seed: int = 0) -> pa.Table:
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, 3)) + 8.0 * rng.integers(0, 3, (n, 1)) * [1.0, -1.0, 0.5]
    X[::50, 1] = np.nan
    return pa.table({f"x{f}": X[:, f] for f in range(3)} | {"word": ["a"] * n})


def cut(whole: pa.Table, at: list[int]) -> list[list[pa.RecordBatch]]:
    ends = [0, *at, len(whole)]
    return [whole.slice(a, b - a).to_batches() for a, b in pairwise(ends)]


def profiled(pieces: list[list[pa.RecordBatch]], fraction: float = 1.0, seed: int = 0) -> parts.Profile:
    packed = [
        piece
        for part, batches in enumerate(pieces)
        for piece in parts.pack_profile(parts.profile(batches, SPEC, fraction=fraction, seed=seed, part=part))
    ]
    return parts.merge_profiles(packed, 3)


def fitted(
    pieces: list[list[pa.RecordBatch]], sample_rows: int = 10**6, params: FitParams = PARAMS
) -> imdh_cli.Model:
    found = profiled(pieces)
    learned = parts.learn_sample(found, params, sample_rows)
    watch = parts.watch_of(found.drawn(sample_rows), SPEC)
    how = {"dither": learned.dither, "watch": watch}
    first = found.first_rows
    counts = [
        parts.count(
            batches, SPEC, learned.tree.freeze(), learned.scaling, first_row=first[part], **deepcopy(how)
        )
        for part, batches in enumerate(pieces)
    ]
    merged = parts.merge_counts([one.pack() for one in counts])
    assert merged is not None
    return parts.finished(learned, parts.Counts.unpack(merged), watch, params, SPEC, {})


@cache
def of_command() -> imdh_cli.Model:
    return imdh_cli.fit(table(), params=PARAMS)


cuts = st.lists(st.integers(0, 2000), max_size=5).map(sorted)


def test_one_part_and_all_rows_are_the_model_of_fit():
    of_four = replace(PARAMS, n_init=4)
    model, whole = fitted([table().to_batches()], params=of_four), imdh_cli.fit(table(), params=of_four)
    for name, array in whole.arrays().items():
        if name != "metadata":
            np.testing.assert_array_equal(model.arrays()[name], array, err_msg=name)
    assert model.metadata["rows"] == whole.metadata["rows"]
    assert model.metadata["missing"] == whole.metadata["missing"]


@given(at=cuts)
def test_a_profile_is_of_all_rows_however_they_are_cut(at):
    found, X = profiled(cut(table(), at)), np.column_stack([table().column(f"x{f}") for f in range(3)])
    X = X[~np.isnan(X).any(axis=1)]
    np.testing.assert_array_equal(found.drawn(2000), X)
    np.testing.assert_allclose(found.columns.mean, X.mean(axis=0), rtol=1e-12)
    np.testing.assert_allclose(found.columns.square, X.var(axis=0) * len(X), rtol=1e-10)
    assert (found.tally.rows, found.tally.used, found.tally.missing) == (2000, 1960, {"x1": 40})


@given(at=cuts)
def test_counts_are_of_all_rows_however_they_are_cut(at):
    learned = parts.learn_sample(profiled([table().to_batches()]), PARAMS, 10**6)
    tree, scaling = learned.tree.freeze(), learned.scaling
    whole = parts.count(table().to_batches(), SPEC, tree, scaling).statistics
    pieces = [parts.count(b, SPEC, tree, scaling).pack() for b in cut(table(), at)]
    total = parts.Counts.unpack(parts.merge_counts(pieces) or b"")
    np.testing.assert_array_equal(total.statistics.counts, whole.counts)
    np.testing.assert_array_equal(total.statistics.histograms, whole.histograms)
    np.testing.assert_allclose(total.statistics.means, whole.means, rtol=1e-12, atol=1e-12)
    assert total.tally.used == 1960
    assert parts.merge_counts(pieces) == parts.merge_counts(pieces)


@given(at=cuts)
def test_labels_are_those_of_assign_however_the_rows_are_cut(at):
    model = of_command()
    want = imdh_cli.assign(table(), model, with_=["margin", "path"])
    found = [
        batch
        for batches in cut(table(), at)
        for batch in parts.label(batches, parts.slim(model), AssignParams(extra=("margin", "path")))
    ]
    got = pa.Table.from_batches(found)
    assert got.column_names == ["x0", "x1", "x2", "word", "cluster", "margin", "path"]
    for name in want.column_names:
        assert got.column(name).combine_chunks().equals(want.column(name).combine_chunks()), name


def test_a_sample_is_uniform_and_of_the_size_asked_for():
    """Each row is as likely as any other: of 200 draws of a tenth, sums over tenths of the rows."""
    pieces = cut(table(), [300, 301, 900])
    whole = {tuple(row): i for i, row in enumerate(profiled(pieces).drawn(2000))}
    drawn = np.zeros(len(whole))
    for seed in range(200):
        sample = profiled(pieces, fraction=0.15, seed=seed).drawn(196)
        assert len(sample) == 196
        places = [whole[tuple(row)] for row in sample]
        assert places == sorted(places)
        drawn[places] += 1
    tenths = drawn.reshape(10, -1).sum(axis=1)
    np.testing.assert_allclose(tenths, 200 * 196 / 10, atol=5 * np.sqrt(200 * 19.6))


def test_a_sample_says_how_many_rows_were_learned_from():
    model = fitted(cut(table(), [500]), sample_rows=700)
    assert model.metadata["learned_rows"] == 700
    assert model.metadata["rows"]["counted"] == 1960
    assert set(model.extras) <= {"fill"}


def test_other_processes_give_the_same_bytes():
    pieces = cut(table(), [500, 1000, 1500])
    learned = parts.learn_sample(profiled(pieces), PARAMS, 10**6)
    work = partial(_packed, tree=learned.tree.freeze(), scaling=learned.scaling)
    with ProcessPoolExecutor(2, mp_context=get_context("spawn")) as pool:
        assert list(pool.map(work, pieces)) == [work(batches) for batches in pieces]


def _packed(batches, tree, scaling):
    return parts.count(batches, SPEC, tree, scaling).pack()


def test_noise_is_by_the_place_among_all_rows():
    """Of whole numbers, whose histograms are of rows with noise: the same model however they are cut."""
    whole = pa.table({f"x{f}": np.rint(table().column(f"x{f}").to_numpy()) for f in range(3)})
    of_command = imdh_cli.fit(whole, params=PARAMS)
    assert "dither_columns" in of_command.extras

    @settings(max_examples=10)
    @given(at=cuts)
    def is_the_same(at):
        model = fitted(cut(whole, at))
        np.testing.assert_array_equal(model.histograms, of_command.histograms)
        np.testing.assert_array_equal(model.counts, of_command.counts)
        np.testing.assert_allclose(model.means, of_command.means, rtol=1e-12, atol=1e-12)

    is_the_same()


def test_values_that_stand_for_missing_ones_are_counted_in_all_parts():
    whole = table().set_column(0, "x0", pa.array([-999.0] * 6 + table().column("x0").to_pylist()[6:]))
    with pytest.warns(imdh_cli.ImdhWarning, match="-999 in 5 cells"):  # one is in a row that is left out
        expected = imdh_cli.fit(whole, params=PARAMS).metadata

    @settings(max_examples=10)
    @given(at=cuts)
    def is_the_same(at):
        found = fitted(cut(whole, at)).metadata
        assert found["choice"] == expected["choice"]
        (one,), (other,) = found["suspects"], expected["suspects"]
        spread = [other["sd"], other["others"]]
        assert [one[name] for name in ("sd", "others")] == pytest.approx(spread, rel=1e-9)
        assert (one["feature"], one["value"], one["cells"]) == ("x0", -999.0, 5)

    is_the_same()


def test_a_part_is_read_as_the_command_reads_a_table():
    """What a model says is missing, text that holds numbers, lists, fields within structs, bad rows."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((600, 5)) + 9.0 * rng.integers(0, 3, (600, 1))
    X[::50, 0] = -99.0
    lists = X[:, 1:3].tolist()
    lists[7] = lists[7][:1]
    texts = [f"{x:,.6f}" for x in 1000 * X[:, 3]]
    texts[9] = "none"
    inside = pa.StructArray.from_arrays([pa.array(X[:, 4])], names=["in"])
    whole = pa.table({"a": X[:, 0], "v": lists, "t": texts, "s": inside})
    how = {"null_value": "a=-99", "on_bad_row": "skip"}
    model = imdh_cli.fit(whole, columns=["a", "v", "t", "s.in"], parse="t", **how)
    assert model.metadata["rows"] == {"read": 600, "used": 586, "skipped": 12, "bad": 2, "counted": 586}
    want = imdh_cli.assign(whole, model, with_="runner_up", on_bad_row="skip")
    reading = SourceParams(on_bad_row="skip")
    params = AssignParams(extra=("runner_up",))
    found = parts.label(whole.to_batches(max_chunksize=100), parts.slim(model), params, reading=reading)
    got = pa.Table.from_batches(found)
    assert got.select(whole.column_names).equals(whole)
    assert got.select(["cluster", "runner_up"]).equals(want)
    assert pa.compute.sum(pa.compute.equal(want["cluster"], -1)).as_py() == 14
    counts = parts.count(whole.to_batches(max_chunksize=100), model.spec, model.frozen_tree, model.scaling,
                         reading=reading)  # fmt: skip
    assert (counts.tally.used, counts.tally.bad) == (586, 2)
    with pytest.raises(DataError, match='"t": "none" is not a number'):
        list(parts.label(whole.to_batches(), model, params))


@pytest.mark.parametrize("missing", ["skip", "mean"])
def test_rows_that_come_as_matrices_are_those_of_columns(missing):
    """Broken cells and logarithms."""
    X = np.random.default_rng(0).standard_normal((300, 3))
    X[[3, 299], 1], X[5, 0], X[6, 2] = np.nan, np.inf, 1e101
    spec = replace(SPEC, missing=missing, columns=(*SPEC.columns[:2], Column("x2", log=True)))
    batch = pa.RecordBatch.from_arrays(list(map(pa.array, X.T)), names=["x0", "x1", "x2"])
    tree, scaling = make_model(d=3).frozen_tree, make_model(d=3).scaling
    found = []
    for rows in ([batch], parts.Matrices([X[:299].copy(), X[299:].copy()])):
        profile = parts.profile(deepcopy(rows), spec, fraction=1.0, seed=0, part=0)
        counts = parts.count(rows, spec, tree, scaling)
        found.append((profile, profile.drawn(300), counts))
    (columns, sample, counts), (other_columns, other_sample, other_counts) = found
    np.testing.assert_array_equal(sample, other_sample)
    np.testing.assert_array_equal(columns.columns.square, other_columns.columns.square)
    assert columns.tally == other_columns.tally == counts.tally == other_counts.tally
    assert columns.tally.missing == {"x1": 2}
    assert columns.tally.infinite == {"x0": 1, "x2": 1}
    np.testing.assert_array_equal(counts.statistics.histograms, other_counts.statistics.histograms)
    with pytest.raises(DataError, match='the DataFrame, column "x1": the value is missing'):
        parts.profile(
            parts.Matrices([X.copy()]), replace(spec, missing="error"), fraction=0.0, seed=0, part=0
        )


def test_a_part_without_rows_changes_nothing():
    whole, empty = table().to_batches(), table().slice(0, 0).to_batches()
    for name, array in fitted([empty, whole, empty]).arrays().items():
        np.testing.assert_array_equal(array, fitted([whole]).arrays()[name], err_msg=name)


def test_no_rows_at_all_are_an_error():
    with pytest.raises(DataError, match="there are no rows"):
        parts.learn_sample(profiled([table().slice(0, 0).to_batches()]), PARAMS, 10)


NINE = {"x": np.zeros(9)}


@pytest.mark.parametrize("damage", [b"", b"nonsense", parts.pack(NINE)[:-9]])
def test_a_damaged_piece_is_a_model_error(damage):
    with pytest.raises(ModelError, match="damaged"):
        parts.unpack(damage)


def test_a_damaged_piece_of_a_sample_is_a_model_error():
    found = parts.profile(table().to_batches(), SPEC, fraction=1.0, seed=0, part=0)
    _, sample = parts.pack_profile(found)
    with pytest.raises(ModelError, match="damaged"):
        parts.merge_profiles([sample[:-9]], 3)


def test_a_slim_model_is_small():
    import pickle

    rng = np.random.default_rng(0)
    X = rng.standard_normal((20_000, 20))
    model = imdh_cli.fit(pa.table({f"x{f}": X[:, f] for f in range(20)}))
    assert len(pickle.dumps(parts.slim(model))) < 200_000
