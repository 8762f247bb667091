"""Options: what they refuse at once, and what the help pages say of them."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli import blobs, imdh, one_line_error, write

REALS = (
    "--alpha",
    "--penalty",
    "--bandwidth",
    "--bandwidth-decay",
    "--learning-decay",
    "--rate",
    "--clamp",
    "--checkpoint",
)
WHOLES = ("--seed", "--min-size", "--max-clusters", "--passes", "-k", "--buffer-rows", "--max-rows")


@pytest.fixture(scope="module")
def table(tmp_path_factory) -> Path:
    """Three clusters of about 300 rows."""
    return write(tmp_path_factory.mktemp("options") / "t.csv", blobs(900)[0])


@pytest.fixture(scope="module")
def model(table) -> Path:
    """Of that table."""
    imdh("fit", table, "-o", table.with_suffix(".npz"))
    return table.with_suffix(".npz")


@pytest.mark.parametrize("value", ["nan", "inf", "1e999"])
@pytest.mark.parametrize("option", REALS)
def test_a_number_that_is_not_finite_is_refused_by_the_option_s_name(option, value):
    said = one_line_error(imdh("fit", "nothing.csv", option, value, status=2).err)
    assert option in said
    assert value in said or "inf" in said


@pytest.mark.parametrize("option", WHOLES)
def test_a_whole_number_beyond_64_bits_is_refused_by_the_option_s_name(option):
    said = one_line_error(imdh("fit", "nothing.csv", option, 2**63, status=2).err)
    assert option in said


def test_more_clusters_than_are_allowed_is_a_contradiction():
    said = one_line_error(imdh("fit", "nothing.csv", "-k", 5, "--max-clusters", 3, status=2).err)
    assert said == "-k 5 is more than --max-clusters 3 allows"


def test_valleys_are_not_a_number_that_was_asked_for(model, tmp_path):
    ran = imdh("prune", model, "-k", "valleys", "-o", tmp_path / "v.npz")
    assert ran.err.startswith("3 clusters: every significant valley is used; wrote")
    assert "How many  3 clusters, by significant valleys" in imdh("report", tmp_path / "v.npz").text
    ran = imdh("prune", model, "-k", "valleys", "--max-clusters", 2, "-o", tmp_path / "two.npz")
    assert "2 clusters: no more are allowed" in ran.err


def test_the_least_size_is_named_where_it_is_the_cause(model, tmp_path):
    ran = imdh("prune", model, "--min-size", 550, "-o", tmp_path / "one.npz")
    assert "1 cluster: there are valleys in the density, but --min-size allows no cut" in ran.err
    assert "(--min-size), so all rows are one cluster" in imdh("report", tmp_path / "one.npz").text
    words = ("-k", 2, "--min-size", 550, "-o", tmp_path / "two.npz")
    said = one_line_error(imdh("prune", model, *words, status=2).err)
    assert said == "2 clusters were asked for, but --min-size 550 leaves room for only 1"
