"""Columns of few distinct values: how they are told, and that the gaps between codes are no valleys."""

from __future__ import annotations

from contextlib import closing
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.metrics import adjusted_rand_score

from imdh_cli import features
from imdh_cli.core.columns import CODES, ColumnProfile
from imdh_cli.core.discrete_gaps import without_gaps
from imdh_cli.params import FeatureParams, FitParams, PruneParams, SourceParams
from imdh_cli.pipeline.assign import Labeller
from imdh_cli.pipeline.fit import Fit
from imdh_cli.pipeline.fit import fit as fit_rows
from imdh_cli.pipeline.prune import reprune
from imdh_cli.sources import open_source

# --- which columns are coded ----------------------------------------------------------------------

cells = st.one_of(st.integers(-3, 25).map(float), st.just(float("nan")), st.just(-0.0))


@given(
    values=st.lists(st.tuples(cells, cells), min_size=1, max_size=120),
    cuts=st.lists(st.integers(0, 120), max_size=4),
)
def test_codes_are_the_distinct_values_however_the_rows_come(values, cuts):
    X = np.array(values)
    profile = ColumnProfile(2)
    bounds = [0, *sorted(min(c, len(X)) for c in cuts), len(X)]
    for low, high in pairwise(bounds):
        profile.add(X[low:high])
    for f in range(2):
        distinct = set(X[~np.isnan(X[:, f]), f].tolist())
        if len(distinct) > CODES:
            assert profile.code_counts[f] == CODES + 1
        else:
            assert profile.code_counts[f] == len(distinct)
            assert set(profile.codes[f, : len(distinct)].tolist()) == distinct


def test_steps_are_the_widest_between_neighbouring_codes():
    rng = np.random.default_rng(0)
    n = 20_000
    X = np.column_stack(
        [
            rng.integers(0, 2, n),  # 0 and 1
            rng.choice([1, 2, 3, 9], n),  # with one wide gap
            rng.standard_normal(n),
            np.full(n, 3.0),
            rng.random(n) < 0.001,  # a rare code
        ]
    )
    profile = ColumnProfile(5)
    profile.add(X)
    sd = X.std(axis=0)
    np.testing.assert_allclose(profile.steps(np.ones(5)), [1, 6, 0, 0, 4 * sd[4]], rtol=1e-9)
    np.testing.assert_allclose(profile.steps(np.full(5, 2.0)), [0.5, 3, 0, 0, 2 * sd[4]], rtol=1e-9)


def test_a_profile_goes_on_where_it_was():
    X = np.random.default_rng(0).integers(0, 4, (90, 2)).astype(float)
    whole, part = ColumnProfile(2), ColumnProfile(2)
    whole.add(X)
    part.add(X[:40])
    again = ColumnProfile(2)
    again.restore(part.state())
    again.add(X[40:])
    for name, array in whole.state().items():
        np.testing.assert_array_equal(array, again.state()[name])


def test_a_state_without_codes_holds_no_coded_column():
    profile = ColumnProfile(2)
    profile.add(np.zeros((3, 2)))
    state = {name: a for name, a in profile.state().items() if "code" not in name}
    profile.restore(state)
    profile.add(np.array([[0.0, 1.0], [1.0, 0.0]]))
    assert not profile.steps(np.ones(2)).any()


# --- histograms without the gaps ------------------------------------------------------------------


def ramp(t: np.ndarray) -> np.ndarray:
    """Integral of the share of a bin [0, 1] that lies below t."""
    return np.where(t < 0, 0.0, np.where(t < 1, t * t / 2, t - 0.5))


def spread_over(histogram: np.ndarray, width: float) -> np.ndarray:
    """Every bin's rows, even within it, spread over a box, bin by bin; what is beyond the ends is lost."""
    out = np.zeros(128)
    edges = np.arange(129.0)
    for bin_, rows in enumerate(histogram):
        below = (ramp(edges - bin_ + width / 2) - ramp(edges - bin_ - width / 2)) / width
        out += rows * np.diff(below)
    return out


@given(
    rows=st.lists(st.integers(0, 50), min_size=128, max_size=128),
    steps=st.lists(st.floats(0, 3), min_size=3, max_size=3),
)
def test_each_step_is_a_box_along_the_direction(rows, steps):
    histograms = np.array([rows, np.zeros(128)], dtype=np.int64)
    directions = np.array([[0.6, -0.64, 0.48], [1.0, 0.0, 0.0]])
    got = without_gaps(histograms, directions, np.array([0.5, 1.0]), np.array(steps))
    expected = histograms[0].astype(float)
    widths = [share * step / 0.5 * 16 for share, step in zip((0.6, 0.64, 0.48), steps, strict=True)]
    widths.sort(reverse=True)  # at the ends the order matters
    modes = 64 + np.argmax(histograms[0, 64:]) - np.argmax(histograms[0, :64])
    if modes <= 1.1 * (widths[0] + widths[1]):  # two codes in each of two columns
        widths[:2] = [widths[0] + widths[1]]
    for width in widths:
        if width >= 0.5:
            expected = spread_over(expected, width)
    np.testing.assert_allclose(got[0], expected, atol=1e-9 * max(1, sum(rows)))
    assert got[0].sum() <= sum(rows) * (1 + 1e-12)
    assert not got[1].any()


