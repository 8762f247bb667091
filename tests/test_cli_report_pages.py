"""`imdh report` into files: the page and the pictures, alone and together, with DATA and without."""

from __future__ import annotations

import csv
import io
import json
import re
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pyarrow.parquet as pq
import pytest

from imdh_cli.features import Tally
from imdh_cli.model import load
from imdh_cli.params import SourceParams
from imdh_cli.pipeline.labelled import labelled as labelled_rows
from imdh_cli.report.scatter import Sampler
from imdh_cli.report.summary import schema, summarise
from imdh_cli.sources import open_source
from tests import chromium
from tests.cli import ROOT, arrays, blobs, descend, imdh, one_line_error, write
from tests.needs import full_device

HOSTILE = "</script><img src=x onerror=alert(1)>"
SHOWS_ROWS = "This page shows individual rows"
MAGIC = {"png": b"\x89PNG", "svg": b"<?xml", "pdf": b"%PDF"}


class World(NamedTuple):
    X: np.ndarray
    data: Path
    model: Path


@pytest.fixture(scope="module")
def world(tmp_path_factory) -> World:
    folder = tmp_path_factory.mktemp("pages")
    X, which = blobs(3000, k=4, distance=9.0)
    X = X * [1, 100, 0.001] + [0, 5000, -1]
    kind = np.array(["ash", HOSTILE, "cedar", "oak"])[which]
    data = write(folder / "t.parquet", X, ["height in m", HOSTILE, "Gr\u00f6\u00dfe"], kind=kind)
    imdh("fit", data, "-o", folder / "m.npz", "--depth", 4)
    return World(X, data, folder / "m.npz")


@pytest.fixture(scope="module")
def page(world, tmp_path_factory) -> str:
    """With DATA and known classes."""
    path = tmp_path_factory.mktemp("page") / "page.html"
    imdh("report", world.model, world.data, "--truth", "kind", "--html", path)
    return path.read_text(encoding="utf-8")


@pytest.fixture
def draws():
    """Skips where the extra `plots` is not installed."""
    pytest.importorskip("matplotlib", reason="the extra `plots` is not installed")


def below_the_clusters(world: World) -> int:
    """A split with rows that no cluster needs."""
    used = {split["node"] for split in imdh("report", world.model, "--json").json["splits"]}
    counts = arrays(world.model)["counts"]
    return next(node for node in range(2, 16) if node not in used and counts[node - 1] > 500)


# --- the page ---------------------------------------------------------------------------------------


def test_a_page_needs_no_data(world, tmp_path):
    ran = imdh("report", world.model, "--html", tmp_path / "page.html")
    assert (ran.out, ran.err) == (b"", f"wrote {tmp_path / 'page.html'}\n")
    text = (tmp_path / "page.html").read_text(encoding="utf-8")
    assert "4 clusters, a clear choice" in text
    assert SHOWS_ROWS not in text
    assert "<image " not in text


def test_a_page_with_data_shows_a_sample_at_each_split_and_says_so(world, page):
    assert SHOWS_ROWS in page
    assert page.count("<image ") == len(imdh("report", world.model, "--json").json["splits"]) == 3
    assert "Dots: 400 of 3,000 rows" in page


def test_figures_agree_in_every_form_and_with_numpy(world, page):
    """JSON, CSV and the page hold the same doubles; NumPy finds them on the labelled rows."""
    report = imdh("report", world.model, "--json").json
    names = [f["name"] for f in report["data"]["features"]]
    label = descend(world.model, world.X).label
    parts = re.split(r'<details class="cluster', page)[1:]
    lines = list(csv.DictReader(io.StringIO(imdh("report", world.model, "--csv").text)))
    everyone = world.X.mean(axis=0), world.X.std(axis=0)
    for part, cluster in zip(parts, report["clusters"], strict=True):
        rows = world.X[label == cluster["cluster"]]
        table = part[part.index("<tbody>") : part.index("</tbody>")]
        shown = np.array(re.findall(r'<data value="([^"]*)">', table), dtype=float).reshape(-1, 4)
        assert cluster["rows"] == len(rows)
        profile = [(f["mean"], f["sd"], f["z"]) for f in cluster["profile"]]
        assert {(mean, sd, z) for mean, sd, _, z in shown.tolist()} == set(profile)
        mine = [line for line in lines if int(line["cluster"]) == cluster["cluster"]]
        assert [(float(f["mean"]), float(f["sd"]), float(f["z"])) for f in mine] == profile
        assert [f["feature"] for f in mine] == names
        mean, sd, z = np.array(profile).T
        np.testing.assert_allclose(mean, rows.mean(axis=0), rtol=1e-9)
        np.testing.assert_allclose(sd, rows.std(axis=0), rtol=1e-9)
        np.testing.assert_allclose(z, (rows.mean(axis=0) - everyone[0]) / everyone[1], rtol=1e-9, atol=1e-9)


