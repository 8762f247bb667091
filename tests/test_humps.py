"""Codes and round numbers: how much room their values get, and that they are no clusters."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from sklearn.metrics import adjusted_rand_score

from imdh_cli.core import humps
from imdh_cli.params import FitParams
from imdh_cli.pipeline.prune import reprune
from tests import naive
from tests.benchmarks.in_process import fit_rows, labels, with_clusters

ROWS = 10_000


def rooms(column: np.ndarray, far: float = np.inf) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Values, their rows, the room half way to their neighbours, and the one that they get."""
    values, counts = np.unique(column, return_counts=True)
    gaps = np.diff(values)
    half = np.stack([np.append(gaps[0], gaps), np.append(gaps, gaps[-1])], axis=1) / 2
    return values, counts, half, humps.room_without_spikes(values, counts, half, far)


def codes(rng: np.random.Generator, kinds: int, evenness: float, rows: int = ROWS) -> np.ndarray:
    """(rows,) codes of so many kinds of things, of any frequencies."""
    return rng.choice(kinds, rows, p=rng.dirichlet(np.full(kinds, evenness))).astype(float)


def heaped(rng: np.random.Generator, ages: np.ndarray) -> np.ndarray:
    """Whole ages (n,), of which three in ten are told in tens."""
    return np.where(rng.random(len(ages)) < 0.3, 10 * np.rint(ages / 10), np.rint(ages))


def test_humps_are_counted_as_by_the_twin():
    rng = np.random.default_rng(0)
    for column in (codes(rng, 9, 0.5, 900), np.rint(rng.normal(0, 2, 900)), rng.integers(0, 3, 900) * 7.0):
        values, counts, half, _ = rooms(column)
        left, right = values - half[:, 0], values + half[:, 1]
        edges = np.linspace(left[0], right[-1], 127)
        inside = [
            sum(
                rows * max(0.0, min(high, end) - max(low, start)) / (end - start)
                for rows, start, end in zip(counts, left, right, strict=True)
            )
            for low, high in pairwise(edges)
        ]
        assert humps.humps(values, counts, half)[0] == naive.humps(np.rint([0.0, *inside, 0.0]))


@pytest.mark.parametrize("kinds", [3, 5, 7, 12, 40])
def test_codes_get_the_least_room_that_leaves_one_hump_and_some_more(kinds):
    rng = np.random.default_rng(kinds)
    widened = 0
    for _ in range(6):
        values, counts, half, got = rooms(codes(rng, kinds, 0.4))
        assert (got >= half).all()
        if (got == half).all():
            continue
        widened += 1
        most = (values[-1] - values[0]) / 2
        wide = got.max()
        assert wide <= most
        if wide < most:
            wide /= humps.WIDER
            assert (humps.humps(values, counts, np.maximum(half, wide)) == 1).all()
            less = np.maximum(half, wide - 2 * most / 2**humps.HALVINGS)
            assert (humps.humps(values, counts, less) > 1).any()
    assert widened


def test_no_room_goes_beyond_what_is_far():
    column = np.random.default_rng(0).choice([0.0, 1.0, 2.0, 99.0], ROWS, p=[0.5, 0.05, 0.35, 0.1])
    assert rooms(column, far=4.0)[-1].max() <= 49
    assert rooms(column, far=4.0)[-1][:2].max() <= 4


@pytest.mark.parametrize(
    ("name", "draw"),
    [
        ("whole numbers", lambda rng: rng.integers(0, 72, ROWS)),
        ("counts", lambda rng: rng.poisson(3, ROWS)),
        ("0 and 1", lambda rng: rng.random(ROWS) < 0.03),
        ("two humps", lambda rng: np.rint(rng.choice([20, 60], ROWS) + 6 * rng.standard_normal(ROWS))),
        ("five narrow humps", lambda rng: np.rint(9 * rng.integers(0, 5, ROWS) + rng.standard_normal(ROWS))),
        ("cut at both ends", lambda rng: np.clip(np.rint(rng.normal(8, 12, ROWS)), 0, 16)),
        ("half zeros", lambda rng: np.where(rng.random(ROWS) < 0.5, 0, rng.poisson(20, ROWS))),
    ],
)
def test_other_values_keep_theirs(name, draw):
    *_, half, got = rooms(draw(np.random.default_rng(1)).astype(float))
    np.testing.assert_array_equal(got, half, err_msg=name)


def test_round_numbers_get_room_up_to_the_next_one():
    rng = np.random.default_rng(2)
    *_, got = rooms(heaped(rng, rng.normal(45, 15, ROWS)))
    assert 2.5 < got.max() <= 10


@pytest.mark.parametrize("d", [1, 3])
@pytest.mark.parametrize(
    ("name", "draw"),
    [
        ("ages told in tens", lambda rng, d: heaped(rng, rng.normal(45, 15, ROWS * d))),
        ("codes of 5", lambda rng, d: np.concatenate([codes(rng, 5, 0.5) for _ in range(d)])),
        ("codes of 30", lambda rng, d: np.concatenate([codes(rng, 30, 0.5) for _ in range(d)])),
    ],
)
def test_codes_and_round_numbers_are_one_cluster(name, draw, d):
    X = draw(np.random.default_rng(d), d).reshape(d, ROWS).T
    assert fit_rows(X, FitParams(n_init=1)).pruning.n_clusters == 1, name


