"""Functions written for numba -> machine code, kept in files, so that later runs need no numba.

Importing and preparing numba takes half a second of processor time before the first compiled function can
run, with or without its own cache: more than a fit of 100,000 rows. llvmlite, which numba stands on, links
code that is there in 0.04 s. So numba compiles in the first run, and what it made is written down. Where
that cannot be done, as of a function that raises or allocates, or where an argument is of an unusual kind or
numba is asked to watch what happens, numba's own function is called.

A file belongs to one function, kind of arguments, processor, numba and its settings, as its name tells. It
holds digests of that name with the sources, and of the code, and is made again when one of them is another.
Code is run, so it is taken only from folders and files that nobody but this user and root can write.
"""

from __future__ import annotations

import ctypes
import functools
import hashlib
import os
import tempfile
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import FunctionType
from typing import Any, cast

import numpy as np

from imdh_cli.compiled import histogram
from imdh_cli.version import version_of

Kinds = tuple[Any, ...]  # of arguments: what `_kind` tells of each
# Settings by which numba shows or checks what it makes: left to it.
WATCHING = tuple(f"NUMBA_{name}" for name in ("BOUNDSCHECK", "DEBUG", "DUMP", "TRACE", "JIT_COVERAGE"))
_LOCK = threading.RLock()  # of compiler and linker


class Prepared:
    """An array, or a group of them, that stays, as compiled code takes it: 1 us an array to tell."""

    def __init__(self, group: Any) -> None:
        self.group = group
        self.kind = _kind(group)
        self.flat = [] if None in _flat((self.kind,)) else _flattened((group,))


def prepared(group: np.ndarray | tuple[Any, ...]) -> Any:
    """An array, or a NamedTuple of arrays, to be given to a compiled function more than once."""
    return Prepared(group)


class Compiled:
    """A compiled function of C-contiguous arrays, numbers and NamedTuples of them, which works in place and
    returns nothing.

    One whose name begins with an underscore is called by compiled functions; from Python it is numba's.
    """

    def __init__(self, function: FunctionType, options: dict[str, Any]) -> None:
        functools.update_wrapper(self, function)
        self.name = function.__name__
        self._function = function
        self.options: dict[str, Any] = {"nogil": True, "error_model": "numpy"} | options
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
        return numba.njit(**self.options)(twin)

    def is_kept(self) -> bool:
        """Whether a call need not compile: there is code of this source, for some kind of arguments."""
        ours = (f"{self.name}-", f"-{_machine()}.o")
        return _interpreted() or any(
            _kept(name, self._belonging(name))
            for name in _names_kept()
            if name.startswith(ours[0]) and name.endswith(ours[1])
        )

    def _entry(self, kinds: Kinds) -> Callable[..., Any]:
        flat = list(_flat(kinds))
        if _interpreted() or _watched() or None in flat or self.name.startswith("_"):
            return self._by_numba
        name = f"{self.name}-{''.join(map(str, flat))}-{_machine()}.o".replace(
            "?", "t"
        )  # t: no type's letter
        try:
            belonging = self._belonging(name)
            code, entry = _kept(name, belonging), f"imdh_{belonging}"
            if code is None:
                code = _compiled(self, kinds, entry)
                _keep(name, belonging, code)
            return _called(_link(code, entry), kinds)
        except Exception:  # whatever it is costs time, and no more than that
            return self._by_numba

    def _by_numba(self, *arguments: Any) -> Any:
        return self.dispatcher(*(a.group if isinstance(a, Prepared) else a for a in arguments))

    def _belonging(self, name: str) -> str:
        """The digest of a file's name and of the sources that its code is made by."""
        sources = self._function.__code__.co_filename, __file__, histogram.__file__
        return _digest(repr([name, *map(_digest_of, sources)]).encode())


def compiled(**options: Any) -> Callable[[Callable[..., Any]], Compiled]:
    """Decorator: options as of `numba.njit`."""
    return lambda function: Compiled(cast(FunctionType, function), options)


def _kind(argument: Any) -> Any:
    """Type and dimensions of an array ("d2": float64, 2), the type of a number; None for what is unusual.
    Of a NamedTuple its class and the kinds of its fields, as one tuple."""
    if isinstance(argument, Prepared):
        return argument.kind
    if isinstance(argument, np.ndarray):
        return f"{argument.dtype.char}{argument.ndim}" if argument.flags.carray else None
    if isinstance(argument, tuple):
        return (type(argument), *map(_kind, argument))
    for char, types in (("?", (bool, np.bool_)), ("l", (int, np.integer)), ("d", (float,))):
        if isinstance(argument, types):
            return char
    return None


def _flat(kinds: Kinds) -> Iterator[str | None]:
    """The kinds of arrays and numbers, those of groups in their places."""
    for kind in kinds:
        if isinstance(kind, tuple):
            yield from _flat(kind[1:])
        else:
            yield kind


