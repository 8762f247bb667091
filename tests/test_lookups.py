"""Columns that are looked up from some thing: they are seen, and chance among things is no cluster."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from sklearn.metrics import adjusted_rand_score

from imdh_cli.core.dither import Dither
from imdh_cli.core.lookups import Lookups, may_be_looked_up
from imdh_cli.model import load, save
from imdh_cli.params import FitParams
from imdh_cli.report.cautions import cautions
from imdh_cli.report.summary import summarise
from tests import naive
from tests.benchmarks import in_process

ROWS = 6000


def random(*seed: int) -> np.random.Generator:
    return np.random.default_rng(seed)


@pytest.mark.parametrize(
    ("column", "may"),
    [
        (lambda rng: rng.standard_normal(60)[rng.integers(0, 60, ROWS)], True),
        (lambda rng: rng.lognormal(7, 0.5, 40).round()[rng.integers(0, 40, ROWS)], True),
        (lambda rng: rng.standard_normal(15)[rng.integers(0, 15, ROWS)], False),
        (lambda rng: rng.standard_normal(2000)[rng.integers(0, 2000, ROWS)], False),
        (lambda rng: rng.normal(50, 15, ROWS).round(), False),
        (lambda rng: rng.normal(1.7, 0.1, ROWS).round(2), False),
        (lambda rng: rng.poisson(rng.gamma(2, 10, ROWS)), False),
        (lambda rng: rng.lognormal(3, 1, ROWS).round(), False),
        (lambda rng: 10 * rng.lognormal(3, 1, ROWS).round(), False),
        (lambda rng: rng.integers(0, 500, ROWS) / 7, False),
        (lambda rng: np.log1p(rng.poisson(30, ROWS)), False),
        (lambda rng: 1.0 / (5.0 + rng.poisson(30, ROWS)), False),
        (lambda rng: np.sqrt(rng.lognormal(3, 1, ROWS).round()), False),
    ],
)
def test_a_thing_has_some_values_at_uneven_distances(column: Callable, may: bool):
    x = column(random(1)).astype(float)
    assert may_be_looked_up(np.unique(x), ROWS) == may


def test_columns_of_one_thing_go_together_and_its_number_is_that_of_the_entropy():
    rng = random(2)
    shop, maker = rng.choice(50, ROWS, p=rng.dirichlet(np.ones(50))), rng.integers(0, 30, ROWS)
    region = rng.integers(1, 6, 50)
    X = np.column_stack(
        [
            rng.standard_normal(ROWS),
            rng.lognormal(7, 0.5, 50)[shop],
            rng.permutation(50)[shop],
            rng.standard_normal(30)[maker],
            region[shop],
            rng.permutation(30)[maker],
            rng.integers(0, 5, ROWS),
        ]
    )
    found = Dither.of(X).lookups
    assert found.columns.tolist() == [1, 2, 3, 4, 5]
    assert len(set(found.groups[[0, 1, 3]])) == 1
    assert found.groups[2] == found.groups[4] != found.groups[0]
    assert found.things[0] == pytest.approx(naive.effective_number(np.bincount(shop)))
    assert found.things[2] == pytest.approx(naive.effective_number(np.bincount(maker)))


def test_what_a_cut_counts_for_is_that_of_the_equations():
    kinds = {0: (0, 60.0), 2: (1, 30.0), 3: (0, 60.0)}
    found = Lookups(np.array([0, 2, 3]), np.array([0, 1, 0]), np.array([60.0, 30.0, 60.0]))
    directions = random(3).standard_normal((300, 5)) * random(4).choice([0.0, 0.2, 1.0], (300, 5))
    directions /= np.maximum(np.linalg.norm(directions, axis=1, keepdims=True), 1e-9)
    told = [naive.copies_along(v, kinds) for v in directions]
    assert len(set(told)) == 4
    np.testing.assert_allclose(found.copies_along(directions), told)


def test_missing_cells_are_a_value_of_their_own_and_hundreds_of_columns_are_not_looked_at():
    rng = random(5)
    shop = rng.integers(0, 40, ROWS)
    of_shop = rng.standard_normal((40, 2))
    of_shop[3] = np.nan
    X = np.column_stack([of_shop[shop], rng.standard_normal(ROWS)])
    assert Dither.of(X).lookups.columns.tolist() == [0, 1]
    wide = np.column_stack([X, rng.standard_normal((ROWS, 300))])
    assert not Dither.of(wide).lookups.any


@pytest.mark.parametrize("seed", range(2))
def test_things_without_groups_are_one_cluster(seed):
    rng = random(6, seed)
    patient, shop = rng.integers(0, 65, 2000), rng.integers(0, 40, 6000)
    for X in (
        np.column_stack([rng.standard_normal((65, 4))[patient], rng.exponential(size=(2000, 2))]),
        np.column_stack([rng.lognormal(8, 0.5, (40, 2)).round()[shop], rng.gamma(2, 30, 6000)]),
    ):
        assert in_process.fit_rows(X, FitParams(seed=seed)).model.n_clusters == 1


def test_a_price_list_is_no_thing_and_its_groups_are_found():
    rng = random(8)
    which, prices = rng.integers(0, 2, 5000), np.geomspace(1, 250, 30) * rng.uniform(0.97, 1.03, 30)
    amount = np.exp(np.where(which, 4.3, 2.0) + 0.33 * rng.standard_normal(5000))
    price = prices[np.abs(np.log(amount)[:, None] - np.log(prices)).argmin(axis=1)]
    X = np.column_stack([price, rng.standard_normal(5000)])
    assert not Dither.of(X).lookups.any
    labels = in_process.labels(in_process.fit_rows(X, FitParams()).model, X)
    assert adjusted_rand_score(which, labels) > 0.95


def test_groups_beside_things_and_groups_of_things_are_found(tmp_path):
    rng = random(7)
    shop, which = rng.integers(0, 80, 8000), rng.integers(0, 3, 8000)
    beside = np.column_stack(
        [rng.standard_normal((80, 2))[shop], rng.standard_normal((8000, 2)) + 7.0 * np.eye(3)[which][:, :2]]
    )
    model = in_process.fit_rows(beside, FitParams()).model
    assert adjusted_rand_score(which, in_process.labels(model, beside)) > 0.99
    kind = rng.integers(0, 2, 80)
    of_things = np.column_stack(
        [(rng.standard_normal((80, 2)) + 9.0 * kind[:, None])[shop], rng.standard_normal((8000, 2))]
    )
    model = in_process.fit_rows(of_things, FitParams()).model
    assert adjusted_rand_score(kind[shop], in_process.labels(model, of_things)) == 1.0
    save(model, tmp_path / "m.npz")
    again = load(tmp_path / "m.npz")
    assert again.pruned(model.params.prune).n_clusters == 2
    said = [caution.message for caution in cautions(summarise(again)) if caution.code == "lookups"]
    assert said[0].startswith('"x0" and "x1" have the values of about 80 things')
