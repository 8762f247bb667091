"""The page: one file, only text where text belongs, the right figures, small, usable by everyone."""

from __future__ import annotations

import json
import re
from collections import Counter
from dataclasses import replace
from html.parser import HTMLParser

import numpy as np
import pytest

from imdh_cli.report import page
from imdh_cli.report.agreement import Truth
from imdh_cli.report.profiles import cluster_order, feature_order
from imdh_cli.report.scatter import Sampler, Scatter, picture
from imdh_cli.report.summary import summarise
from imdh_cli.report.words import percent
from tests import chromium
from tests.models import make

HOSTILE = "</script><img src=x onerror=alert(1)>"
NAMES = [HOSTILE, '" onmouseover="alert(1)', "{{ 7*7 }}", "&lt;b&gt;", "\x1b[31m\x00", "x" * 5000]
VOID = {"meta", "link", "img", "br", "hr", "input", "image"}
OPTIONAL_END = {"th", "td", "tr"}  # HTML lets their ends be left out


class Parsed(HTMLParser):
    """Elements with their attributes and text, in order."""

    def __init__(self, text):
        super().__init__(convert_charrefs=True)
        self.elements = []  # (tag, attributes, text below it)
        self._open = []
        self.feed(text)
        self.close()

    def handle_starttag(self, tag, attrs):
        element = [tag, dict(attrs), ""]
        self.elements.append(element)
        while self._open and tag in OPTIONAL_END and self._open[-1][0] in ("th", "td"):
            self._open.pop()
        if tag not in VOID:
            self._open.append(element)

    def handle_startendtag(self, tag, attrs):
        self.elements.append([tag, dict(attrs), ""])

    def handle_endtag(self, tag):
        while self._open and self._open[-1][0] in OPTIONAL_END and self._open[-1][0] != tag:
            self._open.pop()
        assert self._open[-1][0] == tag, f"</{tag}> ends {self._open[-1]}"
        self._open.pop()

    def handle_data(self, data):
        for element in self._open:
            element[2] += data

    def all(self, tag, **attributes):
        return [
            e
            for e in self.elements
            if e[0] == tag and all(e[1].get(k.rstrip("_")) == v for k, v in attributes.items())
        ]


def sampled(made, summary):
    sampler = Sampler(summary)
    sampler.add(made.X, made.leaf)
    return sampler.scatters()


@pytest.fixture(scope="module")
def made():
    return make(depth=5, d=5, k=6, n=3000, levels=("red", "green", "blue"), clusters=7)


@pytest.fixture(scope="module")
def hostile():
    return make(depth=5, d=6, k=6, n=3000, names=NAMES, levels=(HOSTILE, "plain"))


@pytest.fixture(scope="module")
def summary(made):
    truth = Truth("planted", 7)
    truth.add(made.cluster, made.planted)
    return summarise(made.model, name="model.npz").with_truth(truth.result())


@pytest.fixture(scope="module")
def text(made, summary):
    return page.build(summary, sampled(made, summary), command="imdh report model.npz --html page.html")


def test_nothing_is_loaded_and_nothing_runs(text):
    parsed = Parsed(text)
    assert {"script", "iframe", "object", "embed", "form", "base"} & {e[0] for e in parsed.elements} == set()
    for tag, attributes, _ in parsed.elements:
        assert not any(name.startswith("on") for name in attributes), tag
        for name in ("href", "src", "srcset", "action", "xlink:href"):
            assert (attributes.get(name) or "#").startswith(("#", "data:")), (tag, attributes)
    assert "url(" not in text
    assert "@import" not in text
    policy = parsed.all("meta", **{"http-equiv": "Content-Security-Policy"})[0][1]["content"]
    assert policy.startswith("default-src 'none'")


def test_profiles_hold_the_figures_in_full(summary, text):
    """Mean, sd, mean of all rows and effect of every line of every cluster, to the last digit."""
    report = json.loads(json.dumps(summary.to_dict()))
    everyone = {f["name"]: f["mean"] for f in report["data"]["features"]}
    parts = re.split(r'<details class="cluster', text)[1:]
    assert len(parts) == 7
    for part, cluster in zip(parts, report["clusters"], strict=True):
        lines = Parsed(part[part.index("<tbody>") : part.index("</tbody>") + 8])
        names = [e[2] for e in lines.all("th")]
        values = [float(e[1]["value"]) for e in lines.all("data")]
        profile = {p["feature"]: p for p in cluster["profile"]}
        expected = [
            value
            for name in names
            for value in (profile[name]["mean"], profile[name]["sd"], everyone[name], profile[name]["z"])
        ]
        assert values == expected
        assert len(names) == 8


