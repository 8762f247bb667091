"""Functions written for numba -> machine code, kept in files, so that later runs need no numba.

Importing and preparing numba takes half a second of processor time before the first compiled function can
run, with or without its own cache: more than a fit of 100,000 rows. llvmlite, which numba stands on, links
code that is there in 0.04 s. So numba compiles in the first run, and what it made is written down. Where
that cannot be done, or an argument is of an unusual kind, numba's own function is called.

A file belongs to one function, kind of arguments, processor and version of numba, as its name tells. It
holds digests of the source and of itself, and is made again when one of them is another.
"""

from __future__ import annotations

import ctypes
import functools
import hashlib
import json
import os
import tempfile
import threading
from collections.abc import Callable
from contextlib import suppress
from importlib.metadata import version
from pathlib import Path
from types import FunctionType
from typing import Any, cast

import numpy as np

Kinds = tuple[str | None, ...]
_LOCK = threading.RLock()  # of compiler and linker
_linked: list[Any] = []  # engines own the code that they linked


class Compiled:
    """A compiled function of C-contiguous arrays and numbers, which works in place and returns nothing.

    One whose name begins with an underscore is called by compiled functions; from Python it is numba's.
    """

    def __init__(self, function: FunctionType, options: dict[str, Any]) -> None:
        functools.update_wrapper(self, function)
        self.name = function.__name__
        self._function = function
        self._options: dict[str, Any] = {"nogil": True, "error_model": "numpy"} | options
        self._entries: dict[Kinds, Callable[..., Any]] = {}

    def __call__(self, *arguments: Any) -> Any:
        kinds = tuple(map(_kind, arguments))
        entry = self._entries.get(kinds)
        if entry is None:
            with _LOCK:
                entry = self._entries[kinds] = self._entry(kinds)
        return entry(*arguments)

    @functools.cached_property
    def dispatcher(self) -> Any:
        """What `numba.njit` makes of the function and of those that it calls."""
        import numba

        names = self._function.__globals__
        used = {n: names[n] for n in self._function.__code__.co_names if n in names}
        called = {n: f.dispatcher for n, f in used.items() if isinstance(f, Compiled)}
        twin = FunctionType(self._function.__code__, names | called, self.name)
        return numba.njit(**self._options)(twin)

    def is_kept(self) -> bool:
        """Whether there is code for this processor and version of numba, perhaps of an older source."""
        where = folder()
        return where is not None and any(where.glob(f"{self.name}-*-{_machine()}.o"))

    def _entry(self, kinds: Kinds) -> Callable[..., Any]:
        where = folder()
        if where is None or None in kinds or self.name.startswith("_"):
            return self.dispatcher
        path = where / f"{self.name}-{''.join(map(str, kinds))}-{_machine()}.o".replace("?", "b")
        try:
            source = _digest(Path(self._function.__code__.co_filename).read_bytes())
            code = _kept(path, source) or _keep(path, source, _compiled(self.dispatcher, kinds))
            return _called(_link(code), kinds)
        except Exception:  # whatever it is costs time, and no more than that
            return self.dispatcher


def compiled(**options: Any) -> Callable[[Callable[..., Any]], Compiled]:
    """Decorator: options as of `numba.njit`."""
    return lambda function: Compiled(cast(FunctionType, function), options)


def _kind(argument: Any) -> str | None:
    """Type and dimensions of an array ("d2": float64, 2), the type of a number; None for what is unusual."""
    if isinstance(argument, np.ndarray):
        return f"{argument.dtype.char}{argument.ndim}" if argument.flags.carray else None
    for char, types in (("?", (bool, np.bool_)), ("l", (int, np.integer)), ("d", (float,))):
        if isinstance(argument, types):
            return char
    return None


# -- where code is kept


@functools.cache
def folder() -> Path | None:
    """The folder of compiled code: NUMBA_CACHE_DIR, beside the package, or the user's; None: none of them."""
    asked = os.environ.get("NUMBA_CACHE_DIR")
    user = os.environ.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache")
    places = [Path(asked) / "imdh"] if asked else [Path(__file__).parent / "__pycache__", Path(user) / "imdh"]
    for place in places:
        with suppress(OSError):
            place.mkdir(parents=True, exist_ok=True)
            with tempfile.TemporaryFile(dir=place):
                return place
    return None