def mostly(rng: np.random.Generator, values: list[float], others: np.ndarray, part: float) -> np.ndarray:
    """(rows,) of some values, and a part of others."""
    rows = rng.choice(values, 4000)
    return np.where(rng.random(len(rows)) < part, rng.choice(others, len(rows)), rows)


@pytest.mark.parametrize(
    ("values", "others", "part"),
    [
        ([0, 6, 12, 18], np.arange(24), 0.03),  # hours of weather reports
        ([1, 6, 12, 24], np.arange(1, 25), 0.06),  # packs
        ([0, 1], np.linspace(0, 1, 51), 0.03),  # yes, no, and what a model fills in
        ([30, 60, 90], np.linspace(5, 120, 4001), 0.08),  # minutes
    ],
)
def test_values_that_nearly_all_rows_have_are_no_clusters_where_rare_ones_lie_between(values, others, part):
    """They were as many, and clear."""
    rng = np.random.default_rng(len(others))
    column = mostly(rng, values, others, part)
    _, counts = np.unique(column, return_counts=True)
    assert np.count_nonzero(humps.often_met(counts)) == len(values)
    which = rng.integers(0, 2, len(column))
    for place, clusters in ((0, 1), (9, 2)):
        X = np.column_stack([column, rng.normal(place * which), rng.normal(size=len(column))])
        assert fit_rows(X, FitParams(n_init=1)).model.n_clusters == clusters


@pytest.mark.parametrize(
    "counts",
    [
        [900, 5, 880, 4, 910],  # as few as ratings have: codes anyway
        [900, 900, *[300] * 9],  # no few have nearly all
        [*range(50, 1000, 50), *range(950, 0, -40), 3, 2, 1],  # the rare ones lie outside
        [990, *[1] * 12],  # one value and a rest
        [100, 300, 300, 90, 2, 1, 3, 120, 280, 310, 80],  # two groups of rounded numbers
    ],
)
def test_columns_of_which_no_value_is_left_out(counts):
    assert humps.often_met(np.array(counts)).all()


def test_a_few_places_in_the_plane_are_no_codes():
    rng = np.random.default_rng(0)
    places = rng.standard_normal((5, 2))[rng.integers(0, 5, ROWS)]
    every = np.arange(ROWS)
    assert humps.are_places(places, every)
    assert not humps.are_places(places[:, :1], every)
    assert not humps.are_places(np.column_stack([codes(rng, 5, 2.0) for _ in range(2)]), every)
    assert not humps.are_places(np.column_stack([places, rng.standard_normal(ROWS)]), every)
    assert fit_rows(places, FitParams(n_init=1)).pruning.n_clusters == 5


def test_cuts_along_codes_are_not_called_clear():
    """The share of noise is what it adds to the variance of the projections."""
    rng = np.random.default_rng(0)
    which = rng.integers(0, 2, ROWS)
    kinds = np.where(
        which, rng.choice(4, ROWS, p=[0.6, 0.1, 0.2, 0.1]), rng.choice(4, ROWS, p=[0, 0.1, 0.1, 0.8])
    )
    far = 9.0 * which + rng.standard_normal(ROWS)
    for X, clusters, clarity in (
        (np.column_stack([kinds, far]), 2, "clear"),
        (np.column_stack([kinds] * 3), 4, "close"),
    ):
        made = fit_rows(X.astype(float), FitParams(n_init=1))
        assert (made.pruning.n_clusters, made.pruning.clarity) == (clusters, clarity)
        model = made.model
        noise = np.zeros(model.n_features)
        noise[model.extras["dither_columns"]] = model.extras["dither_squares"]
        expected = (model.directions[0] ** 2 * noise / model.scale**2).sum() / model.projection_sd[0] ** 2
        assert model.noise_shares[0] == pytest.approx(expected)
        again, chosen = reprune(model, model.params.prune)
        assert chosen.clarity == again.metadata["choice"]["clarity"] == clarity


def test_two_ages_told_in_tens_are_two_clusters():
    rng = np.random.default_rng(0)
    which = rng.integers(0, 2, ROWS)
    X = heaped(rng, rng.normal(np.where(which, 70, 25), 5))[:, None]
    model = fit_rows(X, FitParams(n_init=1)).model
    assert model.n_clusters == 2
    assert adjusted_rand_score(which, labels(model, X)) > 0.99


def test_classes_that_only_many_columns_of_codes_tell_together_are_found():
    """Three classes in thirty columns of up to seven codes, whose frequencies differ between them. Cut
    between single codes, they were 18 pieces."""
    rng = np.random.default_rng(3)
    which = rng.integers(0, 3, ROWS)
    columns = []
    for _ in range(30):
        kinds = int(rng.integers(2, 8))
        below = np.cumsum(rng.dirichlet(np.full(kinds, 0.6), 3), axis=1)[which, :-1]
        columns.append((rng.random((ROWS, 1)) > below).sum(axis=1))
    X = np.column_stack(columns).astype(float)
    model = fit_rows(X, FitParams(n_init=1)).model
    assert model.n_clusters <= 6
    assert adjusted_rand_score(which, labels(model, X)) > 0.7
    assert adjusted_rand_score(which, labels(with_clusters(model, 3), X)) > 0.95