def test_agreement_on_the_page_is_that_of_json(world, page):
    truth = imdh("report", world.model, world.data, "--truth", "kind", "--json").json["truth"]
    part = page[page.index('id="truth"') : page.index('id="each"')]
    values = [float(v) for v in re.findall(r'<data value="([^"]*)">', part)]
    names = ("ari", "nmi_arithmetic", "nmi_geometric", "homogeneity", "completeness")
    assert values == [truth[name] for name in names]


def test_a_page_names_files_but_no_folders(world, tmp_path):
    """Neither the folders of this machine nor what was put behind a web address."""
    path = tmp_path / "page.html"
    imdh("report", world.model, world.data.as_uri(), "--html", path, "--min-size", 5, "--threads", 1)
    text = path.read_text(encoding="utf-8")
    assert "<pre>imdh report m.npz t.parquet --html page.html --min-size 5</pre>" in text
    for folder in (tmp_path, world.data.parent, ROOT):
        assert str(folder) not in text


def test_a_page_does_not_depend_on_how_the_data_are_read(world, tmp_path):
    """The same bytes whatever the chunks, the threads and the format."""
    text = write(tmp_path / "t.csv", world.X, pq.read_schema(world.data).names[:3])
    pages = []
    for data, words in (
        (world.data, []),
        (world.data, ["--batch-rows", 77, "--threads", 1, "--no-progress"]),
        (text, []),
    ):
        imdh("report", world.model, data, "--html", tmp_path / "page.html", "-f", "-q", *words)
        pages.append((tmp_path / "page.html").read_text(encoding="utf-8").replace("t.csv", "t.parquet"))
    assert pages[0] == pages[1] == pages[2]


def test_a_page_goes_to_stdout(world, tmp_path):
    ran = imdh("report", world.model, "--html", "-")
    imdh("report", world.model, "--html", tmp_path / "-.html")
    assert ran.err == ""
    assert ran.out == (tmp_path / "-.html").read_bytes().replace(b"-.html", b"-")


def test_data_may_be_a_stream(world, tmp_path):
    text = write(tmp_path / "t.csv", world.X, pq.read_schema(world.data).names[:3]).read_bytes()
    imdh("report", world.model, "-", "--html", tmp_path / "page.html", stdin=text)
    assert SHOWS_ROWS in (tmp_path / "page.html").read_text(encoding="utf-8")


def test_small_nodes_show_no_rows(world, tmp_path):
    """--min-size also holds for the pictures, and a split with rows enough keeps its own."""
    told = json.loads(imdh("report", world.model, "--json").out)
    second = sorted(split["rows"] for split in told["splits"])[-2]
    imdh("report", world.model, world.data, "--html", tmp_path / "page.html", "--min-size", second + 1)
    assert (tmp_path / "page.html").read_text(encoding="utf-8").count("<image ") == 1


def test_the_page_of_a_hostile_table_does_nothing_in_a_browser(page, tmp_path):
    """As the command wrote it: all parts, no error, no request, no element of the names' making."""
    (tmp_path / "page.html").write_text(page, encoding="utf-8")
    with chromium.Browser(chromium.needed()) as browser:
        browser.open(tmp_path / "page.html")
        assert browser.complaints() == []
        assert browser.requests() == []
        assert browser.evaluate("document.querySelectorAll('img, script').length") == 0
        assert browser.evaluate(f"document.body.innerText.includes({json.dumps(HOSTILE)})")
        parts = ["overview", "tree", "profiles", "choice", "truth", "each", "splits", "provenance"]
        found = f"{json.dumps(parts)}.filter(part => document.getElementById(part).clientHeight > 40)"
        assert browser.evaluate(found) == parts
        assert browser.evaluate("document.querySelectorAll('svg image').length") == 3


