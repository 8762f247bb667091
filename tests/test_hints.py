"""A hint that is a command, or an option, works when it is typed."""

from __future__ import annotations

import bz2
import gzip
import io
import json
import lzma
import pickle
import re
import shlex
import shutil
import sqlite3
import subprocess
import tarfile
import warnings
import zipfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.feather
import pytest

from tests.cli import Ran, imdh, metadata, shell
from tests.needs import missing

ROWS = np.random.default_rng(0).normal(size=(300, 2)) + 8 * (np.arange(300) % 2)[:, None]
CSV = "x,y\n" + "".join(f"{a:.6f},{b:.6f}\n" for a, b in ROWS)
RECORDS = [{"x": a, "y": b} for a, b in ROWS.tolist()]


def zipped(**files: str | bytes) -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as archive:
        for name, text in files.items():
            archive.writestr(name.replace("_", "."), text)
    return out.getvalue()


def tarred() -> bytes:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as archive:
        about = tarfile.TarInfo("t.csv")
        about.size = len(CSV)
        archive.addfile(about, io.BytesIO(CSV.encode()))
    return out.getvalue()


def database(path: Path) -> None:
    with sqlite3.connect(path) as db:
        db.execute('CREATE TABLE "my points" (x REAL, y REAL)')
        db.executemany('INSERT INTO "my points" VALUES (?, ?)', ROWS.tolist())
    db.close()


def workbook(path: Path) -> None:
    pd.DataFrame(RECORDS).to_excel(path, index=False)


def pickled(protocol: int) -> bytes:
    return pickle.dumps(pd.DataFrame(RECORDS), protocol=protocol)


def arrays_in_a_zip() -> bytes:
    out = io.BytesIO()
    np.savez(out, rows=ROWS, more=ROWS[0])
    return out.getvalue()


def hdf(path: Path) -> None:
    pytest.importorskip("tables", exc_type=ImportError)
    pd.DataFrame(RECORDS).to_hdf(path, key="points")


def seven_zip(path: Path) -> None:
    (path.parent / "inside.csv").write_text(CSV)
    subprocess.run(["7z", "a", path.name, "inside.csv"], cwd=path.parent, check=True, capture_output=True)


def feather_1(path: Path) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # deprecated, and there all the same
        pyarrow.feather.write_feather(pd.DataFrame(RECORDS), str(path), version=1)


FILES: dict[str, tuple[str, bytes | str | Callable[[Path], None], str]] = {
    "xz": ("a b.csv.xz", lzma.compress(CSV.encode()), "xz"),
    "zip": ("t.zip", zipped(t_csv=CSV), "unzip"),
    "gz in a zip": ("t.zip", zipped(t_csv_gz=gzip.compress(CSV.encode())), "unzip"),
    "two files in a zip": ("t.zip", zipped(readme_txt="no table", t_csv=CSV), "unzip"),
    "lz4": ("t.lz4", bytes(pa.Codec("lz4").compress(CSV.encode(), asbytes=True)), "lz4"),
    "tar": ("t.tar", tarred(), "tar"),
    "sqlite": ("t.db", database, "sqlite3"),
    "xlsx": ("t.xlsx", workbook, "bash"),
    "pickle": ("t.pkl", pickled(5), "bash"),
    "pickle of protocol 4": ("a b.pkl", pickled(4), "bash"),
    "pickle of protocol 2": ("t.pickle", pickled(2), "bash"),
    "pickle of an array": ("t.pkl", pickle.dumps(ROWS), "bash"),
    "zip of arrays": ("t.npz", arrays_in_a_zip(), "bash"),
    "HDF5": ("t.h5", hdf, "bash"),
    "7-Zip": ("t.7z", seven_zip, "7z"),
    "feather of version 1": ("t.feather", feather_1, "bash"),
    "json array": ("it's.json", json.dumps(RECORDS), "jq"),
    "json array over lines": ("t.json", json.dumps(RECORDS, indent=1), "jq"),
    "json over lines": ("t.jsonl", "".join(json.dumps(r, indent=2) + "\n" for r in RECORDS), "jq"),
}


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def here(line: str) -> Ran:
    """What a line does of which a shell makes no more than words."""
    program, *words = shlex.split(line)
    assert program == "imdh"
    return imdh(*words, status=None)


def typed(hint: str) -> str:
    """The command in a hint."""
    found = re.search(r"(?:^|: )(\S+ [^:]*\| imdh .*)$", hint)
    assert found, hint
    return found[1]


