"""What written files tell of the data: numbers as statistics, never a text, an id or a folder.

Strings and numbers that occur nowhere else are planted in the data, and every byte that any command
writes is searched for them, packed arrays in every width that NumPy has.
"""

from __future__ import annotations

import json
import os
import stat
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest

from imdh_cli.pipeline import checkpoint
from tests.cli import blobs, imdh, write

ROWS = 1500
TEXTS = [f"Zyxomma{i}" for i in range(5)]  # of people, places: columns that are no features
LEVELS = ["Quokka", "Numbat"]  # of the column that is named for --categorical onehot
FIRST_ID = 736_691_452_041  # ids count up from here
FOLDER = "Xenophyophore"  # the data lie in it


class World(NamedTuple):
    data: list[Path]
    folder: Path  # nothing but what the commands write


@pytest.fixture(params=["csv", "parquet"])
def world(request, tmp_path) -> World:
    data = tmp_path / FOLDER
    written = tmp_path / "written"
    data.mkdir()
    written.mkdir()
    X, _ = blobs(2 * ROWS)
    files = [data / f"part-{k}.{request.param}" for k in range(2)]
    for k, path in enumerate(files):
        rows = np.arange(k * ROWS, (k + 1) * ROWS)
        columns = {
            "person": [TEXTS[i % len(TEXTS)] for i in rows],
            "ticket": list(FIRST_ID + rows),
            "pet": [LEVELS[i % 2] for i in rows],
        }
        X[ROWS * k + 7, 1] = np.nan
        write(path, X[rows], **columns)
    return World(files, written)


def spellings() -> Iterator[bytes]:
    """What is planted, as text of any width, and ids also as numbers of any width."""
    ids = range(FIRST_ID, FIRST_ID + 2 * ROWS)
    for text in [*TEXTS, FOLDER, *map(str, ids[:: ROWS // 3])]:
        yield from (text.encode(code) for code in ("utf-8", "utf-16-le", "utf-32-le"))
    yield str(FIRST_ID)[:8].encode()  # of all of them
    for number in ids[:: ROWS // 3]:
        yield np.int64(number).tobytes()
        yield np.float64(number).tobytes()


def unpacked(path: Path) -> bytes:
    """A file's bytes, and where it is a zip those of its entries."""
    content = path.read_bytes()
    if zipfile.is_zipfile(path):
        with zipfile.ZipFile(path) as archive:
            content += b"".join(archive.read(name) for name in archive.namelist())
    return content


def assert_clean(where: str, content: bytes) -> None:
    found = [spelling for spelling in spellings() if spelling in content]
    assert not found, f"{where} holds {found[:3]}"


FIT = ["--id", "ticket", "-x", "pet", "-v", "--json", "--no-progress"]


def test_no_text_or_id_is_in_a_model_a_report_or_a_log(world):
    model, out = world.folder / "m.npz", world.folder
    said = [
        imdh("fit", *world.data, *FIT, "-o", model),
        imdh("fit", *world.data, "--update", model, "-v", "-o", out / "u.npz"),
        imdh("prune", model, "-k", 3, "-v", "-o", out / "three.npz"),
        imdh("prune", model, "--table", "--json"),
        imdh("report", model),
        imdh("report", model, "--json"),
        imdh("report", model, "--csv"),
        imdh("report", model, "--tree"),
        imdh("report", model, *world.data, "--drift", "--stability", 2, "--json"),
        imdh("report", model, out / "u.npz", *world.data),
        imdh("report", model, "--node", 1),
        imdh("report", model, *world.data, "--html", out / "page.html"),
        imdh("report", model, *world.data, "--plot", out / "split.svg", "--node", 1),
    ]
    for ran in said:
        assert_clean("what is printed", ran.out)
        lines = [line for line in ran.err.splitlines() if FOLDER not in line]  # a file is named as typed
        assert_clean("what is said", "\n".join(lines).encode())
    written = sorted(path.name for path in out.iterdir())
    assert written == ["m.npz", "page.html", "split.svg", "three.npz", "u.npz"]
    for path in out.iterdir():
        assert_clean(path.name, unpacked(path))


def test_labels_hold_no_column_that_was_not_asked_for(world):
    model, out = world.folder / "m.npz", world.folder
    imdh("fit", *world.data, "-x", "ticket", "-o", model)
    imdh("assign", model, *world.data, "-o", out / "labels.csv", "--with", "node,leaf,margin,distance")
    imdh("assign", model, *world.data, "-o", out / "labels.parquet")
    for path in out.iterdir():
        assert_clean(path.name, unpacked(path))


def test_only_levels_that_were_asked_for_are_in_a_model(world):
    model = world.folder / "m.npz"
    imdh("fit", *world.data, "-c", "x1,x2,pet", "--categorical", "onehot", "-o", model)
    assert_clean("the model", unpacked(model))
    assert json.loads(str(np.load(model)["metadata"]))["features"]["columns"][2]["levels"] == sorted(LEVELS)


def test_a_checkpoint_holds_rows_but_no_text_and_is_its_owners(world, monkeypatch):
    """Of the columns learned from, and of no other."""

    def keep(self: checkpoint.Checkpoint) -> None:
        os.link(self.path, world.folder / "kept")

    monkeypatch.setattr(checkpoint.Checkpoint, "remove", keep)
    buffer = ["--buffer-rows", 500, "--checkpoint", 1e-9]
    imdh("fit", *world.data, *FIT, *buffer, "-o", world.folder / "m.npz")
    kept = world.folder / "kept"
    assert stat.S_IMODE(kept.stat().st_mode) == 0o600
    with np.load(kept) as arrays:
        for name in set(arrays.files) - {"checkpoint"}:  # which names the inputs, to know them again
            assert_clean(name, arrays[name].tobytes())
        assert_clean("checkpoint", str(arrays["checkpoint"]).replace(FOLDER, "").encode())


def test_the_folder_of_a_file_that_lacks_a_column_is_not_in_the_model(tmp_path):
    (tmp_path / FOLDER).mkdir()
    X, _ = blobs(200)
    files = [tmp_path / FOLDER / f"{name}.parquet" for name in "ab"]
    write(files[0], X, ["x", "y", "z"])
    write(files[1], X[:, :2], ["x", "y"])
    imdh("fit", *files, "-o", tmp_path / "m.npz")
    content = unpacked(tmp_path / "m.npz")
    assert_clean("the model", content)
    assert "b.parquet" in str(np.load(tmp_path / "m.npz")["metadata"])