@pytest.mark.parametrize(("scale", "cut_off"), [("standard", True), ("none", False)])
def test_what_is_cut_off_at_10_sds_is_said_only_where_it_is(tmp_path, scale, cut_off):
    X, _ = blobs(2000, k=2, d=2)
    X = np.vstack([X, X[:20] / 10 + 40 * X.std()])  # not so far that the scale leaves them out
    data = write(tmp_path / "t.parquet", X[np.random.default_rng(1).permutation(2020)])
    imdh("fit", data, "-o", tmp_path / "m.npz", "--scale", scale, "-k", 3)
    codes = [w["code"] for w in imdh("report", tmp_path / "m.npz", "--json").json["warnings"]]
    assert ("outliers" in codes) == cut_off
    text = imdh("report", tmp_path / "m.npz", "--html", "-").text
    assert ("count as 10 sd" in text) == cut_off


# --- pictures ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("tree.png", []),
        ("node.svg", ["--node", 1]),
        ("curve.pdf", ["--kind", "curve"]),
        ("profiles.PNG", ["--kind", "profiles"]),
    ],
)
@pytest.mark.usefixtures("draws")
def test_a_picture_is_in_the_format_of_its_name(world, tmp_path, name, words):
    ran = imdh("report", world.model, "--plot", tmp_path / name, *words)
    assert ran.out == b""
    assert (tmp_path / name).read_bytes().startswith(MAGIC[name[-3:].lower()])


@pytest.mark.usefixtures("draws")
def test_the_rows_of_any_split_can_be_drawn(world, tmp_path):
    """Also of one below the clusters; drawing rows leaves the rest as it is."""
    words = ["--node", below_the_clusters(world)]
    imdh("report", world.model, "--plot", tmp_path / "without.svg", *words)
    imdh("report", world.model, world.data, "--plot", tmp_path / "with.svg", *words)
    count = [(tmp_path / name).read_bytes().count(b"PathCollection") for name in ("without.svg", "with.svg")]
    assert count[1] >= count[0] + 2


@pytest.mark.usefixtures("draws")
def test_several_outputs_in_one_call_are_those_of_several(world, tmp_path):
    one, other = tmp_path / "one", tmp_path / "other"
    one.mkdir()
    other.mkdir()
    node = ["--node", 2]
    ran = imdh(
        "report", world.model, world.data, "--truth", "kind", "--json", *node,
        "--html", one / "page.html", "--plot", one / "node.png",
    )  # fmt: skip
    imdh("report", world.model, world.data, "--truth", "kind", "--html", other / "page.html")
    imdh("report", world.model, world.data, "--plot", other / "node.png", *node)
    alone = imdh("report", world.model, world.data, "--truth", "kind", "--json", *node)
    assert ran.json == alone.json
    assert (one / "node.png").read_bytes() == (other / "node.png").read_bytes()
    pages = [(folder / "page.html").read_text(encoding="utf-8") for folder in (one, other)]
    pages = [re.sub("<pre>imdh report .*</pre>", "", text) for text in pages]
    assert pages[0] == pages[1]
    assert ran.err.endswith(f"wrote {one / 'page.html'} and {one / 'node.png'}\n")


