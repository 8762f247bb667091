"""NumPy matrices: rows in order, whatever their type and layout, from files and pipes."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from imdh_cli.errors import DataError
from imdh_cli.features import Tally, extract, select_features
from imdh_cli.params import FeatureParams
from imdh_cli.sources import npy_file
from tests.cli import PROGRAM, imdh, labels, shell
from tests.tables import opened

X = np.random.default_rng(0).normal(size=(500, 7)) * 40


def saved(path: Path, X: np.ndarray) -> Path:
    with path.open("wb") as file:
        np.save(file, X)
    return path


def rows_of(path: Path, **reading: object) -> np.ndarray:
    source = opened(path, **reading)
    chunks = source.chunks(["x"])
    return np.concatenate([c.features.column(0).flatten().to_numpy(False).reshape(-1, 7) for c in chunks])


@pytest.mark.parametrize(
    "dtype", ["<f8", ">f8", "<f4", "<f2", "|b1", "|i1", "<u2", ">i4", "<i8", "<u8", "longdouble"]
)
@pytest.mark.parametrize("order", ["C", "F"])
@pytest.mark.parametrize("threads", [1, 2])
def test_a_matrix_comes_back_as_it_was_saved(dtype: str, order: str, threads: int, tmp_path: Path) -> None:
    matrix = np.asarray(np.abs(X).astype(dtype), order=order)  # type: ignore[call-overload]
    path = saved(tmp_path / "t.npy", matrix)
    source = opened(path)
    assert source.parts == [(str(path), "npy", 500, path.stat().st_size)]
    for batch_rows in (1, 33, 65536):
        assert np.array_equal(
            rows_of(path, batch_rows=batch_rows, threads=threads), matrix.astype(np.float64)
        )


def test_its_columns_are_items_of_x(tmp_path: Path) -> None:
    source = opened(saved(tmp_path / "t.bin", X))
    assert select_features(source, FeatureParams()).spec.names == tuple(f"x[{i}]" for i in range(7))
    spec = select_features(source, FeatureParams(columns=("x[1:3]",))).spec
    got, _ = extract(next(source.chunks(["x"])), spec, Tally())
    assert np.array_equal(got, X[:, 1:3])
    assert source.sample(3)["x"].to_pylist() == X[:3].tolist()


def test_ranges_of_rows_are_fragments(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(npy_file, "FRAGMENT", 7 * 8 * 120)
    source = opened(saved(tmp_path / "t.npy", X), batch_rows=50)
    fragments = source.fragments(["x"]) or []
    assert [f.rows for f in fragments] == [120, 120, 120, 120, 20]
    chunks = [c for f in reversed(fragments) for c in f.chunks()]
    assert chunks[0].origin == (str(tmp_path / "t.npy"), 480)
    assert sum(c.features.num_rows for c in chunks) == 500
    assert chunks[0].features.column(0)[0].as_py() == X[480].tolist()


@pytest.mark.parametrize(
    ("content", "said", "hint"),
    [
        (np.arange(5.0), "an array 5 of float64, and no matrix", "np.save(FILE, X.reshape(len(X), -1))"),
        (np.zeros((2, 3, 4)), "an array 2x3x4 of float64, and no matrix", "X.reshape(len(X), -1)"),
        (np.zeros((3, 0)), "no matrix", "a row for each item"),
        (np.zeros((2, 2), complex), "complex128", "np.save(FILE, np.hstack([X.real, X.imag]))"),
        (np.zeros(3, dtype=[("a", float)]), "no matrix", "pandas.DataFrame(X).to_parquet(FILE)"),
        (np.array([["a", "b"]]), "no matrix", "Parquet"),
        (np.array([["2020-01-01"]], "M8[D]"), "no matrix", "Parquet"),
        (np.array([[None, "b"]]), "object", "X.astype(float)"),
    ],
)
def test_what_is_no_matrix_of_numbers_is_refused_with_a_way_that_helps(
    content: np.ndarray, said: str, hint: str, tmp_path: Path
) -> None:
    with pytest.raises(DataError, match=said) as caught:
        opened(saved(tmp_path / "t.npy", content))
    assert hint in str(caught.value.hint)
    assert ("reshape" in str(caught.value.hint)) == (content.dtype == float and content.size > 0)


def test_a_cut_or_damaged_file_is_named(tmp_path: Path) -> None:
    path = saved(tmp_path / "t.npy", X)
    data = path.read_bytes()
    for damaged in (data[:-1], data[:60], data[:6] + b"\x09" + data[7:], data[:12] + b"{{{{" + data[16:]):
        path.write_bytes(damaged)
        with pytest.raises(DataError, match=r"t\.npy: not a readable NumPy file"):
            opened(path)


def test_a_matrix_without_rows_has_no_data_rows(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="no data rows"):
        select_features(opened(saved(tmp_path / "t.npy", np.zeros((0, 3)))), FeatureParams())


def test_a_matrix_is_clustered_from_a_file_and_from_a_pipe(tmp_path: Path) -> None:
    rng = np.random.default_rng(1)
    saved(
        tmp_path / "t.npy", (rng.normal(size=(600, 3)) + 9 * (np.arange(600) % 2)[:, None]).astype(np.float32)
    )
    imdh("fit", tmp_path / "t.npy", "-o", tmp_path / "m.npz")
    imdh("assign", tmp_path / "m.npz", tmp_path / "t.npy", "-o", tmp_path / "o.csv")
    found = labels(tmp_path / "o.csv")
    assert len(set(found[::2])) == len(set(found[1::2])) == 1
    program = " ".join(PROGRAM)
    done = shell(f"cat t.npy | {program} assign m.npz - -o piped.csv", tmp_path)
    assert done.status == 0
    assert "NumPy cannot be read from front to back" in done.err
    assert labels(tmp_path / "piped.csv").tolist() == found.tolist()
