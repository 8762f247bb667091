"""Compiled functions are kept as machine code, and made again when they have to be."""

from __future__ import annotations

import os
import platform
import shutil
import stat
import subprocess
import sys
import tempfile
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

from imdh_cli.compiled import native_cache
from tests.modules import loaded
from tests.needs import missing

SOURCE = """
from imdh_cli.compiled.native_cache import compiled

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
TRY = """
import sys, numpy as np, kernel
for name in sys.argv[1:]:
    X = np.ones((2, 1))
    try:
        getattr(kernel, name)(X)
        print(X[0, 0].item())
    except Exception as error:
        print(repr(error))
print("numba" in sys.modules)
"""
WORDS = """
import re, kernel
from imdh_cli.compiled import native_cache
target = native_cache._target
def shown(*asked):
    machine = target(*asked)
    emit = machine.emit_object
    def show(module):
        print(*sorted(set(re.findall("v?addpd|[xyz]mm", machine.emit_assembly(module)))))
        return emit(module)
    machine.emit_object = show
    return machine
native_cache._target = shown
native_cache._compiled(kernel.kernel, ("d2",), "entry")
"""
RIGHT = [[2.0, 2.0], [3.0, 3.0], [4.0, 4.0]]


@pytest.fixture
def place(tmp_path):
    (tmp_path / "double.py").write_text(SOURCE)
    return tmp_path


@pytest.fixture(scope="module")
def ran_once(tmp_path_factory) -> Path:
    place = tmp_path_factory.mktemp("once")
    (place / "double.py").write_text(SOURCE)
    assert run(place) == f"{RIGHT} True"
    return place


@pytest.fixture
def kept(ran_once, tmp_path) -> Path:
    """A place with the source and its code."""
    return shutil.copytree(ran_once, tmp_path / "kept")


@pytest.fixture
def caches(place, monkeypatch) -> list[Path]:
    """Two places for code."""
    caches = [place / "first", place / "cache" / "imdh"]
    monkeypatch.setattr(native_cache, "places", lambda: caches)
    return caches


def run(place: Path, script: str = RUN, *words: str, **settings: str) -> str:
    env = os.environ | {"NUMBA_CACHE_DIR": str(place / "cache"), "PYTHONPATH": os.pathsep.join(sys.path)}
    env |= settings
    done = subprocess.run(
        [sys.executable, "-c", script, *words], cwd=place, env=env, capture_output=True, text=True, check=True
    )
    return done.stdout.strip()


def files(place: Path) -> list[Path]:
    return sorted((place / "cache" / "imdh").iterdir())


def test_a_second_run_does_without_numba(place):
    assert run(place) == f"{RIGHT} True"
    (made,) = files(place)
    assert made.name.startswith("double-d2l1tl-")
    assert run(place) == f"{RIGHT} False"


@pytest.mark.parametrize("harm", [b"half", None, pytest.param(b"", marks=pytest.mark.long)])
def test_a_damaged_file_is_made_again(kept, harm):
    (made,) = files(kept)
    whole = made.read_bytes()
    made.write_bytes(whole[:-1] if harm is None else harm)
    assert run(kept) == f"{RIGHT} True"
    assert [f.read_bytes() for f in files(kept)] == [whole]


def test_code_of_another_source_is_made_again(kept):
    (kept / "double.py").write_text(SOURCE.replace("2.0 *", "3.0 *"))
    assert run(kept) == "[[3.0, 3.0], [4.0, 4.0], [5.0, 5.0]] True"
    assert run(kept).endswith("False")
    assert len(files(kept)) == 1


def test_unusual_arrays_are_left_to_numba(place):
    wide = np.ones((3, 4))
    loaded(place / "double.py").double(wide[:, ::2], np.arange(3), np.bool_(True), np.int64(3))
    assert wide[:, ::2].tolist() == RIGHT
    assert (wide[:, 1::2] == 1).all()


def test_a_function_with_an_underscore_gives_its_value_back(place):
    assert loaded(place / "double.py")._twice(3.0) == 6.0


# -- places


def test_code_that_others_could_have_written_is_passed_over(place, caches):
    module = loaded(place / "double.py")
    call(module)
    (kept,) = caches[0].iterdir()
    for path in (caches[0], kept):
        right = path.stat().st_mode
        for wrong in (right | 0o020, right | 0o002):
            path.chmod(wrong)
            assert not module.double.is_kept()
        path.chmod(right)
        assert module.double.is_kept()
        if os.geteuid() == 0:
            os.chown(path, 4711, -1)
            assert not module.double.is_kept()
            os.chown(path, 0, -1)
    kept.symlink_to(kept.rename(place / "elsewhere.o"))
    assert not module.double.is_kept()


def test_code_is_not_kept_where_others_can_write(place, caches, made):
    caches[0].mkdir()
    caches[0].chmod(0o777)
    for _ in range(2):
        call(loaded(place / "double.py"))
    assert len(made) == len(files(place)) == 1
    assert not list(caches[0].iterdir())


def test_nobody_else_reads_what_is_kept_but_beside_the_package(place, monkeypatch):
    for beside, modes in ((None, (0o700, 0o700, 0o600)), (place / "a" / "b", (0o700, 0o755, 0o644))):
        if beside:
            monkeypatch.setattr(native_cache, "BESIDE", beside)
        folder = beside or place / "cache" / "imdh"
        monkeypatch.setattr(native_cache, "places", lambda folder=folder: [folder])
        call(loaded(place / "double.py"))
        (made,) = folder.iterdir()
        assert tuple(stat.S_IMODE(p.stat().st_mode) for p in (folder.parent, folder, made)) == modes


def call(module: ModuleType) -> None:
    X = np.ones((3, 2))
    module.double(X, np.arange(3), True, 3)
    assert X.tolist() == RIGHT


def refused(*_: object, **__: object) -> None:
    raise OSError


@pytest.fixture
def made(monkeypatch) -> list[native_cache.Kinds]:
    """The kinds of arguments that are compiled for, one after the other."""
    made: list[native_cache.Kinds] = []
    compiler = native_cache._compiled

    def counted(function: native_cache.Compiled, kinds: native_cache.Kinds, entry: str) -> bytes:
        made.append(kinds)
        return compiler(function, kinds, entry)

    monkeypatch.setattr(native_cache, "_compiled", counted)
    return made


def full(file: int, mode: str, **_: object) -> None:
    """`open` on a full disk."""
    os.close(file)
    raise OSError(mode)


@pytest.mark.parametrize(
    ("owner", "name", "fault"),
    [(tempfile, "mkstemp", refused), (native_cache, "open", full), (os, "replace", refused)],
)
def test_code_that_cannot_be_kept_is_used_and_leaves_nothing(
    place, caches, monkeypatch, made, owner, name, fault
):
    module = loaded(place / "double.py")
    with monkeypatch.context() as patch:
        patch.setattr(owner, name, fault, raising=False)
        call(module)
    assert len(made) == 1
    assert module.double.dispatcher not in module.double._entries.values()
    assert [list(cache.iterdir()) for cache in caches] == [[], []]
    assert not module.double.is_kept()


def test_the_first_place_that_can_be_written_keeps_code(place, caches):
    caches[0].touch()  # no folder
    call(loaded(place / "double.py"))
    assert len(files(place)) == 1
    assert native_cache.can_keep()


def test_code_is_read_where_nothing_can_be_written(place, caches, monkeypatch, made):
    """As from a system's folder, filled by root."""
    call(loaded(place / "double.py"))
    assert len(list(caches[0].iterdir())) == 1
    monkeypatch.setattr(tempfile, "mkstemp", refused)
    monkeypatch.setattr(tempfile, "TemporaryFile", refused)
    for _ in range(2):
        module = loaded(place / "double.py")
        assert module.double.is_kept()
        call(module)
        caches.reverse()
    assert len(made) == 1
    assert not native_cache.can_keep()


