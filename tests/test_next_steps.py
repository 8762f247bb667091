"""What to do next: said where it applies, with figures of the rows, and nowhere else."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest

from imdh_cli.model import load
from imdh_cli.report.choice import Alternative, choice_of, own_choice
from imdh_cli.report.next_steps import next_steps
from tests.cli import ROOT, arrays, blobs, descend, imdh, write


def steps(path: Path, *words: object) -> tuple[list[str], Path]:
    """Those of a report on a model fitted to a table; the fit says the same."""
    model = path.with_suffix(".npz")
    said = imdh("fit", path, "-o", model, *words).err
    found = imdh("report", model, "--json").json["next_steps"]
    assert re.findall("^next: (.*)$", said, re.MULTILINE) == [
        step.replace(model.name, str(model)) for step in found
    ]
    return found, model


def test_a_clear_choice_needs_no_advice(tmp_path):
    found, model = steps(write(tmp_path / "t.parquet", blobs(2000)[0]))
    assert found == []
    assert "Next" not in imdh("report", model).text
    assert "Next" not in imdh("report", model, "--html", "-").text


def test_a_close_choice_names_the_two_numbers_to_compare(tmp_path):
    cities = pq.read_table(ROOT / "sample_data" / "cities.parquet", columns=["latitude", "longitude"])
    pq.write_table(cities, tmp_path / "t.parquet")
    found, model = steps(tmp_path / "t.parquet")
    choice = imdh("report", model, "--json").json["choice"]
    assert choice["clarity"] == "close"
    assert found[0].startswith(
        f"compare {choice['clusters']} with {choice['runner_up']} clusters (imdh prune t.npz"
    )
    text = " ".join(imdh("report", model).text.split())
    assert f"Next: {found[0]}." in text
    assert f"<p>Next: {found[0]}.</p>" in imdh("report", model, "--html", "-").text


def test_one_cluster_to_compare_with_is_no_plural(tmp_path):
    _, model = steps(write(tmp_path / "t.parquet", blobs(2000)[0]))
    found = load(model)
    close = {"clarity": "close", "alternatives": (Alternative(1, "a stricter test"),)}
    choice = replace(choice_of(found, own_choice(found)), **close)
    assert next_steps(found, choice, "m.npz")[0].startswith(
        "compare 3 with 1 cluster (imdh prune m.npz -k 1 -o"
    )


def test_without_a_valley_groups_of_like_spread_are_offered_and_are_so(tmp_path):
    X = np.random.default_rng(0).standard_normal((20_000, 10))
    found, model = steps(write(tmp_path / "t.parquet", X))
    assert found == [
        "one cluster does not mean no use for groups: "
        "imdh prune t.npz -k N --weight ss makes N of like spread, wherever the rows are"
    ]
    spread = {}
    for weight in ("ss", "valley"):
        imdh("prune", model, "-k", 8, "--weight", weight, "-o", tmp_path / "k.npz", "-f")
        sizes = np.bincount(descend(tmp_path / "k.npz", X).label)[1:]
        spread[weight] = sizes.max() / sizes.min()
    assert max(spread.values()) < 5


def test_equal_rows_are_told_to_be_and_nothing_is_to_be_done(tmp_path):
    found, model = steps(write(tmp_path / "t.parquet", np.ones((500, 2))))
    assert found == []
    assert "they are equal" in imdh("report", model).text


def test_one_giant_cluster_names_the_column_by_which_the_rest_stands_apart(tmp_path):
    X = np.random.default_rng(0).standard_normal((3000, 3))
    X[:60, 1] += 40
    found, _ = steps(write(tmp_path / "t.parquet", X, ["age", "amount", "height"]), "-k", 2)
    assert len(found) == 1
    assert 'has 98.0 % of the rows, and the others stand apart most by "amount"' in found[0]


@pytest.mark.parametrize("noise", [2, 30])
def test_few_of_many_columns_that_carry_the_cuts_are_named(tmp_path, noise):
    X, _ = blobs(4000, k=3, d=2, distance=14.0)
    X = np.hstack([X, np.random.default_rng(1).standard_normal((4000, noise))])
    found, model = steps(write(tmp_path / "t.parquet", X))
    if noise == 2:
        assert found == []
        return
    m = arrays(model)
    label = m["cluster_of_leaf"]
    cuts = [i for i in range(1, 256) if len({*label[_leaves(i)]}) > 1]
    weights = (m["counts"][np.array(cuts) - 1][:, None] * m["directions"][np.array(cuts) - 1] ** 2).sum(
        axis=0
    )
    weights /= weights.sum()
    few = int(found[0].split()[0])
    assert found[0].split()[1:5] == ["of", "32", "columns", "carries" if few == 1 else "carry"]
    assert f" {100 * np.sort(weights)[-few:].sum():.1f} % of the cuts (" in found[0]
    assert few <= 2
    assert {f'"x{f + 1}"' in found[0] for f in np.argsort(weights)[-few:]} == {True}
    assert set(np.argsort(weights)[-few:]) <= {0, 1}


def _leaves(node: int) -> slice:
    below = 9 - node.bit_length()
    return slice((node << below) - 256, ((node + 1) << below) - 256)
