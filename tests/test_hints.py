"""A hint that is a command, or an option, works when it is typed."""

from __future__ import annotations

import bz2
import gzip
import io
import json
import lzma
import re
import shutil
import sqlite3
import tarfile
import zipfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

from tests.cli import shell

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


FILES: dict[str, tuple[str, bytes | str | Callable[[Path], None], str]] = {
    "xz": ("a b.csv.xz", lzma.compress(CSV.encode()), "xz"),
    "zip": ("t.zip", zipped(t_csv=CSV), "unzip"),
    "gz in a zip": ("t.zip", zipped(t_csv_gz=gzip.compress(CSV.encode())), "unzip"),
    "two files in a zip": ("t.zip", zipped(readme_txt="no table", t_csv=CSV), "unzip"),
    "lz4": ("t.lz4", bytes(pa.Codec("lz4").compress(CSV.encode(), asbytes=True)), "lz4"),
    "tar": ("t.tar", tarred(), "tar"),
    "sqlite": ("t.db", database, "sqlite3"),
    "xlsx": ("t.xlsx", workbook, "bash"),
    "json array": ("it's.json", json.dumps(RECORDS), "jq"),
    "json array over lines": ("t.json", json.dumps(RECORDS, indent=1), "jq"),
    "json over lines": ("t.jsonl", "".join(json.dumps(r, indent=2) + "\n" for r in RECORDS), "jq"),
}


def typed(line: str) -> str:
    """The command in a hint, as it is typed into a shell."""
    found = re.search(r"(?:^|: )(\S+ [^:]*\| imdh .*)$", line)
    assert found, line
    return found[1]


@pytest.mark.parametrize("name", FILES)
def test_what_is_not_read_is_read_as_the_hint_says(name: str, tmp_path: Path) -> None:
    file, content, tool = FILES[name]
    if shutil.which(tool) is None:
        pytest.skip(f"{tool} is not installed")
    if callable(content):
        content(tmp_path / file)
    else:
        (tmp_path / file).write_bytes(content.encode() if isinstance(content, str) else content)
    refused = shell(f'imdh fit --seed 3 "{file}" -o m.npz', tmp_path)
    assert refused.status == 3, refused.err
    hint = refused.err.splitlines()[1].removeprefix("hint: ")
    done = shell(typed(hint), tmp_path)
    assert done.status == 0, f"{hint}\n{done.err}"
    assert (tmp_path / "m.npz").exists()
    assert "300 rows used of 300" in done.err


def test_bz2_needs_no_hint(tmp_path: Path) -> None:
    (tmp_path / "t.bz2").write_bytes(bz2.compress(CSV.encode()))
    assert shell("imdh fit t.bz2 -q", tmp_path).status == 0
