"""What DATA add to the page: drift, stability, borders, another model; in a browser, small, and only text."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from imdh_cli.core.columns import ColumnMoments
from imdh_cli.core.partition import Partition
from imdh_cli.core.statistics import Statistics
from imdh_cli.features import Tally
from imdh_cli.report import page
from imdh_cli.report.borders import Borders
from imdh_cli.report.comparison import Overlap
from imdh_cli.report.drifting import measure
from imdh_cli.report.figures import Summary
from imdh_cli.report.stability import assess
from imdh_cli.report.summary import summarise
from tests import chromium
from tests.models import Made, make
from tests.test_report_page import CONTRAST, HOSTILE, NAMES

PARTS = ("drift", "stability", "borders", "comparison")


def with_rows(made: Made, name: str | None) -> Summary:
    """A summary with all that rows can add; one cluster of two has a name."""
    model = made.model
    nodes = [c.node for c in summarise(model).clusters]
    model.metadata["cluster_names"] = {str(node): name for node in nodes[::2]} if name else {}
    summary = summarise(model, name="model.npz")
    leaves = slice(model.n_splits, None)
    moved = Statistics(
        np.roll(model.counts[leaves], 1),
        np.roll(model.means[leaves], 1, axis=0),
        np.roll(model.sums_of_squares[leaves], 1, axis=0),
        np.roll(model.histograms, 9, axis=1),
    )
    moments = ColumnMoments(model.n_features)
    moments.add(model.center + model.scale * (moved.means + 0.1))
    columns = model.spec.source_columns
    tally = Tally(rows=4000, used=3000, skipped=1000, missing=dict.fromkeys(columns, 700))
    rng = np.random.default_rng(0)
    of_leaf = model.cluster_of_leaf
    shuffled = [
        np.where(rng.random(len(made.leaf)) < 0.5, made.leaf, rng.permutation(made.leaf)) for _ in "abc"
    ]
    names = model.cluster_names
    stability = assess(
        Partition(made.leaf, of_leaf, 7),
        [Partition(leaf, of_leaf, 7 + k) for k, leaf in enumerate(shuffled)],
        summary.splits,
        names,
        rows_each=1500,
        seed=0,
    )
    borders = Borders(model.n_clusters)
    other = rng.permutation(made.cluster)
    borders.add(made.cluster, np.where(other == made.cluster, 0, other), rng.random(len(other)))
    overlap = Overlap(model.n_clusters, model.n_clusters)
    overlap.add(made.cluster, other)
    return replace(
        summary,
        drift=measure(summary, moved, moments, tally),
        stability=stability,
        borders=borders.result(),
        comparison=overlap.result(name or "other.npz", names, names),
    )


@pytest.fixture(scope="module")
def browser():
    with chromium.Browser(chromium.needed()) as browser:
        yield browser


@pytest.fixture(scope="module")
def file(tmp_path_factory):
    made = make(depth=5, d=5, k=6, n=3000, levels=("red", "green", "blue"), clusters=7)
    path = tmp_path_factory.mktemp("rows") / "page.html"
    path.write_text(page.build(with_rows(made, "Nordics and the Alps")), encoding="utf-8")
    return path


@pytest.mark.parametrize("width", [320, 390, 1280])
def test_every_part_is_seen_and_nothing_scrolls_sideways(browser, file, width):
    browser.open(file, width=width)
    assert browser.complaints() == []
    assert browser.requests() == []
    assert browser.evaluate("document.documentElement.scrollWidth <= innerWidth")
    for part in PARTS:
        box = f"document.getElementById('{part}').getBoundingClientRect()"
        size = f"(b => Math.min(b.width / 100, b.height / 100))({box})"
        assert browser.evaluate(size) > 1, part
    # A bar for each cluster, also on a phone.
    bars = "[...document.querySelectorAll('#stability .bar')]"
    seen = f"{bars}.filter(e => e.getBoundingClientRect().width > 5).length"
    assert browser.evaluate(seen) == 7


@pytest.mark.parametrize("dark", [False, True])
def test_all_text_stands_out_from_its_ground(browser, file, dark):
    browser.open(file, dark=dark)
    browser.evaluate("document.querySelectorAll('details').forEach(e => e.open = true)")
    assert browser.evaluate(CONTRAST) == []


def test_a_screen_reader_meets_names_for_all_parts(browser, file):
    browser.open(file)
    met = browser.accessible()
    headings = {name for role, name in met if role == "heading"}
    assert {"Drift", "Stability", "Borders", "Compared with Nordics and the Alps"} <= headings
    assert all(name for role, name in met if role in ("link", "region", "image"))
    assert browser.evaluate("[...document.querySelectorAll('th')].every(th => th.scope)")


def test_hostile_names_stay_text(browser, tmp_path):
    made = make(depth=5, d=6, k=6, n=3000, names=NAMES, levels=(HOSTILE, "plain"), clusters=5)
    path = tmp_path / "page.html"
    path.write_text(page.build(with_rows(made, HOSTILE)), encoding="utf-8")
    browser.open(path)
    assert browser.complaints() == []
    assert browser.evaluate("document.querySelectorAll('img, script').length") == 0
    assert path.read_text().count("&lt;img src=x onerror=alert(1)&gt;") > 20


def test_a_page_of_many_columns_and_clusters_stays_small():
    names = [f"a column with a long name, number {j}" for j in range(600)]
    made = make(depth=8, d=600, k=6, n=3000, names=names, clusters=120)
    text = page.build(with_rows(made, "w" * 1000))
    assert len(text.encode()) < page.LIMIT
    for part in PARTS:
        assert f'<section id="{part}"' in text