# -- where code is kept


BESIDE = Path(__file__).parent / "__pycache__"  # as Python's own code, for all who may use the package


def places() -> list[Path]:
    """Folders for code, the first one first: in NUMBA_CACHE_DIR; or beside the package, and the user's."""
    asked = os.environ.get("NUMBA_CACHE_DIR")
    if asked:
        return [Path(asked) / "imdh"]
    users = os.environ.get("XDG_CACHE_HOME", ""), os.path.expanduser("~/.cache")  # neither: nobody's home
    return [BESIDE, *[Path(user) / "imdh" for user in users if os.path.isabs(user)][:1]]


def can_keep() -> bool:
    """Whether there is a place that can be written."""
    for place in places():
        with suppress(OSError):
            _prepare(place)
            with tempfile.TemporaryFile(dir=place):
                return True
    return False


@functools.cache
def _machine() -> str:
    """Tells processors, versions and numba's settings apart."""
    import llvmlite.binding as llvm

    processor = [llvm.get_process_triple(), llvm.get_host_cpu_name(), llvm.get_host_cpu_features().flatten()]
    settings = sorted(
        x for x in os.environ.items() if x[0].startswith("NUMBA_") and x[0] != "NUMBA_CACHE_DIR"
    )
    return _digest(repr([version_of("numba"), version_of("llvmlite"), *processor, *settings]).encode())[:12]


def _interpreted() -> bool:
    """Whether numba is told to leave functions to Python."""
    return _is_set("NUMBA_DISABLE_JIT")


def _watched() -> bool:
    """Whether numba is told to show or to check what it makes, or has a file of settings."""
    return any(name.startswith(WATCHING) and _is_set(name) for name in os.environ) or os.path.exists(
        ".numba_config.yaml"
    )


def _is_set(name: str) -> bool:
    return os.environ.get(name, "0").strip() not in ("", "0")


def _digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


@functools.cache
def _digest_of(source: str) -> str:
    return _digest(Path(source).read_bytes())


@contextmanager
def _trusted(path: str | Path, flags: int = 0, folder: int | None = None) -> Iterator[int]:
    """A descriptor of a folder, or of a file in it; OSError where somebody else may have written it."""
    opened = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | flags, dir_fd=folder)
    try:
        status = os.fstat(opened)
        if status.st_uid not in (0, os.geteuid()) or status.st_mode & 0o022:
            raise PermissionError(f"{path} can be written by others")
        yield opened
    finally:
        os.close(opened)


def _names_kept() -> set[str]:
    names: set[str] = set()
    for place in places():
        with suppress(OSError):
            names.update(os.listdir(place))
    return names


def _kept(name: str, belonging: str) -> bytes | None:
    """Code from the first place that has it whole, and of these sources; None: none has."""
    for place in places():
        with (
            suppress(OSError),
            _trusted(place, os.O_DIRECTORY) as folder,
            _trusted(name, folder=folder) as opened,
            open(opened, "rb", closefd=False) as file,
        ):
            digests, _, code = file.read().partition(b"\n")
            if digests.decode("ascii", "replace").split() == [belonging, _digest(code)]:
                return code
    return None


def _keep(name: str, belonging: str, code: bytes) -> None:
    """Write code in the first place that takes it, whole or not at all."""
    for place in places():
        with suppress(OSError):
            _prepare(place)
            _write(place / name, f"{belonging} {_digest(code)}\n".encode() + code)
            return


def _prepare(place: Path) -> None:
    """Make a folder, and those above it; OSError where others may write it."""
    for folder in (*reversed(place.parents), place):
        if not folder.is_dir():
            folder.mkdir(0o755 if folder == BESIDE else 0o700, exist_ok=True)
    with _trusted(place, os.O_DIRECTORY):
        pass


def _write(path: Path, content: bytes) -> None:
    opened, half = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with open(opened, "wb") as file:
            file.write(content)
            if path.parent == BESIDE:
                os.fchmod(opened, 0o644)
        os.replace(half, path)
    except BaseException:
        os.unlink(half)
        raise


# -- numba's part and llvmlite's


