"""`imdh prune --rename`: people call clusters by names, which stay with the nodes of the tree."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path

import pandas as pd
import pyarrow.parquet as pq
import pytest

from tests.cli import blobs, imdh, labels, metadata, one_line_error, write


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    """t.parquet, and four.npz, its model with four clusters of which two have names."""
    path = tmp_path_factory.mktemp("names")
    X, _ = blobs(4000, k=4)
    X[7, 1] = float("nan")
    imdh("fit", write(path / "t.parquet", X), "-k", 4, "-o", path / "four.npz")
    imdh("prune", path / "four.npz", "--rename", '1=Nordics,"3=Alps, high"')
    return path


@pytest.fixture
def model(folder, tmp_path) -> Path:
    """A copy that may be changed."""
    path = tmp_path / "m.npz"
    path.write_bytes((folder / "four.npz").read_bytes())
    return path


def names(model: Path) -> list[str | None]:
    return [cluster["name"] for cluster in imdh("report", model, "--json").json["clusters"]]


def test_a_name_is_kept_by_the_node_of_the_cluster(folder):
    assert names(folder / "four.npz") == ["Nordics", None, "Alps, high", None]
    clusters = imdh("report", folder / "four.npz", "--json").json["clusters"]
    kept = metadata(folder / "four.npz")["cluster_names"]
    assert kept == {str(clusters[0]["node"]): "Nordics", str(clusters[2]["node"]): "Alps, high"}


@pytest.mark.parametrize("k", [1, 2, 3, 7, 15])
def test_names_survive_another_number_of_clusters_and_come_back(folder, model, k):
    imdh("prune", model, "-k", k)
    kept = metadata(model)["cluster_names"]
    clusters = imdh("report", model, "--json").json["clusters"]
    assert [c["name"] for c in clusters] == [kept.get(str(c["node"])) for c in clusters]
    imdh("prune", model, "-k", 4)
    assert model.read_bytes() == (folder / "four.npz").read_bytes()


def test_names_survive_a_recount(folder, model):
    imdh("prune", model, folder / "t.parquet")
    assert names(model) == ["Nordics", None, "Alps, high", None]


def test_names_survive_new_rows(folder, tmp_path):
    update = ["--update", folder / "four.npz", "-o", tmp_path / "grown.npz"]
    imdh("fit", folder / "t.parquet", *update)
    assert metadata(tmp_path / "grown.npz")["cluster_names"] == metadata(folder / "four.npz")["cluster_names"]


def test_numbers_are_those_after_the_pruning_of_the_same_call(model):
    imdh("prune", model, "-k", 2, "--rename", "2=East")
    assert names(model)[1] == "East"


def test_an_empty_name_takes_it_away_and_another_replaces_it(model):
    imdh("prune", model, "--rename", "1=,3=Carpathians")
    assert names(model) == [None, None, "Carpathians", None]
    imdh("prune", model, "--rename", "3=")
    assert "cluster_names" not in metadata(model)


@pytest.mark.parametrize(
    ("rename", "said"),
    [
        ("2=a,4=a", "2 clusters would be called a"),
        ("2= Nordics", "2 clusters would be called Nordics"),
        ("2=a,2=b", "cluster 2 is named twice"),
    ],
)
def test_no_two_clusters_have_one_name(model, rename, said):
    before = model.read_bytes()
    assert said in one_line_error(imdh("prune", model, "--rename", rename, status=2).err)
    assert model.read_bytes() == before


def test_names_can_be_exchanged(model):
    imdh("prune", model, "--rename", '"1=Alps, high",3=Nordics')
    assert names(model) == ["Alps, high", None, "Nordics", None]


def test_a_node_out_of_sight_gives_up_a_name_that_goes_to_another(model):
    imdh("prune", model, "-k", 1, "--rename", "1=Nordics")
    imdh("prune", model, "-k", 4)
    assert names(model) == [None, None, "Alps, high", None]


@pytest.mark.parametrize("rename", ["0=a", "5=a", "x=a", "Nordics", "1:a", "=a", "-1=a", "1=" + 1001 * "a"])
def test_what_names_no_cluster_is_refused_and_nothing_written(model, rename):
    before = model.read_bytes()
    assert "--rename" in one_line_error(imdh("prune", model, f"--rename={rename}", status=2).err)
    assert model.read_bytes() == before


def test_every_report_shows_the_names(folder, tmp_path):
    model = folder / "four.npz"
    text = imdh("report", model).text
    head = next(line for line in text.splitlines() if line.startswith("#"))
    assert head.split()[:3] == ["#", "name", "rows"]
    assert "Alps, high" in text
    assert "cluster 3, Alps, high  " in imdh("report", model, "--tree").text
    rows = list(csv.DictReader(io.StringIO(imdh("report", model, "--csv").text)))
    assert {(row["cluster"], row["name"]) for row in rows} == {
        ("1", "Nordics"), ("2", ""), ("3", "Alps, high"), ("4", "")
    }  # fmt: skip
    page = imdh("report", model, "--html", "-").text
    assert "Cluster 3: Alps, high</h3>" in page
    assert '<a class="pill" href="#cluster-1">1</a> Nordics<' in page
    assert page.count("Nordics") == 3  # and in the picture of the tree
    imdh("report", model, "--plot", tmp_path / "tree.svg")
    assert "Nordics" in (tmp_path / "tree.svg").read_text()


def test_a_report_without_names_has_no_column_for_them(model):
    imdh("prune", model, "--rename", "1=,3=")
    assert "name" not in imdh("report", model).text


def test_assign_writes_the_names_beside_the_labels(folder, tmp_path):
    imdh(
        "assign",
        folder / "four.npz",
        folder / "t.parquet",
        "--names",
        "--with",
        "node",
        "-o",
        tmp_path / "l.parquet",
    )
    got = pq.read_table(tmp_path / "l.parquet")
    assert got.column_names == ["cluster", "cluster_name", "node"]
    called = {1: "Nordics", 2: None, 3: "Alps, high", 4: None, -1: None}
    assert got["cluster_name"].to_pylist() == [called[k] for k in got["cluster"].to_pylist()]
    assert got["cluster"][7].as_py() == -1


def test_another_cut_of_assign_has_the_names_of_its_nodes(folder, tmp_path):
    imdh(
        "assign",
        folder / "four.npz",
        folder / "t.parquet",
        "--names",
        "-k",
        9,
        "--with",
        "node",
        "-o",
        tmp_path / "l.csv",
    )
    got = pd.read_csv(tmp_path / "l.csv", keep_default_na=False)
    kept = metadata(folder / "four.npz")["cluster_names"]
    nodes = [node.removesuffix(".0") for node in got["node"].astype(str)]
    assert got["cluster_name"].tolist() == [kept.get(node, "") for node in nodes]


def test_folders_by_cluster_hold_the_names(folder, tmp_path):
    imdh(
        "assign",
        folder / "four.npz",
        folder / "t.parquet",
        "--names",
        "--partition-by-cluster",
        tmp_path / "by",
    )
    assert set(pd.read_parquet(tmp_path / "by" / "cluster=1")["cluster_name"]) == {"Nordics"}


def test_a_model_without_names_is_noted_and_a_column_of_the_name_refused(folder, model, tmp_path):
    ran = imdh(
        "assign",
        folder / "four.npz",
        folder / "t.parquet",
        "--names",
        "--with",
        "node",
        "--name",
        "x1",
        "--keep",
        "x1",
        status=2,
    )
    assert '"x1"' in one_line_error(ran.err)
    imdh("prune", model, "--rename", "1=,3=")
    ran = imdh("assign", model, folder / "t.parquet", "--names", "-o", tmp_path / "l.csv")
    assert "note: no cluster has a name; imdh prune" in ran.err
    assert len(labels(tmp_path / "l.csv")) == 4000


def test_names_cannot_steer_a_terminal(model):
    imdh("prune", model, "--rename", "1=\x1b[31mred")
    assert json.loads(imdh("report", model, "--json").out)["clusters"][0]["name"] == "\x1b[31mred"
    for words in ([], ["--tree"]):
        assert b"\x1b" not in imdh("report", model, *words).out