def test_code_of_another_function_is_refused(place, caches):
    other = SOURCE[SOURCE.rindex("@compiled") :].replace("double", "other").replace("_twice", "-")
    (place / "double.py").write_text(SOURCE + other)
    module = loaded(place / "double.py")
    module.other(np.ones((3, 2)), np.arange(3), True, 3)
    (made,) = caches[0].iterdir()
    made.rename(made.with_name(made.name.replace("other", "double")))
    call(module)


def test_numbas_settings_have_code_of_their_own(kept):
    assert run(kept, NUMBA_OPT="1") == f"{RIGHT} True"
    assert len(files(kept)) == 2
    assert run(kept) == f"{RIGHT} False"


@pytest.mark.parametrize(("name", "words"), [("nehalem", "addpd xmm"), ("haswell", "vaddpd xmm ymm")])
def test_code_is_for_the_processor_that_numba_is_told(place, name, words):
    """Whatever processor compiles it: by its instruction for sums and the vectors that it has."""
    if platform.machine() != "x86_64":
        missing("x86", "these are words of x86, which numba's compiler has for no other machine")
    (place / "kernel.py").write_text(kernels(kernel="for j in range(X.shape[1]):\n        X[0, j] += 1"))
    assert run(place, WORDS, NUMBA_CPU_NAME=name, NUMBA_CPU_FEATURES="") == words