def test_nothing_changes_where_no_column_is_coded():
    histograms = np.ones((1, 128), dtype=np.int64)
    assert without_gaps(histograms, np.ones((1, 2)), np.ones(1), np.zeros(2)) is histograms


def test_the_histogram_is_that_of_rows_whose_codes_were_spread():
    """Against the rows themselves: one column's codes moved at random within their step."""
    rng = np.random.default_rng(1)
    X = rng.integers(0, 3, (400_000, 7)) * 1.0
    v = np.array([0.7, 0.0, 0.2, 0.2, -0.2, 0.2, 0.1])
    s = (X @ v).std()

    def histogram(X):
        u = (X @ v - (X @ v).mean()) / s
        return np.bincount(np.clip(np.floor(u * 16) + 64, 0, 127).astype(int), minlength=128)

    steps = np.array([1.0, 0, 0, 0, 0, 0, 0])
    moved = X + rng.uniform(-0.5, 0.5, X.shape) * steps
    got = without_gaps(histogram(X)[None], v[None], np.array([s]), steps)[0]
    assert np.abs(np.cumsum(got - histogram(moved))).max() < 0.01 * len(X)


@pytest.mark.parametrize("step", [1e-300, 1e140])
@pytest.mark.parametrize("deviation", [0.0, 1e-300, 1e140])
def test_any_size_gives_numbers(step, deviation):
    h = np.ones((2, 128), dtype=np.int64)
    got = without_gaps(h, np.array([[1.0, 0.0], [0.6, 0.8]]), np.full(2, deviation), np.full(2, step))
    assert np.isfinite(got).all()
    assert (got >= 0).all()


# --- what it is for -------------------------------------------------------------------------------


def fitted(folder: Path, X: np.ndarray, **how) -> Fit:
    path = folder / "t.parquet"
    pq.write_table(pa.table({f"x{j}": column for j, column in enumerate(X.T.copy())}), path)
    with closing(open_source([str(path)], SourceParams())) as source:
        return fit_rows(source, features.select_features(source, FeatureParams()), FitParams(**how))


@pytest.mark.parametrize("d", [2, 8])
@pytest.mark.parametrize("codes", [2, 5])
@pytest.mark.parametrize("passes", [1, "auto"])
def test_independent_coded_columns_are_one_cluster(tmp_path, d, codes, passes):
    X = np.random.default_rng([d, codes]).integers(0, codes, (20_000, d)).astype(float)
    done = fitted(tmp_path, X, passes=passes, recount="no" if passes == 1 else "yes")
    assert (done.pruning.n_clusters, done.pruning.clarity) == (1, "none")


@pytest.mark.parametrize("seed", range(3))
def test_coded_columns_of_noise_do_not_spoil_three_blobs(tmp_path, seed):
    rng = np.random.default_rng(seed)
    which = rng.integers(0, 3, 6000)
    blobs = np.array([[0, 0], [9, 0], [0, 9]])[which] + rng.standard_normal((6000, 2))
    X = np.column_stack([blobs, rng.integers(0, 2, (6000, 3)), rng.integers(1, 6, (6000, 1))])
    done = fitted(tmp_path, X, seed=seed)
    assert done.pruning.n_clusters == 3
    labels = Labeller(done.model, None)(X.astype(float))["cluster"]
    assert adjusted_rand_score(which, labels) > 0.99


def test_groups_that_differ_in_many_coded_columns_are_found(tmp_path):
    rng = np.random.default_rng(0)
    which = rng.integers(0, 2, 6000)
    chance = np.where(which[:, None], 0.9, 0.1)
    X = (rng.random((6000, 20)) < chance).astype(float)
    done = fitted(tmp_path, X)
    assert done.pruning.n_clusters == 2
    labels = Labeller(done.model, None)(X)["cluster"]
    assert adjusted_rand_score(which, labels) > 0.95


def test_pruning_again_needs_no_data_to_know_the_codes(tmp_path):
    X = np.random.default_rng(0).integers(0, 2, (5000, 4)).astype(float)
    model = fitted(tmp_path, X).model
    assert reprune(model, PruneParams())[1].n_clusters == 1
    forgetful = replace(model, extras={n: a for n, a in model.extras.items() if n != "code_steps"})
    assert reprune(forgetful, PruneParams())[1].n_clusters > 1