def test_without_matplotlib_the_pip_line_is_named_before_anything_is_read(world, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    ran = imdh("report", world.model, "missing.csv", "--plot", tmp_path / "a.png", "--node", 1, status=2)
    assert "hint: pip install 'imdh[plots]'" in ran.err
    one_line_error(ran.err)


# --- what is refused --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["DATA", "--tree"], "nothing of them is shown by --tree"),
        (["DATA", "--csv"], "nothing of them is shown by --csv"),
        (["DATA", "--plot", "a.png"], "nothing of them is shown by --plot"),
        (["DATA", "--truth", "kind", "--tree"], "--truth is not shown by --tree"),
        (["DATA", "--truth", "kind", "--plot", "a.png"], "--truth is not shown by --plot"),
        (["DATA", "--drift", "--csv"], "--drift is not shown by --csv"),
        (["--drift"], "--drift needs DATA"),
        (["DATA", "--html", "a.html", "--fail-above", 0.1], "--fail-above says how far"),
        (["DATA", "--drift", "--fail-above", "-1"], "--fail-above"),
        (["--kind", "curve"], "--kind says what --plot draws"),
        (["--plot", "a.png", "--kind", "node"], "needs the number of a node"),
        (["--plot", "a.png", "--kind", "curve", "--node", 1], "not of a node"),
        (["--plot", "a.bmp"], "no picture is written in that format"),
        (["--plot", "png"], "no picture is written in that format"),
        (["--plot", "a.png", "--html", "./a.png"], "cannot be both"),
        (["--html", "-", "--json"], "at once"),
        (["--html", "a.html", "--node", 99], "nodes 1 to 31"),
        (["--html", ""], "empty name"),
    ],
)
def test_what_contradicts_itself_is_refused_and_nothing_written(world, tmp_path, monkeypatch, words, said):
    pytest.importorskip("matplotlib", reason="the extra `plots` is not installed")
    monkeypatch.chdir(tmp_path)
    words = [world.data if word == "DATA" else word for word in words]
    assert said in one_line_error(imdh("report", world.model, *words, status=2).err)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("option", ["--html", "--plot"])
@pytest.mark.usefixtures("draws")
def test_an_existing_file_is_replaced_by_force_only(world, tmp_path, option):
    path = tmp_path / "a.png"
    path.write_text("mine")
    assert "exists" in one_line_error(imdh("report", world.model, option, path, status=2).err)
    assert path.read_text() == "mine"
    imdh("report", world.model, option, path, "--force")
    assert path.read_bytes()[:4] in (MAGIC["png"], b"<!DO")


@pytest.mark.parametrize("which", ["model", "data"])
def test_an_input_is_never_written_to(world, tmp_path, which):
    path = getattr(world, which)
    before = path.read_bytes()
    (tmp_path / "link.html").symlink_to(path)
    words = ["report", world.model, world.data, "--html", tmp_path / "link.html", "--force"]
    assert "is also an input" in one_line_error(imdh(*words, status=2).err)
    assert path.read_bytes() == before


@pytest.mark.usefixtures("draws")
def test_all_is_made_before_anything_is_written(world, tmp_path):
    """The column of classes is missing, a split has no rows, there is no tree: no page either."""
    words = ["--html", tmp_path / "page.html"]
    imdh("report", world.model, world.data, "--truth", "kid", *words, status=3)
    single = write(tmp_path / "one.parquet", np.random.default_rng(0).random((2000, 2)))
    imdh("fit", single, "-o", tmp_path / "one.npz")
    imdh("report", tmp_path / "one.npz", *words, "--plot", tmp_path / "tree.png", status=2)
    assert {path.name for path in tmp_path.iterdir()} == {"one.parquet", "one.npz"}


def test_a_full_disk_leaves_nothing_and_is_status_1(world):
    full_device()
    one_line_error(imdh("report", world.model, "--html", "/dev/full", status=1).err)


def test_data_without_a_usable_row_are_a_data_error(world, tmp_path):
    names = pq.read_schema(world.data).names[:3]
    data = write(tmp_path / "t.csv", np.full((3, 3), np.nan), names)
    ran = imdh("report", world.model, data, "--html", tmp_path / "page.html", status=3)
    assert "none of its 3 rows can be used" in ran.err
    assert not (tmp_path / "page.html").exists()


# --- JSON -------------------------------------------------------------------------------------------


def test_the_schema_is_printed_without_a_model():
    assert imdh("report", "--json-schema").text == schema()
    assert imdh("report", "--json-schema").json["$schema"].startswith("https://json-schema.org/")


def test_json_describes_a_node_below_the_clusters_when_asked(world):
    node = below_the_clusters(world)
    plain = imdh("report", world.model, "--json").json
    more = imdh("report", world.model, "--json", "--node", node).json
    added = [split for split in more["splits"] if split not in plain["splits"]]
    assert [split["node"] for split in added] == [node]
    assert added[0]["from_k"] is None
    assert added[0]["rows"] == arrays(world.model)["counts"][node - 1]
    assert {**more, "splits": None} == {**plain, "splits": None}


