"""A path -> a file that appears whole or not at all.

What is written goes to a temporary file in the target's own folder; `commit` flushes it to the
disk and renames it over the target, `abort` leaves no trace. Where the system allows it (Linux,
most local file systems) the temporary has no name until the rename, so that not even a `kill -9`
leaves one behind.

Pipes and devices (`/dev/stdout`, `/dev/full`, a FIFO) have no "whole": they are written straight.
"""

from __future__ import annotations

import errno
import glob
import io
import os
import stat
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from types import TracebackType
from typing import BinaryIO
from urllib.parse import unquote

from imdh_cli.errors import OutputError, UsageError

Target = str | os.PathLike[str]
_BUFFER = 1 << 18
_NO_TABLES = (".npz", ".html", ".json", ".png", ".svg", ".pdf")  # never read from a folder of data

# errno values of a file system that knows no unnamed files; any of them means: use a named one.
_NO_UNNAMED_FILES = {errno.EOPNOTSUPP, errno.EISDIR, errno.EINVAL, errno.ENOENT, errno.ENOSYS}

_HERE, _EXCHANGE = -100, 2  # AT_FDCWD; RENAME_EXCHANGE of Linux, RENAME_SWAP of macOS
_NO_EXCHANGE = {errno.EINVAL, errno.ENOSYS, errno.EOPNOTSUPP, errno.ENOTSUP}

_HINTS = {
    errno.ENOSPC: "free some space, or write elsewhere",
    errno.EDQUOT: "free some space, or write elsewhere",
    errno.EFBIG: "write elsewhere, or raise the limit (ulimit -f)",
    errno.EACCES: "check the permissions of the folder, or write elsewhere",
    errno.EPERM: "check the permissions of the folder, or write elsewhere",
    errno.EROFS: "the disk is read-only: write elsewhere",
}


@contextmanager
def output_errors(name: str) -> Iterator[None]:
    """Turn an `OSError` of writing `name` into an `OutputError`; a closed pipe stays what it is."""
    try:
        yield
    except BrokenPipeError:
        raise
    except OSError as error:
        raise unwritten(name, error) from error


def unwritten(name: str, error: OSError) -> OutputError:
    """What to raise or to tell where `name` could not be written."""
    why = os.strerror(error.errno) if error.errno else str(error)
    return OutputError(f"cannot write {name}: {why[:1].lower()}{why[1:]}", _HINTS.get(error.errno or 0))


def is_special(path: Target) -> bool:
    """Is `path` a pipe, a device or an open descriptor: something that no rename can replace?"""
    if _descriptor(path) is not None:
        return True
    try:
        mode = os.stat(path).st_mode
    except OSError:
        return False
    return not (stat.S_ISREG(mode) or stat.S_ISDIR(mode))


def check_target(path: Target, *, force: bool = False, inputs: Sequence[Target] = ()) -> None:
    """Refuse now what could not be written later, before hours of work go into it.

    Parameters
    ----------
    path : path of the output to come
    force : may an existing file be replaced?
    inputs : what the run reads: files, folders, patterns; what is not on this machine is passed over

    Raises
    ------
    UsageError
        The output exists and `force` is off, is a folder or a disk, or is one of the inputs (under
        any name: symbolic links and hard links are seen through), whatever `force` says.
    OutputError
        The folder is missing or cannot be written to.
    """
    name = os.fspath(path)
    if not name:
        raise UsageError("the output has an empty name")
    _refuse_inputs(path, inputs)
    if _descriptor(path) is not None:
        return
    with output_errors(name):
        try:
            mode = os.stat(path).st_mode
        except FileNotFoundError:
            mode = None
    if mode is not None:
        if stat.S_ISDIR(mode):
            raise UsageError(f"{name} is a folder", f"name a file in it: {name.rstrip('/')}/NAME")
        if stat.S_ISBLK(mode):
            raise UsageError(f"{name} is a disk: not written to")
        if not stat.S_ISREG(mode):
            return
        if not force:
            raise UsageError(f"{name} exists", "add --force to replace it, or choose another name")
    folder = os.path.dirname(os.path.realpath(path))
    if not os.path.isdir(folder):
        raise OutputError(f"cannot write {name}: no such folder: {folder}", f"mkdir -p {folder}")
    if not os.access(folder, os.W_OK | os.X_OK):
        raise OutputError(f"cannot write {name}: permission denied in {folder}", _HINTS[errno.EACCES])


