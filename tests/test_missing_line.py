"""`--missing error` names the line of a text file as an editor shows it, wherever the cell stands."""

from __future__ import annotations

import bz2
import gzip
import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from tests.cli import imdh

NOISE = np.random.default_rng(0).normal(size=(400, 2)).round(3)
HERE = "here it is"


def rows(at: int, sep: str = ",", text: str = "t", n: int = 400) -> list[str]:
    """Rows of a text and two numbers; row `at`, counted from 0, lacks one of these and says so."""
    cells = [[text, str(a), str(b)] for a, b in NOISE[np.arange(n) % 400]]
    cells[at][:2] = HERE, ""
    return [sep.join(row) for row in cells]


def line_of(text: str) -> int:
    return text[: text.index(HERE)].count("\n") + 1


QUOTED = '"two\nlines, or ""three""\n of them"'
TEXTS: dict[str, tuple[str, list[str]]] = {
    "plain": ("s,a,b\n" + "\n".join(rows(317)), []),
    "the first row": ("s,a,b\n" + "\n".join(rows(0)), []),
    "the last row": ("s,a,b\n" + "\n".join(rows(399)), []),
    "quoted newlines": ("s,a,b\n" + "\n".join(rows(317, text=QUOTED)), []),
    "a header of two lines": ('"s\nt",a,b\n' + "\n".join(rows(317)), []),
    "blank lines": ("\n\ns,a,b\n\n" + "\n\n\n".join(rows(317)), []),
    "the separator told above": ("sep=;\ns;a;b\n" + "\n".join(rows(317, ";")), []),
    "no header": ("\n".join(rows(317, text=QUOTED)), ["--no-header"]),
    "blank lines and no header": ("\n\n" + "\n".join(rows(317)), ["--no-header"]),
    "a byte order mark": ("\ufeffs,a,b\n" + "\n".join(rows(317, text="é")), []),
    "bad rows before": ("s,a,b\n1,2\nx,y,z\n" + "\n".join(rows(317)), ["--on-bad-row", "skip"]),
    "two rows that lack it": ("s,a,b\n" + "\n".join([*rows(317), "t,,1"]), []),
    "infinite": ("s,a,b\n" + "\n".join(rows(317)).replace(HERE + ",", HERE + ",inf"), []),
}


@pytest.mark.parametrize("name", TEXTS)
@pytest.mark.parametrize("stored", ["lf", "crlf", "gz", "bz2", "stdin", "utf-16", "latin-1"])
def test_the_line_of_a_csv_is_named(name: str, stored: str, tmp_path: Path) -> None:
    text, words = TEXTS[name]
    if stored in ("utf-16", "latin-1"):
        text = text.removeprefix("\ufeff")
    data = text.replace("\n", "\r\n" if stored == "crlf" else "\n").encode(
        stored if stored in ("utf-16", "latin-1") else "utf-8"
    )
    words = [*words, *(["--encoding", stored] if stored == "latin-1" else [])]
    pack: dict[str, Callable[[bytes], bytes]] = {"gz": gzip.compress, "bz2": bz2.compress}
    (tmp_path / "t.csv").write_bytes(pack.get(stored, bytes)(data))
    where, stdin = ("-", data) if stored == "stdin" else (tmp_path / "t.csv", b"")
    said = imdh("fit", where, "--missing", "error", *words, "-q", stdin=stdin, status=3).err
    assert f", line {line_of(text)} (row " in said
    assert f"the value is {'infinite' if name == 'infinite' else 'missing'}" in said


@pytest.fixture(params=[6000, pytest.param(120_000, marks=pytest.mark.long)])
def many(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> int:
    """The rows of a file that is read in pieces: of the usual size, or smaller ones."""
    if request.param == 6000:
        monkeypatch.setattr("imdh_cli.sources.csv.file.BLOCK", 1 << 12)
        for name, size in {"BLOCK": 1 << 12, "HEAD": 1 << 14, "PLACE": 1 << 10, "LEAST": 1 << 10}.items():
            monkeypatch.setattr(f"imdh_cli.sources.jsonl.file.{name}", size)
    return request.param


@pytest.mark.parametrize("buffer", [100, 1_000_000])
@pytest.mark.parametrize("place", [0, 0.38, 1])
def test_it_is_the_line_in_a_piece_of_a_large_file_too(
    place: float, buffer: int, many: int, tmp_path: Path
) -> None:
    at = int(place * (many - 1))
    text = "s,a,b\n" + "\n".join(rows(at, text='"a\nb"', n=many))
    (tmp_path / "t.csv").write_text(text)
    words = ["--missing", "error", "-q", "--buffer-rows", buffer]
    said = imdh("fit", tmp_path / "t.csv", *words, status=3).err
    assert f"t.csv, line {line_of(text)} (row {at + 1}), column" in said


@pytest.mark.parametrize("buffer", [100, 1_000_000])
@pytest.mark.parametrize("blank", ["", "\n\n"])
@pytest.mark.parametrize("place", [0, 0.15, 1])
def test_the_line_of_a_record_is_named(
    place: float, blank: str, buffer: int, many: int, tmp_path: Path
) -> None:
    at = int(place * (many - 1))
    records = many // 400 * [json.dumps({"s": "t", "a": a, "b": b}) for a, b in NOISE.tolist()]
    records[at] = json.dumps({"s": HERE, "a": None, "b": 1})
    text = blank + ("\n" + blank).join(records)
    (tmp_path / "t.jsonl").write_text(text)
    words = ["--missing", "error", "-q", "--buffer-rows", buffer]
    said = imdh("fit", tmp_path / "t.jsonl", *words, status=3).err
    assert f't.jsonl, line {line_of(text)}, column "a": the value is missing' in said


def test_assign_names_it_too_and_so_do_lists_and_parsed_text(tmp_path: Path) -> None:
    plain = "s,a,b\n" + "\n".join(rows(3)).replace(HERE + ",", HERE + ",1")
    (tmp_path / "plain.csv").write_text(plain)
    imdh("fit", tmp_path / "plain.csv", "-o", tmp_path / "m.npz", "-q")
    text = "s,a,b\n" + "\n".join(rows(317, text=QUOTED))
    (tmp_path / "t.csv").write_text(text)
    said = imdh("assign", tmp_path / "m.npz", tmp_path / "t.csv", "--missing", "error", "-q", status=3).err
    assert f"t.csv, line {line_of(text)} (row 318)" in said
    for cell, words in (('"[1]"', ["-c", "v"]), ("many", ["--parse", "v", "-c", "v"])):
        good = '"[{0},{1}]"' if "c" in words[0] and cell != "many" else '"1,00{0}"'
        lines = [f"{QUOTED},{good.format(i % 7, i % 5)}" for i in range(300)]
        lines[200] = f"{HERE},{cell}"
        text = "s,v\n" + "\n".join(lines)
        (tmp_path / "v.csv").write_text(text)
        said = imdh("fit", tmp_path / "v.csv", "-q", *words, status=3).err
        assert f"v.csv, line {line_of(text)} (row 201), column" in said