# -- what is left to numba


ALLOCATES = "rows = np.empty(int(X[0, 0]))\n    X[0, 0] = rows.shape[0] + 1"
RAISES = "if X[0, 0] == 1:\n        raise ValueError(3)"
POINTS = "X[0, 0] += TABLE[int(X[0, 0])]"  # numba has the address of what is as large as that in its code
BEYOND = "for i in range(X.shape[0] + 1):\n        X[i, 0] += 1"
KERNELS = """
import numpy as np
from imdh_cli.compiled.native_cache import compiled

TABLE = np.ones(200_000)
"""


def kernels(**bodies: str) -> str:
    """A module of functions by their names."""
    return KERNELS + "".join(f"\n@compiled()\ndef {name}(X):\n    {body}\n" for name, body in bodies.items())


@pytest.mark.parametrize(
    ("bodies", "settings", "outcomes"),
    [
        ([ALLOCATES, RAISES, POINTS], {}, ["2.0", "ValueError(3)", "2.0"]),
        ([BEYOND], {"NUMBA_BOUNDSCHECK": "1"}, ["IndexError('index is out of bounds')"]),
        pytest.param(["X[0, 0] += 1"], {"NUMBA_DUMP_OPTIMIZED": "1"}, ["2.0"], marks=pytest.mark.long),
    ],
    ids=["of its own", "checked", "shown"],
)
def test_what_needs_python_is_left_to_numba(place, bodies, settings, outcomes):
    """It ends as numba's own function ends, and nothing is kept."""
    named = {f"kernel_{k}": body for k, body in enumerate(bodies)}
    (place / "kernel.py").write_text(kernels(**named))
    assert run(place, TRY, *named, **settings).splitlines()[-len(bodies) - 1 :] == [*outcomes, "True"]
    assert not (place / "cache" / "imdh").exists()


def test_code_made_by_another_compiler_is_made_again(place, caches, monkeypatch, tmp_path):
    call(loaded(place / "double.py"))
    module = loaded(place / "double.py")
    assert module.double.is_kept()
    (tmp_path / "newer.py").write_text("")
    monkeypatch.setattr(native_cache, "__file__", str(tmp_path / "newer.py"))
    assert not module.double.is_kept()


def test_without_jit_functions_are_pythons(kept):
    assert run(kept, NUMBA_DISABLE_JIT="1") == f"{RIGHT} True"
    assert len(files(kept)) == 1


def test_without_a_home_there_is_no_users_place(monkeypatch):
    monkeypatch.setattr(os.path, "expanduser", lambda path: path)
    for name in ("NUMBA_CACHE_DIR", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    assert native_cache.places() == [native_cache.BESIDE]
    monkeypatch.setenv("XDG_CACHE_HOME", "relative")
    assert native_cache.places() == [native_cache.BESIDE]
    monkeypatch.setenv("XDG_CACHE_HOME", "/caches")
    assert native_cache.places() == [native_cache.BESIDE, Path("/caches/imdh")]