class AtomicFile:
    """A binary file that replaces its target on `commit` and leaves nothing on `abort`.

    As a context manager it commits when the block ends well and aborts on any exception,
    `KeyboardInterrupt` and `SystemExit` among them.

    Parameters
    ----------
    path, force, inputs : as in `check_target`, which is called first
    mode : permission bits. Default: those of the file replaced, else a new file's (the umask's).

    Attributes
    ----------
    file : buffered binary file, open for writing; a short write of the system is never lost in it
    name : the path as given, for messages
    straight : True where bytes go directly to a pipe or device
    """

    def __init__(
        self,
        path: Target,
        *,
        force: bool = False,
        inputs: Sequence[Target] = (),
        mode: int | None = None,
    ) -> None:
        check_target(path, force=force, inputs=inputs)
        self.name = os.fspath(path)
        self._force = force
        self._done = False
        self._temporary: str | None = None
        self._folder: int | None = None
        self.straight = is_special(path)
        with output_errors(self.name):
            if self.straight:
                self._take(_open_straight(path))
                return
            self._target = os.path.realpath(path)  # through symbolic links: the link stays a link
            self._folder = os.open(os.path.dirname(self._target), os.O_RDONLY)
            try:
                self._take(self._create(mode))
            except BaseException:
                os.close(self._folder)
                raise

    def commit(self) -> None:
        """Everything to the disk, then under its name; OutputError on failure, nothing left."""
        if self._done:
            return
        try:
            with output_errors(self.name):
                self.file.flush()
                if not self.straight:
                    os.fsync(self._raw.fileno())
                    self._publish()
                self._raw.close()
        finally:
            self.abort()

    def abort(self) -> None:
        """Forget what was written. May be called at any time, any number of times."""
        self._done = True
        with suppress(OSError):
            self._raw.close()  # not `file`, which would write what it still holds
        if self._folder is not None:
            if self._temporary is not None:
                with suppress(OSError):
                    os.unlink(self._temporary, dir_fd=self._folder)
            self._temporary = None
            os.close(self._folder)
            self._folder = None

    def __enter__(self) -> AtomicFile:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if kind is None:
            self.commit()
        else:
            self.abort()

    def _take(self, raw: io.FileIO) -> None:
        self._raw = raw
        self.file = io.BufferedWriter(raw, _BUFFER)

    def _create(self, mode: int | None) -> io.FileIO:
        """Open the temporary: nameless if the file system can, else hidden beside the target."""
        fd = _unnamed_file(self._folder, mode)
        if fd is None:
            temporary = _temporary_name(self._target)
            flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_CLOEXEC", 0)
            fd = os.open(temporary, flags, 0o666 if mode is None else mode, dir_fd=self._folder)
            self._temporary = temporary
        if mode is None:
            with suppress(FileNotFoundError):
                os.fchmod(fd, stat.S_IMODE(os.stat(self._target).st_mode))
        return io.FileIO(fd, "wb")

    def _publish(self) -> None:
        assert self._folder is not None
        if self._temporary is None:
            temporary = _temporary_name(self._target)
            # Given a folder's descriptor Python calls linkat(2), which follows /proc to the file.
            os.link(f"/proc/self/fd/{self._raw.fileno()}", temporary, dst_dir_fd=self._folder)
            self._temporary = temporary
        base = os.path.basename(self._target)
        if not self._force and os.path.lexists(self._target):
            kept, self._temporary = self._temporary, None  # hours of work are not thrown away
            raise OutputError(
                f"{self.name} appeared while this run was writing it; nothing was replaced",
                f"the finished output is {os.path.join(os.path.dirname(self._target), kept)}",
            )
        os.replace(self._temporary, base, src_dir_fd=self._folder, dst_dir_fd=self._folder)
        self._temporary = None
        with suppress(OSError):  # some network file systems cannot sync a folder
            os.fsync(self._folder)


def standard_output(inputs: Sequence[Target] = ()) -> BinaryIO:
    """Standard output in binary; refused where it has been redirected into one of the inputs."""
    try:
        mine = os.fstat(sys.stdout.fileno())
    except (OSError, ValueError, AttributeError):  # no real file: a test, a notebook
        mine = None
    if mine is not None and stat.S_ISREG(mine.st_mode):
        for location in inputs:
            if _same(mine, location):
                raise UsageError(f"standard output goes into the input {os.fspath(location)}")
    return sys.stdout.buffer


