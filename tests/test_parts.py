"""Partial results of the parts of a table add up, however it is cut, in this process or in others."""

from __future__ import annotations

from concurrent.futures import ProcessPoolExecutor
from functools import partial
from itertools import pairwise
from multiprocessing import get_context

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import imdh_cli
from imdh_cli.engines import parts
from imdh_cli.errors import DataError, ModelError
from imdh_cli.features import Column, FeatureSpec
from imdh_cli.params import FitParams, LearnParams

SPEC = FeatureSpec(tuple(Column(f"x{f}") for f in range(3)))
PARAMS = FitParams(learn=LearnParams(depth=4))


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


def fitted(pieces: list[list[pa.RecordBatch]], sample_rows: int = 10**6) -> imdh_cli.Model:
    found = profiled(pieces)
    learned = parts.learn_sample(found, PARAMS, sample_rows)
    tree, scaling = learned.tree.freeze(), learned.scaling
    merged = parts.merge_counts(
        [parts.pack_counts(*parts.count(batches, SPEC, tree, scaling)) for batches in pieces]
    )
    assert merged is not None
    return parts.finished(learned, *parts.unpack_counts(merged), PARAMS, SPEC, {})


cuts = st.lists(st.integers(0, 2000), max_size=5).map(sorted)


def test_one_part_and_all_rows_are_the_model_of_fit():
    model, whole = fitted([table().to_batches()]), imdh_cli.fit(table(), params=PARAMS)
    for name, array in whole.arrays().items():
        if name != "metadata":
            np.testing.assert_array_equal(model.arrays()[name], array, err_msg=name)
    assert model.metadata["rows"] == whole.metadata["rows"]
    assert model.metadata["missing"] == whole.metadata["missing"]


@given(at=cuts)
def test_a_profile_is_of_all_rows_however_they_are_cut(at):
    found, X = profiled(cut(table(), at)), np.column_stack([table().column(f"x{f}") for f in range(3)])
    X = X[~np.isnan(X).any(axis=1)]
    np.testing.assert_array_equal(found.sample, X)
    np.testing.assert_allclose(found.columns.mean, X.mean(axis=0), rtol=1e-12)
    np.testing.assert_allclose(found.columns.square, X.var(axis=0) * len(X), rtol=1e-10)
    assert (found.tally.rows, found.tally.used, found.tally.missing) == (2000, 1960, {"x1": 40})


@given(at=cuts)
def test_counts_are_of_all_rows_however_they_are_cut(at):
    learned = parts.learn_sample(profiled([table().to_batches()]), PARAMS, 10**6)
    tree, scaling = learned.tree.freeze(), learned.scaling
    whole, _ = parts.count(table().to_batches(), SPEC, tree, scaling)
    pieces = [parts.pack_counts(*parts.count(b, SPEC, tree, scaling)) for b in cut(table(), at)]
    total, tally = parts.unpack_counts(parts.merge_counts(pieces) or b"")
    np.testing.assert_array_equal(total.counts, whole.counts)
    np.testing.assert_array_equal(total.histograms, whole.histograms)
    np.testing.assert_allclose(total.means, whole.means, rtol=1e-12, atol=1e-12)
    assert tally.used == 1960
    assert parts.merge_counts(pieces) == parts.merge_counts(pieces)


@given(at=cuts)
def test_labels_are_those_of_assign_however_the_rows_are_cut(at):
    model = imdh_cli.fit(table(), params=PARAMS)
    want = imdh_cli.assign(table(), model, with_=["margin", "path"])
    found = [
        batch
        for batches in cut(table(), at)
        for batch in parts.label(batches, parts.slim(model), with_=["margin", "path"])
    ]
    got = pa.Table.from_batches(found)
    assert got.column_names == ["x0", "x1", "x2", "word", "cluster", "margin", "path"]
    for name in want.column_names:
        assert got.column(name).combine_chunks().equals(want.column(name).combine_chunks()), name


def test_a_sample_is_uniform_and_of_the_size_asked_for():
    """Each row is as likely as any other: of 200 draws of a tenth, sums over tenths of the rows."""
    pieces = cut(table(), [300, 301, 900])
    rows = len(profiled(pieces).sample)
    drawn = np.zeros(rows)
    whole = {tuple(row): i for i, row in enumerate(profiled(pieces).sample)}
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
    return parts.pack_counts(*parts.count(batches, SPEC, tree, scaling))


def test_a_part_without_rows_changes_nothing():
    whole, empty = table().to_batches(), table().slice(0, 0).to_batches()
    for name, array in fitted([empty, whole, empty]).arrays().items():
        np.testing.assert_array_equal(array, fitted([whole]).arrays()[name], err_msg=name)


def test_no_rows_at_all_are_an_error():
    with pytest.raises(DataError, match="there are no rows"):
        parts.learn_sample(profiled([table().slice(0, 0).to_batches()]), PARAMS, 10)


@pytest.mark.parametrize("damage", [b"", b"nonsense", parts.pack({"x": np.zeros(9)})[:-9]])
def test_a_damaged_piece_is_a_model_error(damage):
    with pytest.raises(ModelError, match="damaged"):
        parts.unpack(damage)


def test_a_slim_model_is_small():
    import pickle

    rng = np.random.default_rng(0)
    X = rng.standard_normal((20_000, 20))
    model = imdh_cli.fit(pa.table({f"x{f}": X[:, f] for f in range(20)}))
    assert len(pickle.dumps(parts.slim(model))) < 200_000
