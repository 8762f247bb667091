"""Compiled functions are kept as machine code, and made again when they have to be."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

from imdh_cli import machine_code

SOURCE = """
from imdh_cli.machine_code import compiled

@compiled()
def _twice(x):
    return 2.0 * x

@compiled()
def double(X, shift, up, rows):
    for i in range(rows):
        for j in range(X.shape[1]):
            X[i, j] = _twice(X[i, j]) + (shift[i] if up else 0.0)
"""
RUN = """
import sys, numpy as np, double
X = np.ones((3, 2))
double.double(X, np.arange(3), True, 3)
print(X.tolist(), "numba" in sys.modules)
"""
RIGHT = [[2.0, 2.0], [3.0, 3.0], [4.0, 4.0]]


@pytest.fixture
def place(tmp_path):
    (tmp_path / "double.py").write_text(SOURCE)
    return tmp_path


def run(place: Path) -> str:
    env = os.environ | {"NUMBA_CACHE_DIR": str(place / "cache"), "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run(
        [sys.executable, "-c", RUN], cwd=place, env=env, capture_output=True, text=True, check=True
    )
    return done.stdout.strip()


def files(place: Path) -> list[Path]:
    return sorted((place / "cache" / "imdh").iterdir())


def loaded(place: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location("double", place / "double.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_a_second_run_does_without_numba(place):
    assert run(place) == f"{RIGHT} True"
    (made,) = files(place)
    assert made.name.startswith("double-d2l1bl-")
    assert run(place) == f"{RIGHT} False"


@pytest.mark.parametrize("harm", [b"", b"half", None])
def test_a_damaged_file_is_made_again(place, harm):
    run(place)
    (made,) = files(place)
    whole = made.read_bytes()
    made.write_bytes(whole[:-1] if harm is None else harm)
    assert run(place) == f"{RIGHT} True"
    assert [f.read_bytes() for f in files(place)] == [whole]


def test_code_of_another_source_is_made_again(place):
    run(place)
    (place / "double.py").write_text(SOURCE.replace("2.0 *", "3.0 *"))
    assert run(place) == "[[3.0, 3.0], [4.0, 4.0], [5.0, 5.0]] True"
    assert run(place).endswith("False")
    assert len(files(place)) == 1


@pytest.mark.parametrize("kept", [True, False])
def test_unusual_arrays_and_a_place_that_keeps_nothing_are_left_to_numba(place, monkeypatch, kept):
    if not kept:
        monkeypatch.setattr(machine_code, "folder", lambda: None)
    wide = np.ones((3, 4))
    loaded(place).double(wide[:, ::2] if kept else wide, np.arange(3), np.bool_(True), np.int64(3))
    right = np.array(RIGHT)[:, :1] * np.ones((1, 4))
    if kept:
        right[:, 1::2] = 1
    assert (wide == right).all()


def test_a_function_with_an_underscore_gives_its_value_back(place):
    assert loaded(place)._twice(3.0) == 6.0