def piped(line: str) -> Ran:
    """`PROGRAMS | imdh WORDS` as a shell runs it, but imdh in this process."""
    programs, _, words = line.rpartition("| imdh ")
    done = subprocess.run(["bash", "-o", "pipefail", "-c", programs], capture_output=True, check=False)
    assert done.returncode == 0, f"{line}\n{done.stderr.decode()}"
    return imdh(*shlex.split(words), stdin=done.stdout)


@pytest.mark.parametrize("name", FILES)
def test_what_is_not_read_is_read_as_the_hint_says(name: str, tmp_path: Path) -> None:
    file, content, tool = FILES[name]
    if shutil.which(tool) is None:
        # The hint tells what to do with a program that this machine lacks; whether what it prints can be read
        # is not to be seen without it, and `make test` installs nothing outside its environment.
        missing(tool, f"{tool} is not installed")
    if callable(content):
        content(tmp_path / file)
    else:
        (tmp_path / file).write_bytes(content.encode() if isinstance(content, str) else content)
    refused = here(f'imdh fit --seed 3 "{file}" -o m.npz')
    assert refused.status == 3, refused.err
    hint = refused.err.splitlines()[1].removeprefix("hint: ")
    done = piped(typed(hint))
    assert (tmp_path / "m.npz").exists()
    assert "300 rows used of 300" in done.err


def test_bz2_needs_no_hint(tmp_path: Path) -> None:
    (tmp_path / "t.bz2").write_bytes(bz2.compress(CSV.encode()))
    assert here("imdh fit t.bz2 -q").status == 0


# --- options ----------------------------------------------------------------------------------------

NOISE = np.random.default_rng(1).normal(size=40)


def lines(header: str, *cells: str, sep: str = ",") -> str:
    """A table of 40 rows; a cell is a pattern of {i}, {x} (some number) and {n} (a whole one)."""
    rows = [
        sep.join(cell.format(i=i, x=f"{x:.3f}", n=i * i % 23) for cell in cells) for i, x in enumerate(NOISE)
    ]
    return "\n".join([header, *rows, ""])


# content, what is typed, what the message holds, and the options that are taken from it
OPTIONS: dict[str, tuple[str, str, str, str]] = {
    "word": (lines("a,b", "{x}", "{n}") + "?,1\n", "", '"a": "?" is not a number', r"--null-value '\?'"),
    "negative word": (lines("a,b", "{x}", "{n}") + "-,1\n", "", '"-" is not a number', "--null-value=-"),
    "bad row": (lines("a,b", "{x}", "{n}") + "?,1\n", "", "not a number", "--on-bad-row skip"),
    "out": (lines("my a,b", "{x}", "{n}") + "?,1\n", "", "not a number", "-x 'my a'"),
    "ragged": (lines("a,b", "{x}", "{n}") + "1,2,3\n", "", "3 cells where there", "--on-bad-row skip"),
    "decimal comma": (lines("a;b", "1,{n}", "{n}", sep=";"), "-c a", "decimal comma", "--decimal ,"),
    "a decimal comma": (lines("a;b", "{n}", "{n}", sep=";") + "1,5;2\n", "", "not a number", "--decimal ','"),
    "blanks": (lines("a b", "{x}", "{n}", sep=" "), "", "separated by blanks", "--delimiter ' '"),
    "latin-1": ("ä,b\n" + lines("", "{x}", "{n}").lstrip(), "", "is not utf-8 text", "--encoding latin-1"),
    "utf-16": (lines("a,b", "{x}", "{n}"), "", "UTF-16", "--encoding utf-16-le"),
    "thousands": (lines("a,b", '"1,{i:03}"', "{n}"), "", 'left out "a" (such as "1,000")', "--parse a"),
    "no-break blanks": (lines("a,b", "1\u00a0{i:03}", "{n}"), "", 'left out "a"', "--parse a"),
    "thin blanks": (lines("a,b", "1\u2009{i:03}\u2009000", "{n}"), "", 'left out "a"', "--parse a"),
    "narrow blanks": (lines("a,b", "-1\u202f{i:03}.5", "{n}"), "", 'left out "a"', "--parse a"),
    "apostrophes": (lines("a,b", "1'{i:03}", "{n}"), "", 'left out "a"', "--parse a"),
    "minus": (lines("a,b", "\u2212{n}.5", "{n}"), "", 'left out "a"', "--parse a"),
    "dash": (lines("my a,b", "\u2013{n}.5", "{n}"), "", 'left out "my a"', "--parse 'my a'"),
    "one minus": (lines("a,b", "{n}", "{n}") + "\u22125,1\n", "", "is not a number", "--parse a"),
    "one thousand": (lines("a,b", "{n}", "{n}") + '"1,234.5",1\n', "", "is not a number", "--parse a"),
    "points": (lines("a;b", "1.{i:03},5", "{n}", sep=";"), "", 'left out "a"', "--decimal , --parse a"),
    "infinity": (lines("a,b", "{x}", "{n}") + "inf,1\n", "--missing error", "is infinite", "--missing skip"),
    "category": (lines("a,b", "{x}", "w{n}"), "", 'left out "b"', "--categorical onehot"),
    "named category": (lines("a,b", "{x}", "w{n}"), "-c a,b", '"b" is text', "--categorical onehot"),
    "vector": (lines("a,v", "{x}", '"[1,{n}]"'), "", "lists of 2 numbers", "-c v"),
}  # fmt: skip