def test_the_shown_figures_are_the_full_ones_rounded(summary, text):
    """What is read in the overview is what stands in its value."""
    overview = text[text.index('id="overview"') : text.index('id="tree"')]
    parsed = Parsed(f"<p {overview[: overview.rindex('</section>')]}")
    values = [(e[1]["value"], e[2]) for e in parsed.all("data")]
    assert values == [
        pair
        for c in summary.clusters
        for pair in (
            (str(c.rows), f"{c.rows:,}"),
            (str(c.share), percent(c.share).replace(" ", "\u00a0")),
        )
    ]


def test_splits_hold_depth_and_weights_in_full(summary, text):
    for node, split in summary.splits.items():
        part = text[text.index(f'<article id="node-{node}"') :]
        card = Parsed(part[: part.index("</article>") + 10])
        values = [float(e[1]["value"]) for e in card.all("data")]
        order = np.argsort(-split.weights, kind="stable")[:5]
        assert values == [split.depth, *split.weights[order].tolist()]


def test_heat_map_has_every_effect(summary, text):
    table = text[text.index('<table class="heat') :]
    table = Parsed(table[: table.index("</table>") + 8])
    order = [int(e[2]) for e in table.all("a")]
    assert sorted(order) == list(range(1, 8))
    names = [e[2] for e in table.all("th", scope="row")]
    assert sorted(names) == sorted(f.name for f in summary.features)
    cells = [e for e in table.all("td") if "class" in e[1] and len(e[1]["class"]) <= 2]
    index = {f.name: j for j, f in enumerate(summary.features)}
    expected = [summary.clusters[k - 1].z[index[name]] for name in names for k in order]
    shown = [float(e[2].replace("\u2212", "-")) for e in cells]
    np.testing.assert_allclose(shown, expected, atol=0.0500001)


def test_truth_is_shown(summary, text):
    part = text[text.index('id="truth"') : text.index('id="each"')]
    values = [e[1]["value"] for e in Parsed(f"<p {part[: part.rindex('</section>')]}").all("data")]
    t = summary.truth
    assert values == [
        str(v) for v in (t.ari, t.nmi_arithmetic, t.nmi_geometric, t.homogeneity, t.completeness)
    ]


def test_every_link_leads_to_a_part_of_the_page(text, hostile):
    for html in (text, page.build(summarise(hostile.model))):
        parsed = Parsed(html)
        ids = Counter(e[1]["id"] for e in parsed.elements if "id" in e[1])
        assert max(ids.values()) == 1
        links = {e[1]["href"][1:] for e in parsed.all("a")}
        assert links <= set(ids)


def test_hostile_names_are_only_text(hostile):
    truth = Truth(HOSTILE, hostile.model.n_clusters)
    truth.add(hostile.cluster, [f"{HOSTILE}{p}" for p in hostile.planted])
    html = page.build(summarise(hostile.model, name=HOSTILE).with_truth(truth.result()), command=HOSTILE)
    parsed = Parsed(html)
    assert parsed.all("img") == []
    assert parsed.all("script") == []
    assert "<img" not in html
    assert "49" not in [e[2].strip() for e in parsed.all("th")]
    named = {e[2] for e in parsed.all("th", scope="row")}
    assert {HOSTILE, '" onmouseover="alert(1)', "{{ 7*7 }}", "&lt;b&gt;", "\\x1b[31m\\x00"} <= named
    assert "\x1b" not in html
    assert "\x00" not in html