@functools.cache
def _machine() -> str:
    """Tells processors and versions apart."""
    import llvmlite.binding as llvm

    processor = [llvm.get_host_cpu_name(), llvm.get_host_cpu_features().flatten()]
    return _digest(repr([version("numba"), version("llvmlite"), *processor]).encode())[:12]


def _digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def _kept(path: Path, source: str) -> bytes | None:
    """Code that was made of this source; None where there is none, or not whole."""
    with suppress(FileNotFoundError):
        digests, _, code = path.read_bytes().partition(b"\n")
        if digests.decode("ascii", "replace").split() == [source, _digest(code)]:
            return code
    return None


def _keep(path: Path, source: str, code: bytes) -> bytes:
    """Write code, whole or not at all; the code."""
    half = path.with_suffix(f".{os.getpid()}")
    half.write_bytes(f"{source} {_digest(code)}\n".encode() + code)
    os.replace(half, path)
    return code


# -- numba's part and llvmlite's. The code is a line of JSON (the name of the function to call, and the
# names of what it never uses) and an object file.


def _compiled(dispatcher: Any, kinds: Kinds) -> bytes:
    """Compile a C function that takes addresses, lengths and numbers, and calls `dispatcher`."""
    import llvmlite.binding as llvm
    import numba

    names, types, passed = [], [], []
    for i, kind in enumerate(map(str, kinds)):
        number = numba.from_dtype(np.dtype(kind[0]))
        lengths = [f"a{i}_{k}" for k in range(int(kind[1:] or 0))]
        names += [f"a{i}", *lengths]
        types += [numba.types.CPointer(number) if lengths else number, *[numba.int64] * len(lengths)]
        passed.append(f"carray(a{i}, ({', '.join(lengths)},))" if lengths else f"a{i}")
    space = {"function": dispatcher, "carray": numba.carray}
    exec(f"def entry({', '.join(names)}): function({', '.join(passed)})", space)
    made = numba.cfunc(numba.void(*types), nogil=True, error_model="numpy")(space["entry"])
    module = llvm.parse_assembly(made.inspect_llvm())
    unused = []
    for value in (*module.functions, *module.global_variables):
        # What raises Python's exceptions is linked and never called: no kernel raises one. It gets names
        # of its own, since numba looks the others up in the same place.
        if value.is_declaration and value.name.startswith(("Py", "_Py", "numba_", "NRT_")):
            value.name = f"imdh.{value.name}"
            unused.append(value.name)
    head = {"entry": made.native_name, "unused": unused}
    return json.dumps(head).encode() + b"\n" + _target().emit_object(module)


def _link(code: bytes) -> int:
    """The address of the function to call."""
    import llvmlite.binding as llvm

    head, _, data = code.partition(b"\n")
    told = json.loads(head)
    for name in told["unused"]:
        llvm.add_symbol(name, ctypes.cast(_ABORT, ctypes.c_void_p).value)
    engine = llvm.create_mcjit_compiler(llvm.parse_assembly(""), _target())
    engine.add_object_file(llvm.ObjectFileRef.from_data(data))
    engine.finalize_object()
    _linked.append(engine)
    address = engine.get_function_address(told["entry"])
    if not address:
        raise RuntimeError(f"no {told['entry']} in the code")
    return int(address)


def _target() -> Any:
    import llvmlite.binding as llvm

    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    return llvm.Target.from_default_triple().create_target_machine(
        cpu=llvm.get_host_cpu_name(),
        features=llvm.get_host_cpu_features().flatten(),
        opt=3,
        reloc="default",
        codemodel="jitdefault",
    )


_ABORT = ctypes.CFUNCTYPE(None)(os.abort)
_C_TYPES = {"?": ctypes.c_bool, "l": ctypes.c_int64, "d": ctypes.c_double}


def _called(address: int, kinds: Kinds) -> Callable[..., None]:
    """The function at an address as one of arrays and numbers. It lets go of the interpreter."""
    types: list[Any] = []
    for kind in map(str, kinds):
        dimensions = int(kind[1:] or 0)
        types += [ctypes.c_void_p, *[ctypes.c_int64] * dimensions] if dimensions else [_C_TYPES[kind]]
    function = ctypes.CFUNCTYPE(None, *types)(address)

    def call(*arguments: Any) -> None:
        flat: list[Any] = []
        for argument in arguments:
            if isinstance(argument, np.ndarray):
                flat.append(argument.ctypes.data)
                flat += argument.shape
            else:
                flat.append(argument)
        function(*flat)

    return call
