"""The report in the terminal: the right figures, within the width, readable at any size, only text."""

from __future__ import annotations

import io
import re
from dataclasses import replace

import numpy as np
import pytest
from rich.cells import cell_len
from rich.console import Console

from imdh_cli.errors import UsageError
from imdh_cli.report import terminal
from imdh_cli.report.agreement import Truth
from imdh_cli.report.draw import ASCII, BLOCKS, bar, columns
from imdh_cli.report.summary import summarise
from imdh_cli.report.words import percent, quantity, signed, spread
from imdh_cli.words import printable
from tests.models import make

HOSTILE = [
    "</script><img src=x onerror=alert(1)>",
    "[red]x[/red]",
    "\x1b[31mred\x1b[0m\n",
    "x" * 300,
    "漢" * 90,
]


def shown(summary, width=80, tree=False, node=None, encoding="utf-8", **options):
    """What a console of that width gets, as text."""
    raw = io.BytesIO()
    file = io.TextIOWrapper(raw, encoding=encoding, newline="")
    console = Console(file=file, width=width, **options)
    if node is None:
        terminal.render(summary, console, tree=tree)
    else:
        terminal.render_node(summary, node, console)
    file.flush()
    return raw.getvalue().decode(encoding)


@pytest.fixture(scope="module")
def made():
    return make(depth=5, d=5, k=6, n=3000, levels=("red", "green", "blue"), clusters=7)


@pytest.fixture(scope="module")
def deep():
    return summarise(make(depth=14, d=6, k=30, n=3000, clusters=800).model)


def test_figures_are_those_of_the_json_report(made):
    """Each cluster's first line: size, share, and its foremost mark in the user's units."""
    summary = summarise(made.model)
    lines = shown(summary).split("\n")
    report = summary.to_dict()
    features = {f["name"]: f for f in report["data"]["features"]}
    for cluster in report["clusters"]:
        mark = next(p for p in cluster["profile"] if p["feature"] == cluster["marks"][0])
        f = features[mark["feature"]]
        share = f["kind"] == "share"
        expected = [
            str(cluster["cluster"]),
            f"{cluster['rows']:,}",
            percent(cluster["share"]),
            f["name"],
            quantity(mark["mean"], f["sd"], share=share),
            "\u00b1" + spread(mark["sd"], share=share),
            quantity(f["mean"], f["sd"], share=share),
            f"{'▲' if mark['z'] > 0 else '▼'} {signed(mark['z'])}",
        ]
        assert any(re.split(r"  +", line.strip()) == expected for line in lines), expected


@pytest.mark.parametrize("width", [60, 80, 200])
def test_no_line_is_wider_than_the_terminal(made, deep, width):
    hostile = make(d=5, names=HOSTILE, levels=("a" * 200, "漢字")).model
    hostile.metadata["left_out_columns"] = [["y" * 500, "text"]]
    for summary in (summarise(made.model), summarise(hostile), deep):
        text = shown(summary, width) + shown(summary, width, node=1)
        assert max(cell_len(line) for line in text.split("\n")) <= width


@pytest.mark.parametrize("width", [40, 50, 60])
def test_a_narrow_terminal_keeps_number_name_and_effect_of_every_cluster(width):
    names = ["flipper length", "depth", "mass"]
    summary = summarise(make(d=3, names=names, n=30_000, clusters=5).model)
    text = shown(summary, width)
    table = text[text.index("\nClusters") : text.index("\neffect:")]
    assert max(cell_len(line) for line in table.split("\n")) <= width
    for c in summary.clusters:
        mark = re.escape(names[c.marks[0]])
        assert re.search(
            rf"^ *{c.label}\b.*\b{mark} .*[▲▼] {re.escape(signed(float(c.z[c.marks[0]])))}$", table, re.M
        )


def test_the_whole_deep_tree_fits_the_width(deep):
    text = shown(deep, 80, tree=True)
    assert max(cell_len(line) for line in text.split("\n")) <= 80
    assert set(map(int, re.findall(r"cluster (\d+) ", text))) == set(range(1, 801))


def test_a_deep_tree_is_collapsed_unless_asked_for(deep):
    text = shown(deep)
    tree = text[text.index("\nTree") :]
    assert tree.count("\n") < 60
    groups = re.findall(r"clusters? (\d+)(?: to (\d+))?  ", tree)
    covered = [k for first, last in groups for k in range(int(first), int(last or first) + 1)]
    assert covered == list(range(1, 801))


def test_all_of_128_clusters_are_listed_on_a_few_pages():
    model = make(depth=8, d=6, k=20, n=6000, clusters=128).model
    text = shown(summarise(model))
    assert text.count("\n") < 220
    assert [int(n) for n in re.findall(r"^ *(\d+) +[\d,]+ +[<\d.]+ % ", text, re.M)] == list(range(1, 129))


def test_of_more_clusters_the_largest_are_listed(deep):
    text = shown(deep)
    assert len(re.findall(r"^ *(\d+) +[\d,]+ +[<\d.]+ % ", text, re.M)) == 128
    assert "and 672 smaller clusters with" in text


def test_a_pipe_gets_plain_text(made):
    text = shown(summarise(made.model))
    assert "\x1b" not in text
    assert "\r" not in text
    assert all(line == line.rstrip() for line in text.split("\n"))


def test_a_terminal_gets_the_same_text_with_colours(made):
    summary = summarise(made.model)
    coloured = shown(summary, force_terminal=True, color_system="standard")
    assert "\x1b[" in coloured
    assert re.sub(r"\x1b\[[\d;]*m", "", coloured) == shown(summary)