def test_text_of_the_metadata_is_only_text(made):
    """Every text of the metadata becomes a tag; no tag comes out."""

    def poisoned(value):
        if isinstance(value, str):
            return f"<x-tag>{value}"
        if isinstance(value, list):
            return [poisoned(inner) for inner in value]
        if isinstance(value, dict):
            return {f"<x-tag>{key}": poisoned(inner) for key, inner in value.items()}
        return value

    keep = {"program", "parameters", "features", "choice", "rows", "statistics", "passes", "preset"}
    metadata = {
        "left_out_columns": [["a", "text"]],
        "missing": {"x1": 3},
        "infinite": {"x1": 3},
        "unseen": {"kind": 3},
        "notes": ["early and late rows differ in x1"],
    }
    metadata = made.model.metadata | metadata
    metadata = {k: v if k in keep else poisoned(v) for k, v in metadata.items()}
    html = page.build(summarise(replace(made.model, metadata=metadata)))
    assert "x-tag" in html
    assert Parsed(html).all("x-tag") == []


@pytest.mark.parametrize("clusters", [128, pytest.param(800, marks=pytest.mark.long)])
def test_a_deep_tree_makes_a_small_page(clusters):
    model = make(depth=14, d=6, k=30, n=3000, clusters=clusters).model
    html = page.build(summarise(model))
    assert len(html.encode()) < page.LIMIT
    parsed = Parsed(html)
    assert len(parsed.all("details", class_="cluster card")) == 128
    assert ("smaller ones are in" in html) == (clusters > 128)


@pytest.mark.long
def test_the_worst_of_names_still_makes_a_small_page():
    """Long names of signs that escaping makes longer, many features, clusters and samples."""
    names = [("&\"<'\U0001f600\x01" * 20) + str(i) for i in range(70)]
    made = make(depth=8, d=70, k=20, n=2000, clusters=128, names=names)
    summary = summarise(made.model)
    html = page.build(summary, sampled(made, summary))
    assert len(html.encode()) < page.LIMIT
    assert "others are in <code>imdh report --csv</code>" in html


def test_one_cluster_makes_a_page_without_a_tree():
    html = page.build(summarise(make(depth=5, d=4, k=1).model))
    assert "No split is kept" in html
    assert "No clear number of clusters." in html
    assert 'id="profiles"' not in html


def test_small_clusters_are_not_described(made):
    html = page.build(summarise(made.model, min_size=300))
    small = [k for k in range(1, 8) if np.sum(made.cluster == k) < 300]
    assert small
    for k in small:
        part = html[html.index(f'id="cluster-{k}"') :]
        assert "Fewer than 300 rows: not described." in part[: part.index("</details>")]
        assert "<data" not in part[: part.index("</details>")]


def test_the_page_says_when_it_shows_rows(made, summary, text):
    said = "This page shows individual rows"
    assert said in text
    assert said not in page.build(summary)
    assert text.count("<image ") == len(summary.splits)


def test_the_same_summary_makes_the_same_page(made, summary, text):
    again = page.build(summary, sampled(made, summary), command="imdh report model.npz --html page.html")
    assert again == text


def test_the_command_to_learn_it_again_names_what_was_not_default(made):
    html = page.build(summarise(made.model))
    command = Parsed(html).all("pre")[0][2]
    assert command == "imdh fit planted.csv --depth 5 -k 7 --categorical onehot"


# --- order of the heat map --------------------------------------------------------------------------


def test_clusters_are_ordered_without_crossing_the_tree(summary):
    order = cluster_order(summary)
    for split in summary.splits.values():
        for side in (split.left, split.right):
            places = sorted(order.index(k) for k in range(side.first, side.last + 1))
            assert places == list(range(places[0], places[0] + len(places)))


def test_alike_features_stand_together():
    """Two mirrored groups of four features, shuffled: each group comes out in one run."""
    rng = np.random.default_rng(0)
    base = rng.standard_normal((2, 9))
    z = np.array([base[j % 2] + 0.05 * rng.standard_normal(9) for j in range(8)]).T
    order = [j % 2 for j in feature_order(z, np.arange(8))]
    assert order in ([0] * 4 + [1] * 4, [1] * 4 + [0] * 4)


# --- samples ----------------------------------------------------------------------------------------


def test_a_sample_does_not_depend_on_the_chunks(made, summary):
    whole = sampled(made, summary)
    fragments = Sampler(summary)
    for start in range(0, len(made.X), 17):
        fragments.add(made.X[start : start + 17], made.leaf[start : start + 17])
    for node, scatter in fragments.scatters().items():
        np.testing.assert_array_equal(np.sort(scatter.across), np.sort(whole[node].across))
        assert scatter.rows == whole[node].rows == made.model.counts[node - 1]


