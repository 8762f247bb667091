"""Options: what they refuse at once, and what the help pages say of them."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

import click
import numpy as np
import pytest

from imdh_cli.cli.command import argument, command
from imdh_cli.cli.console import OutputOptions
from imdh_cli.option import Given, option
from imdh_cli.words import listing
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


def test_more_passes_than_anybody_waits_for_are_refused_with_the_range():
    said = one_line_error(imdh("fit", "nothing.csv", "--passes", 99999999, status=2).err)
    assert said == "Invalid value for '--passes': '99999999' is neither a number from 1 to 10,000 nor auto"


def test_more_clusters_than_are_allowed_is_a_contradiction():
    said = one_line_error(imdh("fit", "nothing.csv", "-k", 5, "--max-clusters", 3, status=2).err)
    assert said == "-k 5 is more than --max-clusters 3 allows"


def test_valleys_are_not_a_number_that_was_asked_for(model, tmp_path):
    ran = imdh("prune", model, "-k", "valleys", "-o", tmp_path / "v.npz")
    assert ran.err.startswith("3 clusters, by significant valleys; wrote")
    assert "3 is also what the program chooses by itself" in ran.err
    assert "How many  3 clusters, by significant valleys" in imdh("report", tmp_path / "v.npz").text
    ran = imdh("prune", model, "-k", "valleys", "--max-clusters", 2, "-o", tmp_path / "two.npz")
    assert "no more than 2 clusters may be chosen" in ran.err
    text = " ".join(imdh("report", tmp_path / "two.npz").text.split())
    assert "no more than 2 clusters may be chosen" in text


def test_the_least_size_is_named_where_it_is_the_cause(model, tmp_path):
    ran = imdh("prune", model, "--min-size", 550, "-o", tmp_path / "one.npz")
    assert "There are valleys deeper than chance makes one, but no cut" in ran.err
    assert "(--min-size), so all rows are one cluster" in imdh("report", tmp_path / "one.npz").text
    words = ("-k", 2, "--min-size", 550, "-o", tmp_path / "two.npz")
    said = one_line_error(imdh("prune", model, *words, status=2).err)
    assert said == "2 clusters were asked for, but --min-size 550 leaves room for only 1"


# --- what is said of the input --------------------------------------------------------------------


def test_no_data_at_a_terminal_is_the_help_and_an_error(monkeypatch):
    monkeypatch.setattr("imdh_cli.cli.inputs._at_terminal", lambda: True)
    ran = imdh("fit", status=2)
    assert ran.err.startswith("Usage: imdh fit")
    assert ran.err.splitlines()[-2:] == [
        "error: no DATA were named",
        "hint: name files or folders, or - for stdin",
    ]


def test_reading_from_a_terminal_is_said_at_once(monkeypatch):
    monkeypatch.setattr("imdh_cli.cli.inputs._at_terminal", lambda: True)
    ran = imdh("fit", "-", status=3)
    assert ran.err.splitlines()[0] == "reading what is typed; Ctrl-D ends it"


def test_a_model_in_the_place_of_data_is_told(table, model):
    for words in (["assign", model], ["prune", model], ["fit"]):
        ran = imdh(*words, model, status=3)
        assert one_line_error(ran.err) == f"{model}: this is a model, not data"
    for name in ("assign", "prune", "report"):
        ran = imdh(name, table, model, status=4)
        assert one_line_error(ran.err) == f"{table}: not a model file, but {model} is"
        assert f"the model comes first: imdh {name} MODEL DATA" in ran.err


def test_a_file_that_looks_like_an_option_is_told_how_to_name(table, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "-dash.csv").write_bytes(table.read_bytes())
    ran = imdh("fit", "-dash.csv", status=2)
    assert "hint: a file whose name starts with - is given as ./-dash.csv" in ran.err
    imdh("fit", "./-dash.csv", "--depth", 2)


def test_a_zip_of_arrays_is_no_model(tmp_path, model):
    np.savez(tmp_path / "z.npz", a=np.zeros((9, 2)))
    for words in (["fit"], ["assign", model], ["report", model]):
        ran = imdh(*words, tmp_path / "z.npz", status=3)
        assert (
            one_line_error(ran.err) == f"{tmp_path}/z.npz: this is a zip of NumPy arrays, which is not read"
        )


@pytest.mark.parametrize(
    ("words", "said", "hint"),
    [
        (["fit", "--seed", "9" * 23], "is more than 9,223,372,036,854,775,807", "imdh fit"),
        (["fit", "-k", "9" * 23], "is more than 9,223,372,036,854,775,807", "imdh fit"),
        (["fit", "--seed", "-1"], "-1 is not in the range x>=0", "imdh fit"),
        (["fit", "--seed", "x"], "'x' is not a valid whole number", "imdh fit"),
        (["fit", "--alpha", "x"], "'x' is not a valid number", "imdh fit"),
        (["prune", "m.npz", "--rename", ""], "leaves one empty: as in 1=NAME,2=NAME", "imdh prune"),
        (["assign", "m.npz", "--with", ""], "leaves one empty: there are node, leaf", "imdh assign"),
        (["assign", "m.npz", "--keep", "a,"], "leaves one empty: column names", "imdh assign"),
        (["sql", "m.npz", "--check"], "'--check' requires an argument", "imdh sql"),
        (["report", "m.npz", "--plot"], "'--plot' requires an argument", "imdh report"),
    ],
)
def test_a_value_that_is_no_value_is_told_with_the_page_of_its_command(words, said, hint):
    ran = imdh(*words, status=2)
    assert said in one_line_error(ran.err)
    assert f"hint: see {hint} --help" in ran.err


def test_several_values_too_close_to_tell_apart_are_not_called_constant(tmp_path):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(300, 4)) * [1e-200, 1.0, 0.0, 3e-7] + [0.0, 0.0, 0.1, 1e9]
    data = write(tmp_path / "t.parquet", X, ["tiny", "plain", "same", "far"])
    said = imdh("fit", data, "-o", tmp_path / "m.npz").err
    assert 'note: constant, so of no use as a feature: "same"\n' in said
    assert (
        'note: too little spread for the doubles that hold it, so taken without scaling: "tiny" and "far"; '
        in said
    )
    shown = " ".join(imdh("report", tmp_path / "m.npz").text.split())
    assert "Constant, so they tell nothing: same." in shown
    assert "Too little spread for the doubles that hold it: tiny and far." in shown


def test_a_column_of_labels_that_becomes_a_feature_is_noted(table, model, tmp_path):
    again = tmp_path / "again.csv"
    imdh("assign", model, table, "--keep-all", "--with", "node", "-o", again)
    told = "leave it out with -x cluster,node"
    assert told in imdh("fit", again, "-n").err
    for words in (["-x", "cluster,node"], ["-c", "x1,cluster"]):
        assert "earlier run" not in imdh("fit", again, "-n", *words).err
    assert "earlier run" not in imdh("fit", table, "-n").err


def test_kept_columns_of_a_csv_are_said_to_be_text_where_types_are_known(table, model, tmp_path):
    told = "note: kept columns of a CSV are text in {}, byte for byte as read"
    for name in ("l.parquet", "l.arrow", "l.feather"):
        ran = imdh("assign", model, table, "--keep", "x1", "-o", tmp_path / name)
        assert ran.err.splitlines()[0] == told.format(tmp_path / name)
    ran = imdh("assign", model, table, "--keep-all", "--partition-by-cluster", tmp_path / "parts")
    assert told.format(tmp_path / "parts") in ran.err
    quiet = (["--keep", "x1", "-o", tmp_path / "l.csv"], ["-o", tmp_path / "m.parquet"])
    for words in quiet:
        assert "note" not in imdh("assign", model, table, *words).err


def test_constant_features_are_named(tmp_path):
    X = blobs(600)[0]
    data = write(tmp_path / "t.csv", X, one=[7] * 600, zero=[0.0] * 600)
    said = imdh("fit", data, "-o", tmp_path / "m.npz").err
    assert 'note: constant, so of no use as features: "one" and "zero"\n' in said


def test_a_column_that_is_left_out_is_told_once(tmp_path):
    data = write(tmp_path / "t.csv", blobs(600)[0], kind=["a"] * 600, other=range(0, 1200, 2))
    said = imdh("fit", data, "-x", "other", "-v", "-o", tmp_path / "m.npz").err
    assert said.count("kind") == 1
    assert said.count("other") == 1


def test_a_checkpoint_of_an_earlier_run_is_noted(table, tmp_path):
    left = tmp_path / "m.npz.checkpoint"
    left.write_bytes(b"an earlier state")
    words = ("fit", table, "-o", tmp_path / "m.npz", "-f", "--depth", 2)
    told = f"{left} holds rows of an earlier run: --resume goes on from it, or remove it"
    assert told in imdh(*words).err
    assert left.read_bytes() == b"an earlier state"
    assert f"{left} of an earlier run is replaced" in imdh(*words, "--checkpoint", 60).err
    assert "earlier run" not in imdh(*words).err


@pytest.mark.parametrize(
    ("speed", "words"),
    [
        (0.4, "0 rows/s"),
        (240, "240 rows/s"),
        (31_400, "31 thousand rows/s"),
        (1.25e6, "1.25 million rows/s"),
    ],
)
def test_a_speed_is_said_in_a_unit_that_shows_it(speed, words):
    from imdh_cli.words import speed_in_words

    assert speed_in_words(speed) == words


def test_the_parts_of_a_cluster_are_listed():
    from imdh_cli.cli.messages import change_lines

    fate = {"cluster": 2, "node": 5, "became": [3, 4, 5], "how": "split"}
    assert list(change_lines([fate])) == ["cluster 2 (node 5) was split into clusters 3, 4 and 5"]


def test_views_that_exclude_each_other_are_listed(model):
    said = one_line_error(imdh("report", model, "--csv", "--tree", "--node", 1, status=2).err)
    assert said == "--csv, --tree and --node cannot be had at once"


# --- one field, one option ------------------------------------------------------------------------


@dataclass(frozen=True)
class Inner:
    few: tuple[Literal["a", "b"], ...] = option((), "Some.", "--of")
    header: bool = option(True, "No.", "--no-header")
    rate: float = option(0.5, "How fast.", min=0, max=1, above=True)
    limit: int | Literal["auto"] = option("auto", "How many.", min=2, section="Method")
    words: tuple[str, ...] = option((), "Each.", repeatable=True)
    plain: int = 7


@dataclass(frozen=True, kw_only=True)
class Outer:
    data: tuple[str, ...] = argument("DATA...")
    given: Given[Inner]
    out: OutputOptions


@pytest.mark.parametrize(
    ("words", "changes"),
    [
        ("", {}),
        ("--of b,a,b --rate 1", {"few": ("b", "a"), "rate": 1.0}),
        ("--no-header --limit 2", {"header": False, "limit": 2}),
        ("--limit auto --words x,y --words z", {"words": ("x,y", "z")}),
    ],
)
def test_a_command_gets_what_was_typed_as_a_value_of_its_dataclass(words, changes):
    got = []
    typed = command(Outer, examples="")(lambda o, console: got.append(o))
    typed.main([*words.split(), "d.csv"], standalone_mode=False)
    assert got[0].given.over(Inner()) == replace(Inner(), **changes)
    other = Inner(header=False, rate=0.25, limit=9, plain=8)
    assert got[0].given.over(other) == replace(
        other, **changes | ({"limit": "auto"} if "auto" in words else {})
    )
    assert got[0].data == ("d.csv",)


@pytest.mark.parametrize(
    "words", ["--of c", "--rate 0", "--rate 1.1", "--rate nan", "--limit 1", "--limit no"]
)
def test_a_command_refuses_what_the_field_does_not_allow(words):
    typed = command(Outer, examples="")(lambda o, console: None)
    with pytest.raises(click.BadParameter):
        typed.main([*words.split(), "d.csv"], standalone_mode=False)


def test_an_option_is_described_by_its_field():
    typed = command(Outer, examples="")(lambda o, console: None)
    page = " ".join(typed.get_help(click.Context(typed)).split())
    assert "--rate X How fast. Default: 0.5. [0<x<=1]" in page
    assert "Method: --limit N|auto How many. Default: auto. [x>=2]" in page
    assert "plain" not in page


# --- help -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("command", "told"),
    [
        ("fit", "Default: skip; with --update, as MODEL was fitted."),
        ("fit", "Writes to -o, by default model.npz; -o MODEL -f replaces MODEL."),
        ("assign", "Default: as MODEL was fitted."),
        ("assign", "FILE.csv or .tsv (also .gz, .zst, .bz2), .parquet, .arrow or .feather"),
        ("assign", "Those of a CSV are text, byte for byte"),
        ("prune", "It only shows: nothing is written without -o."),
    ],
)
def test_the_help_says_what_is_asked_most(command, told):
    assert told in " ".join(imdh(command, "--help").text.split())


@pytest.mark.parametrize(
    ("items", "words"), [([], ""), (["1"], "1"), (["1", "2"], "1 or 2"), (["1", "2", "3"], "1, 2 or 3")]
)
def test_alternatives_are_listed(items, words):
    assert listing(items, last="or") == words


@pytest.mark.parametrize("command", ["fit", "prune", "assign", "report"])
def test_the_help_lists_every_option_once_and_those_of_reading_apart(command):
    import importlib

    page = imdh(command, "--help").text
    module = importlib.import_module(f"imdh_cli.cli.{command}")
    lines = page.split("\nOptions:\n")[1].splitlines()
    listed = [line.split()[0].rstrip(",") for line in lines if line.startswith("  -")]
    names = [p.opts[0] for p in getattr(module, command).params if p.opts[0].startswith("-")]
    assert sorted(listed) == sorted([*names, "-h"])
    options, reading = page.split("\nReading DATA:\n")
    assert "--delimiter" in reading
    assert "--json" in options.split("\nOptions:\n")[1]