def _refuse_inputs(path: Target, inputs: Sequence[Target]) -> None:
    try:
        mine = os.stat(path)
    except OSError:
        return
    if not stat.S_ISREG(mine.st_mode):
        return
    for location in inputs:
        if _reads(location, path, mine):
            raise UsageError(
                f"{os.fspath(path)} is also an input ({os.fspath(location)})",
                "write to another file; --force does not change this",
            )


def _reads(location: Target, path: Target, mine: os.stat_result) -> bool:
    """Would reading `location` (a file, a folder, a pattern) read the existing file `path`?"""
    for found in local_paths(location):
        if _same(mine, found):
            return True
        if os.path.isdir(found):
            folder, real = os.path.realpath(found), os.path.realpath(path)
            name = os.path.basename(real)
            passed_over = name.startswith((".", "_")) or name.lower().endswith(_NO_TABLES)
            if not passed_over and os.path.commonpath([folder, real]) == folder:
                return True
    return False


def local_paths(location: Target) -> list[str]:
    """The files and folders on this machine that a location names: itself, or what a pattern matches."""
    name = os.fspath(location)
    if name.startswith("file://"):
        name = unquote(name.removeprefix("file://"))
    if glob.has_magic(name) and not os.path.exists(name):
        return glob.glob(name, recursive=True)
    return [name]


def _same(mine: os.stat_result, location: Target) -> bool:
    try:
        return os.path.samestat(mine, os.stat(location))
    except (OSError, ValueError):
        return False


def _descriptor(path: Target) -> int | None:
    """The number N where `path` means the open descriptor N, else None."""
    name = os.path.abspath(os.fspath(path))
    named = {"/dev/stdin": 0, "/dev/stdout": 1, "/dev/stderr": 2}
    if name in named:
        return named[name]
    for prefix in ("/dev/fd/", "/proc/self/fd/"):
        if name.startswith(prefix) and name[len(prefix) :].isdigit():
            return int(name[len(prefix) :])
    return None


def _open_straight(path: Target) -> io.FileIO:
    number = _descriptor(path)
    if number is None:
        return io.FileIO(os.open(path, os.O_WRONLY | getattr(os, "O_CLOEXEC", 0)), "wb")
    if number == 1:
        sys.stdout.flush()
    # A copy of the descriptor, not a second opening: that would cut off what `>>` is to keep.
    return io.FileIO(os.dup(number), "wb")


def _unnamed_file(folder: int | None, mode: int | None) -> int | None:
    flag = getattr(os, "O_TMPFILE", None)
    if flag is None or not os.path.isdir("/proc/self/fd"):
        return None
    try:
        return os.open(".", flag | os.O_WRONLY | os.O_CLOEXEC, 0o666 if mode is None else mode, dir_fd=folder)
    except OSError as error:
        if error.errno in _NO_UNNAMED_FILES:
            return None
        raise


def _temporary_name(target: str) -> str:
    """Hidden, so no reader of the folder takes it for data; short enough for any file system."""
    base = os.path.basename(target).encode("utf-8", "surrogateescape")[:200]
    return f".{os.fsdecode(base)}.{os.urandom(6).hex()}.tmp"


def exchange(a: Target, b: Target) -> bool:
    """Let two files or folders have each other's names, in one step; False where the system cannot.

    Linux has `renameat2`, macOS `renamex_np`; Python has neither. Some network file systems refuse both.
    """
    import ctypes

    libc = ctypes.CDLL(None, use_errno=True)
    names = os.fsencode(a), os.fsencode(b)
    if hasattr(libc, "renameat2"):
        failed = libc.renameat2(_HERE, names[0], _HERE, names[1], ctypes.c_uint(_EXCHANGE))
    elif hasattr(libc, "renamex_np"):
        failed = libc.renamex_np(*names, ctypes.c_uint(_EXCHANGE))
    else:
        return False
    if failed and ctypes.get_errno() not in _NO_EXCHANGE:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()), os.fspath(a))
    return not failed


def write_bytes(path: Target, content: bytes, *, force: bool = False, mode: int | None = None) -> None:
    """Write a small file (a page, a plot) whole or not at all."""
    with AtomicFile(path, force=force, mode=mode) as out, output_errors(out.name):
        out.file.write(content)