def test_sampled_rows_are_those_of_the_split(made, summary):
    """Across: the projections of rows at the node; up: orthogonal to the direction, of most variance."""
    model = made.model
    for node, scatter in sampled(made, summary).items():
        below = model.depth + 1 - node.bit_length()
        rows = made.X[(made.leaf >> below) == node]
        Z = (rows - model.center) / model.scale
        v = model.directions[node - 1]
        p = (Z @ v - model.thresholds[node - 1]) / model.projection_sd[node - 1]
        assert set(np.round(scatter.across, 9)) <= set(np.round(p, 9))
        assert len(scatter.across) == min(len(rows), 400)
        assert abs(scatter.loadings @ v) < 1e-9
        assert scatter.loadings @ scatter.loadings == pytest.approx(1.0)


def test_a_sample_is_bounded_whatever_the_number_of_rows(summary, made):
    sampler = Sampler(summary)
    for _ in range(5):
        sampler.add(np.tile(made.X, (4, 1)), np.tile(made.leaf, 4))
    scatters = sampler.scatters()
    assert max(len(s.across) for s in scatters.values()) == 400
    assert scatters[1].rows == 20 * len(made.X)


def test_a_sample_is_uniform(summary, made):
    """Of 3,000 rows the 400 kept are spread over early and late ones alike."""
    positions = np.arange(len(made.X))
    kept = []
    for seed in range(20):
        sampler = Sampler(summary, seed=seed)
        sampler.add(made.X, made.leaf)
        rows = sampler._kept[1][1]
        order = {tuple(x): i for i, x in zip(positions, made.X, strict=True)}
        kept += [order[tuple(x)] for x in rows]
    share = np.histogram(kept, bins=4, range=(0, len(made.X)))[0] / len(kept)
    np.testing.assert_allclose(share, 0.25, atol=0.02)


