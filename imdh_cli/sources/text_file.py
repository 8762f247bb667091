"""A file or stream -> its text: unpacked, byte order mark taken off, in UTF-8 or a single-byte encoding."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import BinaryIO, NamedTuple, cast

from imdh_cli.errors import DataError
from imdh_cli.sources.base import Opener
from imdh_cli.sources.compression import Counted, Read, cannot_read, filled, prefixed, unpacked
from imdh_cli.sources.encoding import Encoding, byte_order_mark, converted, encoding_of, looks_like_utf16

_FIRST = 1024


class OpenText(NamedTuple):
    """Text to read from; `close` lets go of the file.

    back : goes back so many bytes; None where that is impossible.
    """

    read: Read
    close: Callable[[], None]
    back: Callable[[int], None] | None = None


class TextFile:
    """Text that can be read from the start, once or more, and perhaps from any place.

    Offsets are bytes of the text: behind the mark, and after conversion where `encoding.kind` is "stream".

    encoding : what the text is in; a byte order mark decides, whatever was asked for.
    codec : "gzip", "zstd", "bz2" or None. Known after the first `open`, like `encoding`.
    count : is told of the bytes taken from the file by `open`, negative where it goes back; not by `read_at`.
    path : of a file on this machine that can be read again.
    """

    def __init__(
        self,
        name: str,
        opener: Opener,
        encoding: Encoding,
        count: Callable[[int], None],
        path: str | None,
    ) -> None:
        self.name = name
        self.encoding = encoding
        self.codec: str | None = None
        self.notes: list[str] = []
        self._opener = opener
        self._count = count
        self._path = path
        self._mark: int | None = None

    @property
    def seekable(self) -> bool:
        """Whether `read_at` works: a plain file of this machine in which a line end is a line end."""
        return self._path is not None and self.codec is None and self.encoding.kind != "stream"

    @property
    def mark(self) -> int:
        """Bytes of the byte order mark."""
        return self._mark or 0

    @property
    def charset(self) -> str:
        """The encoding of what is read: the file's own, or utf-8 where it was converted."""
        return self.encoding.name if self.encoding.kind == "single" else "utf-8"

    def open(self) -> OpenText:
        """The text from its start.

        Raises
        ------
        DataError
            When the file cannot be opened, or is of a kind that is refused.
        """
        try:
            raw = Counted(self._opener(), self.name, self._count)
        except OSError as error:
            raise cannot_read(self.name, error) from error
        try:
            read, self.codec = unpacked(raw)
            head, _ = filled(read, _FIRST)
            if self._mark is None:
                self._mark = self._marked(head)
        except BaseException:
            raw.close()
            raise
        text = prefixed(head[self._mark :], read)
        if self.encoding.kind == "stream":
            text = converted(text, self.encoding.name)
        return OpenText(text, raw.close)

    def open_at(self, offset: int) -> OpenText:
        """A seekable text from any place."""
        assert self._path is not None
        try:
            # Without a buffer of its own: what is read is larger than one, and would go through it.
            file = open(self._path, "rb", buffering=0)  # noqa: SIM115
            file.seek((self._mark or 0) + offset)
        except OSError as error:
            raise cannot_read(self.name, error) from error
        raw = Counted(cast(BinaryIO, file), self.name, self._count)

        def back(n: int) -> None:
            file.seek(-n, os.SEEK_CUR)
            self._count(-n)

        return OpenText(raw.read, raw.close, back)

    def read_at(self, offset: int, n: int) -> bytes:
        """`n` bytes of a seekable text, fewer at its end."""
        assert self._path is not None
        try:
            with open(self._path, "rb") as file:
                file.seek((self._mark or 0) + offset)
                return file.read(n)
        except OSError as error:
            raise cannot_read(self.name, error) from error

    def _marked(self, head: bytes) -> int:
        """The mark's length; the encoding it tells is taken."""
        mark = byte_order_mark(head)
        if mark is None:
            if self.encoding.name in ("utf-16", "utf-32"):
                guess = looks_like_utf16(head) if self.encoding.name == "utf-16" else None
                self.encoding = encoding_of(guess or f"{self.encoding.name}-le")
                return 0
            guess = looks_like_utf16(head) if self.encoding.kind != "stream" else None
            if guess is not None:
                raise DataError(
                    f"{self.name}: every other byte is NUL: this looks like UTF-16 without a mark",
                    f"add --encoding {guess}",
                )
            return 0
        name, length = mark
        if not _same_family(name, self.encoding.name):
            self.notes.append(f"{self.name}: read as {name}, as its byte order mark says")
        self.encoding = encoding_of(name)
        return length


def _same_family(told: str, asked: str) -> bool:
    return told == asked or (asked in ("utf-16", "utf-32") and told.startswith(asked))