@pytest.mark.parametrize("name", OPTIONS)
def test_an_option_in_a_message_mends_what_it_speaks_of(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    content, words, said, option = OPTIONS[name]
    encoding = {"latin-1": "latin-1", "utf-16": "utf-16-le"}.get(name, "utf-8")
    (tmp_path / "t.csv").write_text(content, encoding=encoding)
    monkeypatch.chdir(tmp_path)
    first = imdh("fit", "t.csv", "-o", "m.npz", "-f", *shlex.split(words), status=None)
    assert said in first.err
    found = re.search(option, first.err)
    assert found, first.err
    words = "" if words.startswith("--missing") else words
    mended = imdh("fit", "t.csv", "-o", "m.npz", "-f", *shlex.split(words), *shlex.split(found[0]))
    assert said not in mended.err


def test_a_column_is_found_by_a_part_of_its_name(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text(lines("latitude,longitude,size_mm", "{x}", "{n}", "{n}.5"))
    asked = {"lat": "latitude", "lon": "longitude", "Lat": "latitude", "mm": "size_mm"}
    for part, meant in asked.items():
        refused = imdh("fit", tmp_path / "t.csv", "-c", part, "-n", status=3)
        assert f'hint: did you mean "{meant}"' in refused.err


def test_accents_may_be_composed_or_not(tmp_path: Path) -> None:
    composed, apart = "caf\u00e9", "cafe\u0301"
    (tmp_path / "t.csv").write_text(lines(f"{apart},b,id", "{x}", "{n}", "r{i}"))
    (tmp_path / "u.csv").write_text(lines(f"{composed},b,id", "{x}", "{n}", "r{i}"))
    assert "2 features" in here(f"imdh fit t.csv -c {composed},b -o m.npz").err
    assert "1 feature" in here(f"imdh fit t.csv -x {composed} -o n.npz").err
    assert here(f"imdh assign m.npz t.csv --keep {composed}").text.startswith(f"{apart},cluster\n")
    other = here("imdh assign m.npz u.csv")
    assert other.status == 3
    assert "is spelled with other characters (another Unicode normal form)" in other.err


@pytest.mark.parametrize(
    ("above", "line"),
    [
        ("Monthly report,,\n,,\n", 3), ("Monthly report\n\n", 3), ("Report\nof May\n2024-05-31\n\n", 5),
        ("Report,,\n", 2), ("# by hand\n", 2),
    ],
)  # fmt: skip
@pytest.mark.parametrize("sep", [",", *(pytest.param(sep, marks=pytest.mark.long) for sep in ";\t")])
def test_a_title_above_the_header_is_told_from_it(above: str, line: int, sep: str, tmp_path: Path) -> None:
    text = above.replace(",", sep) + lines(sep.join("nab"), "w{i}", "{x}", "{n}", sep=sep)
    (tmp_path / "t.csv").write_text(text)
    refused = here("imdh fit t.csv -o m.npz")
    what = "comment" if above.startswith("#") else "title"
    assert f"t.csv: the header is on line {line}, below a {what}" in refused.err
    hint = refused.err.splitlines()[1].removeprefix("hint: ")
    assert "40 rows used of 40, 2 features" in piped(typed(hint)).err


@pytest.mark.parametrize(
    "text",
    [
        ",a,b\n0,1.5,2\n1,2.5,3\n",  # an index without a name
        "a,b\nx,y\n1,2\n",  # a line of units
        "a\nx\n1\n",
        "id,,\nk,l,m\n1,2,3\n"[:0] + "a,b,c\n,,\n1,2,3\n",  # an empty row
        "name,a\nx,1\ny,2\n",
    ],
)
def test_a_header_is_not_taken_for_a_title(text: str, tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text(text)
    assert "below a title" not in here("imdh fit t.csv").err


def test_aligned_columns_are_made_a_csv(tmp_path: Path) -> None:
    rows = "".join(f"{x:8.3f}  {n:6d}\n" for n, x in enumerate(NOISE))
    (tmp_path / "t.txt").write_text("       a       b\n" + rows)
    refused = here("imdh fit t.txt -o m.npz")
    hint = refused.err.splitlines()[1].removeprefix("hint: ")
    done = piped(typed(hint) + " -c a,b")
    assert "40 rows used of 40, 2 features" in done.err, done.err


def test_the_cell_that_is_shown_is_the_columns_own(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text(lines("price,share,n", "${n}.50", "1.{n}%", "{n}"))
    err = here("imdh fit t.csv -o m.npz").err
    assert 'left out "price" (such as "$0.50") and "share" (such as "1.0%"): text (numbers with units' in err


@pytest.mark.parametrize(
    "cell",
    ["{n}%", "{n}.5 %", "${n}", "-${n}", "€{n}", "{n} EUR", "USD {n}.25", "{n}kg", "{n}/h", "{n}°C"],
)
def test_units_are_taken_away_by_the_command_of_the_hint(cell: str, tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text(lines("b,code", cell, "3kg{n}"))
    refused = here("imdh fit t.csv -c b -o m.npz")
    assert f'column "b" is text, not numbers: it holds "{cell.format(n=0)}"' in refused.err
    command = re.search("hint: numbers with units; (sed .*) uses them", refused.err)
    assert command, refused.err
    done = piped(command[1].replace("FILE", "t.csv") + " -o m.npz")
    assert "40 rows used of 40, 1 feature," in done.err, done.err
    taken = shell(command[1].partition(" FILE")[0] + " t.csv", tmp_path).out.decode()
    assert [line.split(",")[1] for line in taken.splitlines()[1:]] == [f"3kg{i * i % 23}" for i in range(40)]


def test_one_number_with_a_unit_among_others_is_told_how_to_lose_it(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text(lines("b", "{n}.5", "") + "12 %,\n")
    refused = here("imdh fit t.csv -c b -o m.npz")
    assert '"12 %" is not a number' in refused.err
    command = re.search("""take "%" away: (sed -E '.*'),""", refused.err)
    assert command, refused.err
    done = piped(f"{command[1]} t.csv | imdh fit - -c b -o m.npz")
    assert "41 rows used of 41" in done.err, done.err


def test_a_rare_delimiter_is_named(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text(lines("a:b", "{n}", "{x}", sep=":"))
    refused = here("imdh fit t.csv -o m.npz")
    option = re.search("separated by :: add (--delimiter :)", refused.err)
    assert option, refused.err
    assert "40 rows used of 40, 2 features" in here(f"imdh fit t.csv -o m.npz {option[1]}").err


def test_where_no_column_is_left_each_is_told_what_to_do_with(tmp_path: Path) -> None:
    rows = [f'{i},"[{"1," * (1 + i % 2)}2]"\n' for i in range(40)]
    (tmp_path / "t.csv").write_text("id,v\n" + "".join(rows))
    refused = here("imdh fit t.csv -o m.npz")
    assert '"id": looks like an identifier (it is used when named with -c)' in refused.err
    assert '"v": lists of 2 to 3 numbers (give all of them one length to use them)' in refused.err


def test_numbers_of_several_units_are_not_made_alike(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text(lines("b,a", "{n} kg", "{n}") + "5 g,1\n")
    assert "write plain numbers, of one unit, to use them" in here("imdh fit t.csv -o m.npz").err


def test_one_reason_for_a_column_and_not_two(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text(lines("a;b", "1,{n}", "{n}", sep=";"))
    err = here("imdh fit t.csv -o m.npz").err
    assert err.count("--decimal ,") == 2  # the reader's note, and why the column is left out
    assert "onehot" not in err
    assert "--parse" not in err


def test_numbers_as_text_are_read_from_typed_files(tmp_path: Path) -> None:
    import pyarrow.parquet as pq

    text = [f"{x:.3f}" for x in NOISE]
    pq.write_table(pa.table({"t": text, "n": [str(i % 7) for i in range(40)]}), tmp_path / "t.parquet")
    refused = here("imdh fit t.parquet -o m.npz")
    assert refused.status == 3
    option = re.search(r"--parse \S+ uses", refused.err)
    assert option, refused.err
    done = here("imdh fit t.parquet -o m.npz --parse t,n")
    assert "40 rows used of 40, 2 features" in done.err
    assert here("imdh assign m.npz t.parquet -o o.csv -q").status == 0
    refused = here("imdh sql m.npz")
    assert 'column "t" is text that was read with --parse: no cast of SQL' in refused.err
    labelled = re.search("imdh assign .* -o labelled.parquet", refused.err)
    assert labelled, refused.err
    typed_in = labelled[0].replace("MODEL", "m.npz").replace("DATA", "t.parquet")
    assert here(typed_in).status == 0
    assert pq.read_table(tmp_path / "labelled.parquet").num_rows == 40
    bad = pa.table({"t": [*text, "x"], "n": ["1"] * 41})
    pq.write_table(bad, tmp_path / "t.parquet")
    wrong = here("imdh assign m.npz t.parquet -o o.csv -f")
    assert 't.parquet, row 41, column "t": "x" is not a number' in wrong.err
    assert here("imdh assign m.npz t.parquet -o o.csv -f -q --on-bad-row skip").status == 0


def test_codes_that_are_no_amounts_are_named_and_made_levels(tmp_path: Path) -> None:
    zips = ["10115", "20095", "50667", "80331", "99084"]
    rows = "".join(
        f"{zips[i % 5]},{x:.9f},{i % 5 + 1},{2015 + i % 6}\n"
        for i, x in enumerate(np.random.default_rng(0).standard_normal(9 * len(NOISE)))
    )
    (tmp_path / "t.csv").write_text("zip,x,stars,year\n" + rows)
    first = here("imdh fit t.csv -o m.npz")
    assert (
        '"zip": 5 whole numbers between 10115 and 99084; if they are codes and no amounts, --onehot zip'
        in first.err
    )
    assert '"stars"' not in first.err
    assert '"year"' not in first.err
    done = here("imdh fit t.csv -o m.npz -f --onehot zip")
    assert "8 features" in done.err
    assert "--onehot" not in done.err
    assert here("imdh assign m.npz t.csv -q -o o.csv").status == 0
    assert metadata(tmp_path / "m.npz")["features"]["columns"][0] == {"name": "zip", "levels": zips}


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda x: x * 1e-200, "too little spread for the doubles that hold it"),
        (lambda x: x * 0 + 3, "constant, so of no use as a feature"),
    ],
)
def test_little_spread_is_not_called_constant(
    make: Callable[[np.ndarray], np.ndarray], said: str, tmp_path: Path
) -> None:
    table = pd.DataFrame({"a": make(np.tile(NOISE, 3)), "b": np.tile(NOISE, 3)})
    table.to_parquet(tmp_path / "t.parquet")
    err = here("imdh fit t.parquet -o m.npz").err
    assert said in err
    assert ("constant" in err) == said.startswith("constant")


@pytest.mark.parametrize("rows", [40, 25_000])
def test_a_column_of_a_stream_without_a_value_is_left_out(rows: int, tmp_path: Path) -> None:
    cells = np.tile(NOISE, rows // 40)
    text = "a,b,c\n" + "".join(f"{x:.3f},,{i % 7}\n" for i, x in enumerate(cells))
    done = imdh("fit", "-", "-o", tmp_path / "m.npz", "--passes", "1", stdin=text.encode())
    assert f"{rows:,} rows used of {rows:,}, 2 features" in done.err
    assert 'left out "b": empty (it holds no value' in done.err


def test_a_column_of_a_stream_that_fills_late_is_a_feature(tmp_path: Path) -> None:
    cells = np.tile(NOISE, 500)
    text = "a,b\n" + "".join(f"{x:.3f},{i if i > 5000 else ''}\n" for i, x in enumerate(cells))
    done = imdh("fit", "-", "-o", tmp_path / "m.npz", "--missing", "mean", stdin=text.encode())
    assert "2 features" in done.err
