"""Rows near the cuts between clusters: of the model by its histograms, of DATA row by row."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest

from tests.cli import arrays, blobs, descend, imdh, second_choices, write
from tests.test_report_page import Parsed
from tests.test_report_summary import SCHEMA, check


class World(NamedTuple):
    X: np.ndarray
    data: Path
    model: Path


@pytest.fixture(scope="module")
def world(tmp_path_factory) -> World:
    folder = tmp_path_factory.mktemp("borders")
    X, which = blobs(1500, k=4, distance=3.5)
    data = write(folder / "t.parquet", X, which=which)
    imdh("fit", data, "-x", "which", "-k", 6, "--depth", 5, "-o", folder / "m.npz")
    return World(X, data, folder / "m.npz")


@pytest.fixture(scope="module")
def report(world) -> dict:
    return imdh("report", world.model, world.data, "--json").json


def test_rows_near_the_cut_between_two_clusters_are_counted_one_by_one(world, report):
    label = descend(world.model, world.X).label
    near: Counter[tuple[int, int]] = Counter()
    for own, (other, gap) in zip(label.tolist(), second_choices(world.model, world.X), strict=True):
        if other is not None and gap < 0.1:
            near[min(own, other), max(own, other)] += 1
    sizes = np.bincount(label)
    assert {(b["first"], b["second"]): b["rows"] for b in report["borders"]} == near
    assert len(near) > 4
    for b in report["borders"]:
        assert b["share"] == b["rows"] / (sizes[b["first"]] + sizes[b["second"]])
    shares = [b["share"] for b in report["borders"]]
    assert shares == sorted(shares, reverse=True)
    check(report, SCHEMA)


def test_rows_near_each_cut_are_counted_by_the_bins_around_it(world):
    """0.1 sd are 1.6 bins on either side: the count lies between that of one bin and that of two."""
    m, way = arrays(world.model), descend(world.model, world.X)
    splits = imdh("report", world.model, "--json").json["splits"]
    assert len(splits) == 5
    for split in splits:
        i = split["node"] - 1
        h = m["histograms"][i]
        assert split["near"] == pytest.approx(h[63] + h[64] + 0.6 * (h[62] + h[65]))
        level = split["node"].bit_length() - 1
        here = way.path[:, level] == split["node"]
        u = np.abs(way.projection[here, level] - m["thresholds"][i]) / m["projection_sd"][i]
        assert (u < 1 / 16).sum() <= split["near"] <= (u < 2 / 16).sum()


def test_the_report_lists_the_most_crowded_borders_first(world, report):
    text = imdh("report", world.model, world.data).text
    part = text[text.index("Borders") :]
    assert "by the clusters on both sides" in part
    first = report["borders"][0]
    assert f"{first['first']} and {first['second']}" in part.splitlines()[2]
    assert f"{first['rows']:,}" in part.splitlines()[2]
    alone = imdh("report", world.model).text
    assert "about, by the model's histograms" in alone[alone.index("Borders") :]


def test_clusters_far_apart_have_no_border(tmp_path):
    data = write(tmp_path / "t.csv", blobs(1000, k=2, distance=20.0)[0])
    imdh("fit", data, "-o", tmp_path / "m.npz")
    for words in ([], [data]):
        assert (
            "Borders  no row lies within 0.1 sd of a cut" in imdh("report", tmp_path / "m.npz", *words).text
        )
    assert imdh("report", tmp_path / "m.npz", data, "--json").json["borders"] == []


def test_one_cluster_has_no_borders(world, tmp_path):
    imdh("prune", world.model, "-k", 1, "-o", tmp_path / "one.npz")
    ran = imdh("report", tmp_path / "one.npz", world.data, "--json").json
    assert ran["borders"] == []
    assert "Borders" not in imdh("report", tmp_path / "one.npz", world.data).text


def test_the_page_holds_the_borders(world, report):
    page = imdh("report", world.model, world.data, "--html", "-").text
    part = Parsed(page[page.index('<section id="borders"') : page.index('<section id="profiles"')])
    values = [float(e[1]["value"]) for e in part.all("data")]
    assert values == [value for b in report["borders"] for value in (b["rows"], b["share"])]
    assert 'id="borders"' not in imdh("report", world.model, "--html", "-").text


def test_borders_are_counted_where_rows_are_labelled_and_not_for_drift_alone(world, report):
    with_classes = imdh("report", world.model, world.data, "--truth", "which", "--drift", "--json").json
    assert with_classes["borders"] == report["borders"]
    assert imdh("report", world.model, world.data, "--drift", "--json").json["borders"] is None
