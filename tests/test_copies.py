"""Rows that are copies of others: that it is seen, and that clumps of them are no clusters."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats
from sklearn.metrics import adjusted_rand_score

from imdh_cli.core.copies import copies_per_row
from imdh_cli.core.dither import Dither
from imdh_cli.model import load, save
from imdh_cli.params import FitParams
from imdh_cli.pipeline.assign import Labeller
from imdh_cli.report.cautions import cautions, copies
from imdh_cli.report.summary import summarise
from tests.benchmarks.in_process import fit_rows


def drawn(rng: np.random.Generator, X: np.ndarray, rows: int) -> np.ndarray:
    """The rows of X, unlike ones unlike often: which of them, (rows,)."""
    often = rng.pareto(2, len(X)) + 0.2
    return rng.choice(len(X), rows, p=often / often.sum())


def of_columns(X: np.ndarray) -> float:
    return copies_per_row(X, np.arange(len(X)), [np.unique(column, return_counts=True)[1] for column in X.T])


def test_rows_count_for_as_many_as_the_entropy_of_their_shares_tells():
    rng = np.random.default_rng(0)
    X = rng.standard_normal((200, 3))[rng.integers(0, 200, 500)]
    _, counts = np.unique(X, axis=0, return_counts=True)
    rows = 500 / (1 + 500 * of_columns(X))
    assert rows == pytest.approx(np.exp(stats.entropy(counts)), rel=1e-12)
    assert Dither.of(X).copies == of_columns(X)
    even = np.repeat(rng.standard_normal((250, 3)), 4, axis=0)
    assert 1000 / (1 + 1000 * of_columns(even)) == pytest.approx(250, rel=1e-12)


@pytest.mark.parametrize(
    "column",
    [
        lambda rng: rng.standard_normal(5000),
        lambda rng: rng.integers(1, 6, 5000),
        lambda rng: rng.integers(0, 300, 5000),
        lambda rng: rng.choice(rng.standard_normal(20), 5000),
    ],
    ids=["all unlike", "ratings", "whole numbers", "a handful of values"],
)
@pytest.mark.parametrize("d", [1, 2, 3])
def test_rows_that_are_no_copies(column, d):
    rng = np.random.default_rng(d)
    assert of_columns(np.column_stack([column(rng) for _ in range(d)]).astype(float)) == 0.0


def test_a_column_that_follows_from_another_makes_no_copies():
    rng = np.random.default_rng(0)
    ages = rng.integers(18, 900, 5000).astype(float)
    assert of_columns(np.column_stack([ages, 2000 - ages, rng.standard_normal(5000)])) == 0.0


def test_copies_of_one_cluster_are_one_and_of_three_three(tmp_path):
    """The model keeps it for later prunings, and the report says it."""
    rng = np.random.default_rng(0)
    which = rng.integers(0, 3, 1500)
    for centers, clusters in ((np.zeros((3, 3)), 1), (7.0 * np.eye(3), 3)):
        X = centers[which] + rng.standard_normal((1500, 3))
        rows = drawn(rng, X, 8000)
        model = fit_rows(X[rows], FitParams(n_init=1)).model
        path = tmp_path / f"{clusters}.npz"
        save(model, path)
        again = load(path)
        assert again.copies == model.copies > 0
        assert again.pruned(model.params.prune).n_clusters == model.metadata["choice"]["clusters"] == clusters
        assert adjusted_rand_score(which[rows], Labeller(again, None)(X[rows])["cluster"]) >= (clusters == 3)
        assert "count for about" in copies(again)
        assert "copies" in [caution.code for caution in cautions(summarise(again))]