def test_a_picture_shows_each_side_in_its_colour():
    """Decoded by Pillow, if matplotlib has brought it: dots where the rows are, nothing elsewhere."""
    image = pytest.importorskip("PIL.Image", reason="Pillow is not installed")
    import base64
    import io

    rows = Scatter(1, 2, np.array([-1.0, 1.0]), np.array([0.5, -0.5]), np.array([1.0]))
    data = picture(rows, -2.0, 2.0).removeprefix("data:image/png;base64,")
    pixels = np.array(image.open(io.BytesIO(base64.b64decode(data))).convert("RGBA"))
    width = pixels.shape[1]
    seen = pixels[..., 3] > 0
    left, right = seen[:, : width // 2], seen[:, width // 2 :]
    assert abs(np.argwhere(left)[:, 1].mean() - width / 4) < 2
    assert abs(np.argwhere(right)[:, 1].mean() - width / 4) < 2
    blue, orange = pixels[:, : width // 2][left].mean(axis=0), pixels[:, width // 2 :][right].mean(axis=0)
    assert blue[2] > blue[0]
    assert orange[0] > orange[2]
    assert seen.mean() < 0.01


# --- colours ----------------------------------------------------------------------------------------


# Machado, Oliveira and Fernandes 2009, complete deficiency, on linear RGB.
EYES = {
    "protan": [[0.152, 1.053, -0.205], [0.115, 0.786, 0.099], [-0.004, -0.048, 1.052]],
    "deutan": [[0.367, 0.861, -0.228], [0.280, 0.673, 0.047], [-0.012, 0.043, 0.969]],
    "tritan": [[1.256, -0.077, -0.179], [-0.078, 0.931, 0.148], [0.005, 0.691, 0.304]],
}


@pytest.mark.parametrize("theme", [0, 1])
@pytest.mark.parametrize("eyes", EYES)
def test_low_and_high_can_be_told_apart_by_every_eye(text, theme, eyes):
    """The two ends, and every pair of opposite steps but the palest, differ clearly in Lab."""
    found = re.findall(r"--(n\d|p\d|left|right):#([0-9a-f]{6})", text)
    colours = dict(found[: len(found) // 2] if theme == 0 else found[len(found) // 2 :])
    pairs = [("left", "right"), *((f"n{k}", f"p{k}") for k in (2, 3, 4, 5))]
    for a, b in pairs:
        assert lab_distance(colours[a], colours[b], EYES[eyes]) > 20, (a, b)


def lab_distance(a, b, matrix):
    def lab(code):
        rgb = np.array([int(code[i : i + 2], 16) / 255 for i in (0, 2, 4)])
        linear = np.where(rgb <= 0.04045, rgb / 12.92, ((rgb + 0.055) / 1.055) ** 2.4)
        linear = np.clip(np.array(matrix) @ linear, 0, 1)
        to_xyz = [[0.4124, 0.3576, 0.1805], [0.2126, 0.7152, 0.0722], [0.0193, 0.1192, 0.9505]]
        f = np.cbrt(np.array(to_xyz) @ linear / [0.9505, 1.0, 1.089])
        return np.array([116 * f[1] - 16, 500 * (f[0] - f[1]), 200 * (f[1] - f[2])])

    return float(np.linalg.norm(lab(a) - lab(b)))


# --- in a browser -----------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def browser():
    with chromium.Browser(chromium.needed()) as browser:
        yield browser


@pytest.fixture(scope="module")
def file(text, tmp_path_factory):
    path = tmp_path_factory.mktemp("page") / "page.html"
    path.write_text(text, encoding="utf-8")
    return path


@pytest.mark.parametrize(
    ("required", "outcome"),
    [
        ("", pytest.skip.Exception),
        ("postgres", pytest.skip.Exception),
        ("mount browser", pytest.fail.Exception),
    ],
)
def test_a_missing_browser_skips_a_test_or_fails_it_where_none_may_be_skipped(monkeypatch, required, outcome):
    monkeypatch.delenv("CHROMIUM", raising=False)
    monkeypatch.setenv("PATH", "")
    monkeypatch.setenv("IMDH_REQUIRE", required)
    with pytest.raises(outcome, match="no Chromium"):
        chromium.needed()


@pytest.mark.parametrize(("width", "dark"), [(1280, False), (1280, True), (390, False)])
def test_a_browser_shows_every_part_and_asks_for_nothing(browser, file, width, dark):
    browser.open(file, width=width, dark=dark)
    assert browser.complaints() == []
    assert browser.requests() == []
    for part in (
        "overview",
        "tree",
        "profiles",
        "choice",
        "truth",
        "each",
        "splits",
        "provenance",
        "reading",
    ):
        box = browser.evaluate(f"JSON.stringify(document.getElementById('{part}').getBoundingClientRect())")
        box = json.loads(box)
        assert box["width"] > 100, part
        assert box["height"] > 40, part
    assert browser.evaluate("document.querySelectorAll('#each details').length") == 7
    assert browser.evaluate("document.querySelectorAll('svg.density').length") == 6
    assert browser.evaluate("document.querySelectorAll('svg.tree g.split').length") == 6


def test_a_small_tree_grows_with_the_page(browser, tmp_path):
    path = tmp_path / "page.html"
    path.write_text(page.build(summarise(make(d=3, clusters=4).model)), encoding="utf-8")
    sizes = {}
    for width in (390, 1200):
        browser.open(path, width=width)
        box = browser.evaluate("JSON.stringify(document.querySelector('svg.tree').getBoundingClientRect())")
        sizes[width] = json.loads(box)
    assert sizes[1200]["width"] > 1.5 * sizes[390]["width"]
    assert sizes[1200]["height"] == pytest.approx(
        sizes[390]["height"] * sizes[1200]["width"] / sizes[390]["width"], rel=0.01
    )
    assert browser.complaints() == []


@pytest.mark.parametrize("width", [320, 390, 768, 1280])
def test_the_page_never_scrolls_sideways(browser, file, width):
    """Wide tables and pictures scroll within their own frames, which the keyboard reaches."""
    browser.open(file, width=width)
    assert browser.evaluate("document.documentElement.scrollWidth <= innerWidth")
    wide = "[...document.querySelectorAll('.scroll')].filter(e => e.scrollWidth > e.clientWidth)"
    assert browser.evaluate(f"{wide}.every(e => e.tabIndex === 0 && e.getAttribute('role') === 'region')")


def test_hostile_names_do_nothing_in_a_browser(browser, hostile, tmp_path):
    truth = Truth(HOSTILE, hostile.model.n_clusters)
    truth.add(hostile.cluster, [f"{HOSTILE}{p}" for p in hostile.planted])
    path = tmp_path / "page.html"
    html = page.build(summarise(hostile.model, name=HOSTILE).with_truth(truth.result()), command=HOSTILE)
    path.write_text(html, encoding="utf-8")
    browser.open(path)
    assert browser.complaints() == []
    assert browser.requests() == []
    assert browser.evaluate("document.querySelectorAll('img, script').length") == 0
    assert browser.evaluate(f"document.body.innerText.includes({json.dumps(HOSTILE)})")


def test_a_screen_reader_meets_names_for_everything(browser, file):
    browser.open(file)
    met = browser.accessible()
    headings = [name for role, name in met if role == "heading"]
    assert headings[:2] == ["planted.csv", "Clusters"]
    assert {"Tree", "Profiles", "How many", "Splits", "Cluster 3"} <= set(headings)
    for role in ("image", "link", "region", "navigation", "group"):
        names = [name for kind, name in met if kind == role]
        if role != "group":
            assert names, role
            assert all(names), role
    assert any(name.startswith("Density of the rows across the cut of node 1:") for _, name in met)
    tables = browser.evaluate("document.querySelectorAll('table').length")
    assert browser.evaluate("[...document.querySelectorAll('th')].every(th => th.scope)")
    assert sum(role == "table" for role, _ in met) == tables - 1  # the curve's table is folded away


def test_the_keyboard_reaches_links_and_folds(browser, file):
    browser.open(file)

    def press(key, code):
        for kind in ("keyDown", "keyUp"):
            browser.send("Input.dispatchKeyEvent", type=kind, key=key, code=key, windowsVirtualKeyCode=code)

    press("Tab", 9)
    assert browser.evaluate("document.activeElement.className") == "skip"
    assert browser.evaluate("document.activeElement.getBoundingClientRect().left >= 0")
    browser.evaluate("document.querySelector('#each summary').focus()")
    assert browser.evaluate("document.querySelector('#each details').open")
    browser.send(
        "Input.dispatchKeyEvent",
        type="keyDown",
        key="Enter",
        code="Enter",
        windowsVirtualKeyCode=13,
        text="\r",
    )
    assert not browser.evaluate("document.querySelector('#each details').open")


PARTS = ["overview", "tree", "profiles", "choice", "truth", "each", "splits", "provenance", "reading"]
CONTRAST = """(() => {
  const lum = c => { const [r, g, b] = c.match(/[\\d.]+/g).map(Number).map(v => {
    v /= 255; return v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4; });
    return 0.2126 * r + 0.7152 * g + 0.0722 * b; };
  const ground = e => { for (; e; e = e.parentElement) {
    const c = getComputedStyle(e).backgroundColor;
    if (!c.endsWith(', 0)') && c !== 'transparent') return c; } return 'rgb(255, 255, 255)'; };
  const poor = [];
  for (const e of document.querySelectorAll('p, td, th, dt, dd, a, li, h1, h2, h3, span, summary, pre, b')) {
    if (!e.innerText || !e.checkVisibility() || e.closest('.unseen, .skip, svg')) continue;
    const [a, b] = [lum(getComputedStyle(e).color), lum(ground(e))].sort((x, y) => y - x);
    const ratio = (a + 0.05) / (b + 0.05);
    const name = [e.tagName, e.className, e.innerText.slice(0, 20), ratio.toFixed(2)].join(' ');
    if (ratio < 4.5 && !e.ariaHidden) poor.push(name);
  }
  return [...new Set(poor)];
})()"""


@pytest.mark.parametrize("dark", [False, True])
def test_all_text_stands_out_from_its_ground(browser, file, dark):
    """The contrast that WCAG asks for (4.5), in both themes."""
    browser.open(file, dark=dark)
    assert browser.evaluate(CONTRAST) == []


def test_the_page_prints(browser, file, tmp_path):
    browser.open(file)
    browser.pdf(tmp_path / "page.pdf")
    pdf = (tmp_path / "page.pdf").read_bytes()
    assert pdf.startswith(b"%PDF")
    assert 3 <= len(re.findall(rb"/Type\s*/Page\b", pdf)) <= 12
