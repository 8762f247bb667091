"""Options: what they refuse at once, and what the help pages say of them."""

from __future__ import annotations

import pytest

from tests.cli import imdh, one_line_error

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