def _compiled(function: Compiled, kinds: Kinds, entry: str) -> bytes:
    """An object file with a C function of the name `entry`, of addresses, lengths and numbers, that does what
    `function` does. Its body is put there before numba compiles it: called, it would be compiled twice, which
    takes half as long again.

    Raises
    ------
    ValueError
        When the code is none for other runs: it calls Python or numba (as what raises or allocates does, and
        whatever looks after bounds), or holds an address of this one.
    """
    import llvmlite.binding as llvm
    import numba

    inlined = numba.njit(**function.options, inline="always")(function.dispatcher.py_func)
    space: dict[str, Any] = {"function": inlined, "carray": numba.carray}
    names: list[str] = []
    types: list[Any] = []

    def passed(kind: Any) -> str:
        """An argument of `function`, made of the next ones of `entry`."""
        if isinstance(kind, tuple):
            group, *fields = kind
            space[group.__name__] = group
            return f"{group.__name__}({', '.join(map(passed, fields))})"
        first = f"a{len(names)}"
        number = numba.from_dtype(np.dtype(kind[0]))
        lengths = [f"{first}_{k}" for k in range(int(kind[1:] or 0))]
        names.extend([first, *lengths])
        types.extend([numba.types.CPointer(number) if lengths else number, *[numba.int64] * len(lengths)])
        return f"carray({first}, ({', '.join(lengths)},))" if lengths else first

    call = f"function({', '.join(map(passed, kinds))})"
    exec(f"def entry({', '.join(names)}): {call}", space)
    made: Any = numba.cfunc(numba.void(*types), **function.options)(space["entry"])
    if made._library.has_dynamic_globals:
        raise ValueError("addresses of this process in the code")
    module = llvm.parse_assembly(made.inspect_llvm())
    _, processor, features = made._library.codegen.magic_tuple()
    machine = _target(processor, features, int(numba.config.OPT))  # type: ignore[attr-defined]
    _drop_unreachable(module, made.native_name, machine)
    module.get_function(made.native_name).name = entry
    everywhere = ctypes.CDLL(None)
    for value in (*module.functions, *module.global_variables):
        elsewhere = value.is_declaration and not value.name.startswith("llvm.")
        if elsewhere and (value.name.startswith(("Py", "_Py")) or not hasattr(everywhere, value.name)):
            raise ValueError(f"{value.name} is called by the code")
    return bytes(machine.emit_object(module))


def _drop_unreachable(module: Any, entry: str, machine: Any) -> None:
    """Leave what `entry` can come to. numba prepares for errors everywhere; that a function has none is seen
    where all its callers are known."""
    import llvmlite.binding as llvm

    for value in (*module.functions, *module.global_variables):
        if value.name != entry and not value.is_declaration:
            value.linkage = llvm.Linkage.internal
    passes = llvm.create_new_module_pass_manager()
    passes.add_ipsccp_pass()
    passes.add_simplify_cfg_pass()
    passes.add_global_dead_code_eliminate_pass()
    passes.run(module, llvm.create_pass_builder(machine, llvm.create_pipeline_tuning_options()))


def _link(code: bytes, entry: str) -> int:
    """The address of the function to call."""
    import llvmlite.binding as llvm

    engine = _engine()
    engine.add_object_file(llvm.ObjectFileRef.from_data(code))
    engine.finalize_object()
    address = engine.get_function_address(entry)
    if not address:
        raise RuntimeError(f"no {entry} in the code")
    return int(address)


@functools.cache
def _engine() -> Any:
    """What links all code, and owns it: one for each function would take 2 ms more of these."""
    import llvmlite.binding as llvm

    target = _target(llvm.get_host_cpu_name(), llvm.get_host_cpu_features().flatten(), 3)
    return llvm.create_mcjit_compiler(llvm.parse_assembly(""), target)


def _target(processor: str, features: str, effort: int) -> Any:
    import llvmlite.binding as llvm

    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    return llvm.Target.from_default_triple().create_target_machine(
        cpu=processor, features=features, opt=effort, reloc="default", codemodel="jitdefault"
    )


_MEMORY = ctypes.c_char * 0
_C_TYPES = {"?": ctypes.c_bool, "l": ctypes.c_int64, "d": ctypes.c_double}


def _called(address: int, kinds: Kinds) -> Callable[..., None]:
    """The function at an address as one of arrays and numbers. It lets go of the interpreter."""
    types: list[Any] = []
    for kind in map(str, _flat(kinds)):
        dimensions = int(kind[1:] or 0)
        types += [ctypes.c_void_p, *[ctypes.c_int64] * dimensions] if dimensions else [_C_TYPES[kind]]
    function = ctypes.CFUNCTYPE(None, *types)(address)

    return lambda *arguments: function(*_flattened(arguments))


def _flattened(arguments: Iterable[Any]) -> list[Any]:
    """Addresses and lengths of arrays, and numbers, in the places of their groups."""
    flat: list[Any] = []
    for argument in arguments:
        if isinstance(argument, np.ndarray):  # which can be written: its own `ctypes.data` takes 1 us
            flat.append(ctypes.addressof(_MEMORY.from_buffer(argument)))  # type: ignore[arg-type]
            flat.extend(argument.shape)
        elif isinstance(argument, Prepared):
            flat += argument.flat
        elif isinstance(argument, tuple):
            flat += _flattened(argument)
        else:
            flat.append(argument)
    return flat