def test_names_cannot_steer_the_terminal():
    summary = summarise(make(d=5, names=HOSTILE).model)
    text = shown(summary) + shown(summary, node=1) + shown(summary, tree=True)
    assert "\x1b" not in text
    assert "\\x1b[31mred\\x1b[0m\\n" in text.replace("\n", "").replace(" ", "")
    assert "[red]x[/red]" in text


@pytest.mark.parametrize("hostile", ["\x00", "\x9b", "\u202e", "\u2028", "\r", "\ud800"])
def test_printable_spells_out_what_is_not_text(hostile):
    assert printable(f"a{hostile}b") == f"a{hostile.encode('unicode_escape').decode()}b"


def test_a_terminal_without_block_characters_gets_ascii(made):
    summary = summarise(replace(made.model, feature_names=["ünï", *made.model.feature_names[1:]]))
    text = shown(summary, encoding="latin-1") + shown(summary, node=1, encoding="latin-1")
    assert "#" in text
    assert set(text.replace("ünï", "")) <= set(map(chr, range(128)))


def test_small_clusters_are_not_described(made):
    summary = summarise(made.model, min_size=300)
    text = shown(summary)
    small = [c for c in summary.clusters if c.rows < 300]
    assert len(re.findall(r"% +fewer than 300 rows\n", text)) == len(small)


def test_one_cluster_shows_the_features_of_all_rows():
    text = shown(summarise(make(depth=5, d=4, k=1).model))
    assert "no clear number of clusters" in text
    assert re.search(r"^x4 +[\d,.-]+ +\u00b1[\d,.]+$", text, re.M)


def test_the_curve_marks_the_chosen_number_and_the_runner_up():
    summary = summarise(make(depth=4, d=8, k=4, seed=1).model)
    text = shown(summary)
    assert f"chosen: {summary.choice.clusters}\n" in text
    assert f"runner-up: {summary.choice.runner_up}\n" in text
    assert text.count("a close choice") == 1


def test_a_split_is_drawn_with_its_cut_in_the_valley(made):
    """Two clear modes: the line of the cut stands free between them."""
    rng = np.random.default_rng(0)
    X = np.concatenate([rng.normal(-4, 1, (600, 1)), rng.normal(4, 1, (400, 1))])
    text = shown(summarise(make(depth=2, X=X, clusters=2).model), node=1)
    assert re.search(r"^Node 1  1,000 rows \(100.0 %\)$", text, re.M)
    assert re.search(r"^valley (1\.00|0\.9\d): deeper than chance", text, re.M)
    cuts = [line.index("│") for line in text.split("\n") if "│" in line]
    assert len(cuts) >= 9  # of the ten rows of the picture: it stands free nearly to the ground
    assert len(set(cuts)) == 1
    axis = next(line for line in text.split("\n") if line.startswith("──"))
    assert axis[cuts[0]] == "┴"
    assert "node 2: 400 rows, cluster 1" in text  # its direction points down
    assert "node 3: 600 rows, cluster 2" in text


def test_loadings_are_listed_largest_first(made):
    summary = summarise(made.model)
    text = shown(summary, node=1)
    found = [float(x) for x in re.findall(r" ([+-]\d\.\d{3}) ", text)]
    expected = summary.split(1).loadings
    expected = expected[np.argsort(-np.abs(expected))]
    np.testing.assert_allclose(found, expected, atol=0.0005)


def test_a_node_without_a_split_is_refused(made):
    with pytest.raises(UsageError, match="node 33 is a leaf"):
        shown(summarise(made.model), node=33)


def test_agreement_with_classes_is_a_table(made):
    truth = Truth("kind\x1b", 7)
    truth.add(made.cluster, [f"class {p}" for p in made.planted])
    result = truth.result()
    text = shown(summarise(made.model).with_truth(result))
    assert "kind\\x1b" in text
    assert f" {result.ari:.3f}  ARI" in text
    rows = dict(re.findall(r"^(class \d) +([\d,· ]+)$", text, re.M))
    for name, counts in zip(result.classes, result.table, strict=True):
        cells = rows[name].replace("·", "0").replace(",", "").split()
        assert list(map(int, cells)) == [sum(counts), *counts]


def test_agreement_with_many_clusters_names_the_largest(deep):
    rng = np.random.default_rng(0)
    truth = Truth("class", 800)
    truth.add(rng.integers(1, 801, 5000), rng.integers(0, 60, 5000))
    text = shown(deep.with_truth(truth.result()))
    assert "and 20 more: --json" in text
    assert max(map(len, text.split("\n"))) <= 80


# --- numerals ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("value", "sd", "text"),
    [
        (5.84333, 0.825, "5.843"),
        (1234567.8, 20000.0, "1,234,568"),
        (1.7e9 + 0.25, 0.3, "1,700,000,000.250"),
        (1e-9, 2e-10, "1e-09"),
        (-3.2e15, 1e13, "-3.2e+15"),
        (-0.0001, 1.0, "0.00"),
        (0.0, 0.0, "0"),
        (None, 1.0, "-"),
    ],
)
def test_quantities_show_a_hundredth_of_the_spread(value, sd, text):
    assert quantity(value, sd) == text


@pytest.mark.parametrize(
    ("share", "text"),
    [(0.0, "0.0 %"), (1e-5, "<0.1 %"), (0.3333, "33.3 %"), (0.99999, ">99.9 %"), (1.0, "100.0 %")],
)
def test_a_small_share_is_never_nothing(share, text):
    assert percent(share) == text


def test_bars_and_columns_never_draw_something_as_nothing():
    assert columns([0.0, 1e-9, 1.0], 2, BLOCKS) == ["  █", " ▁█"]
    assert columns([0.0, 1e-9, 1.0], 2, ASCII) == ["  #", " .#"]
    assert (bar(0.0, 4, BLOCKS), bar(1e-9, 4, BLOCKS), bar(1.0, 4, BLOCKS)) == ("", "▏", "████")
