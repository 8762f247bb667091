"""Pictures for papers: every kind in every format, the same bytes each time, names only text."""

from __future__ import annotations

import io
import subprocess
import sys
from xml.etree import ElementTree

import numpy as np
import pytest

pytest.importorskip("matplotlib", reason="the extra `plots` is not installed")
from PIL import Image

from imdh_cli.errors import UsageError
from imdh_cli.report import plots
from imdh_cli.report.scatter import Sampler
from imdh_cli.report.summary import summarise
from tests.models import make

KINDS = ("tree", "node", "curve", "profiles")
HOSTILE = ["</script><img src=x onerror=alert(1)>", "--><script>", "$\\frac{", "\x1b[31m\x00", "漢字"]
MAGIC = {"png": b"\x89PNG", "svg": b"<?xml", "pdf": b"%PDF"}


@pytest.fixture(scope="module")
def made():
    return make(depth=5, d=5, k=6, n=3000, levels=("red", "green", "blue"))


@pytest.fixture(scope="module")
def summary(made):
    return summarise(made.model)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("format", plots.FORMATS)
def test_every_kind_is_drawn_in_every_format(summary, monkeypatch, kind, format):
    monkeypatch.setattr(plots, "DPI", 60)
    node = 1 if kind == "node" else None
    assert plots.check(summary, f"picture.{format}", kind, node) == format
    assert plots.draw(summary, format, kind, node).startswith(MAGIC[format])


@pytest.mark.parametrize("kind", KINDS)
def test_a_picture_is_large_enough_and_not_blank(summary, kind):
    image = Image.open(io.BytesIO(plots.draw(summary, "png", kind, 1))).convert("L")
    assert min(image.size) > 300
    ink = np.asarray(image) < 250
    assert ink.mean() > 0.02
    assert ink[:8].sum() == ink[-8:].sum() == 0  # nothing is cut off at the edge


def test_the_same_summary_gives_the_same_bytes(summary, monkeypatch):
    monkeypatch.setattr(plots, "DPI", 60)
    for format in plots.FORMATS:
        assert plots.draw(summary, format, "node", 1) == plots.draw(summary, format, "node", 1)


def test_a_sample_is_drawn_above_the_density(made, summary):
    sampler = Sampler(summary)
    sampler.add(made.X, made.leaf)
    with_rows = plots.draw(summary, "svg", "node", 1, sample=sampler.scatters()[1])
    assert with_rows.count(b"PathCollection") > plots.draw(summary, "svg", "node", 1).count(b"PathCollection")


@pytest.mark.parametrize("kind", KINDS)
def test_hostile_names_are_only_text(kind):
    summary = summarise(make(depth=5, d=5, k=6, n=2000, names=HOSTILE).model)
    root = ElementTree.fromstring(plots.draw(summary, "svg", kind, 1))
    tags = {element.tag.rpartition("}")[2] for element in root.iter()}
    assert tags <= {"svg", "metadata", "RDF", "Work", "type", "format", "creator", "Agent", "title"} | {
        "defs", "style", "g", "path", "use", "clipPath", "rect", "image", "linearGradient", "text",
    }  # fmt: skip


@pytest.mark.parametrize("kind", [pytest.param("tree", marks=pytest.mark.long), "profiles"])
def test_many_clusters_are_drawn(kind, monkeypatch):
    monkeypatch.setattr(plots, "DPI", 60)
    summary = summarise(make(depth=10, d=4, k=20, n=1500, clusters=300).model)
    image = Image.open(io.BytesIO(plots.draw(summary, "png", kind)))
    assert 1000 < max(image.size) < 6000


def test_an_unknown_format_is_refused(summary):
    with pytest.raises(UsageError, match="no picture is written in that format"):
        plots.check(summary, "picture.bmp", "tree", None)


@pytest.mark.parametrize("kind", ["tree", "curve", "profiles"])
def test_nothing_to_draw_is_said(kind):
    summary = summarise(make(depth=4, d=4, k=1, n=500).model)
    with pytest.raises(UsageError, match=r"^there (is|are) no ") as caught:
        plots.draw(summary, "png", kind)
    hint = str(caught.value.hint)
    assert ("--node 1" in hint) == (kind != "profiles")
    assert ("imdh prune MODEL -k N" in hint) == (kind != "curve")


def test_a_node_needs_its_number(summary):
    with pytest.raises(UsageError, match="a picture of a node needs its number"):
        plots.draw(summary, "png", "node")


def test_without_matplotlib_the_pip_line_is_named(summary, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(UsageError) as caught:
        plots.draw(summary, "png")
    assert caught.value.hint == "pip install 'imdh[plots]'"


def test_reports_import_neither_numba_nor_matplotlib():
    """What the terminal, JSON and the page need stays light; pictures load matplotlib when drawn."""
    code = (
        "import sys; from imdh_cli.report import agreement, page, plots, scatter, summary, terminal;"
        "print(*sorted({'numba', 'matplotlib', 'pyarrow', 'pandas', 'scipy'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == ""