def test_names_in_json_have_no_folders(world):
    report = imdh("report", world.model, "--json").json
    assert report["model"]["name"] == "m.npz"
    assert report["data"]["inputs"] == ["t.parquet"]


def test_no_compiler_is_loaded_without_data(world, tmp_path):
    """A report is there at once."""
    words = ["imdh", "report", str(world.model), "--html", str(tmp_path / "page.html")]
    code = (
        f"import sys; sys.argv = {words!r}\n"
        "from imdh_cli.cli.main import main\n"
        "try: main()\n"
        "except SystemExit as end: assert not end.code\n"
        "print(*sorted({'numba', 'matplotlib', 'pandas'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT)
    assert done.stdout.strip() == ""


# --- rows with their labels -------------------------------------------------------------------------


def labelled(model, data, keep=(), **options):
    source = open_source([str(data)], SourceParams(batch_rows=700))
    return list(labelled_rows(model, source, keep, **options))


def test_labelled_rows_are_those_of_the_model_in_their_order(world):
    tally = Tally()
    parts = labelled(load(world.model), world.data, ["kind"], tally=tally)
    expected = descend(world.model, world.X)
    assert len(parts) > 3
    np.testing.assert_array_equal(np.concatenate([p.cluster for p in parts]), expected.label)
    np.testing.assert_array_equal(np.concatenate([p.leaf for p in parts]), expected.leaf)
    np.testing.assert_array_equal(np.concatenate([p.X for p in parts]), world.X)
    kept = [value for p in parts for value in p.kept.column(0).to_pylist()]
    assert kept == pq.read_table(world.data).column("kind").to_pylist()
    assert (tally.rows, tally.used) == (3000, 3000)


def test_rows_that_cannot_be_used_have_no_cluster_and_no_leaf(world, tmp_path):
    X = world.X[:50].copy()
    X[[3, 7], 1] = np.nan
    data = write(tmp_path / "t.csv", X, pq.read_schema(world.data).names[:3])
    (part,) = labelled(load(world.model), data)
    assert np.flatnonzero(part.cluster == -1).tolist() == [3, 7]
    assert len(part.leaf) == len(part.X) == 48
    (part,) = labelled(load(world.model), data, missing="mean")
    assert (part.cluster > 0).all()
    assert np.isnan(part.X[[3, 7], 1]).all()


@pytest.mark.parametrize("scale", ["standard", "none"])
@pytest.mark.parametrize("missing", ["skip", "mean"])
def test_sampled_rows_lie_on_their_own_side_of_the_cut(tmp_path, scale, missing):
    """Far from the origin in units of their own, with and without scaling, with holes."""
    X, _ = blobs(2000, k=4, distance=9.0)
    X = 50.0 * X + 1000.0
    X[::40, 0] = np.nan
    data = write(tmp_path / "t.parquet", X)
    imdh("fit", data, "-o", tmp_path / "m.npz", "--scale", scale, "--missing", missing, "--depth", 4)
    model = load(tmp_path / "m.npz")
    summary = summarise(model)
    sampler = Sampler(summary)
    for part in labelled(model, data):
        sampler.add(part.X, part.leaf)
    scatters = sampler.scatters()
    assert set(scatters) == set(summary.splits) != set()
    for node, scatter in scatters.items():
        split = summary.splits[node]
        assert scatter.rows == split.rows
        share = np.mean(scatter.across < 0.0)
        assert share == pytest.approx(model.counts[2 * node - 1] / split.rows, abs=0.12)
        assert np.abs(scatter.across).max() < 6.0


# --- the README's pictures --------------------------------------------------------------------------


def test_pictures_of_the_readme_are_there_and_small():
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    pictures = [ROOT / name for name in re.findall(r"!\[[^\]]+\]\(([^)]+\.png)\)", text)]
    assert {path.name for path in pictures} >= {"page.png", "node.png"}
    for path in pictures:
        assert path.read_bytes().startswith(MAGIC["png"])
        assert path.stat().st_size < 200_000
