"""The formats of tables that are read. One more is a line here and the module that it names."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Format:
    """One format of tables.

    name : as `--format` takes it. title : as a person calls it.
    magics : what a file of it begins with, where that is no text.
    suffixes : of file names; the first is the usual one.
    module : has `open_part(file, params)`, a reader of one file.
    text : lines of text. Such a file may be empty, and compressed as a whole.
    seeks : cannot be read from front to back; a stream is first written to a temporary file.
    """

    name: str
    title: str
    magics: tuple[bytes, ...]
    suffixes: tuple[str, ...]
    module: str
    text: bool = False
    seeks: bool = False

    @property
    def a_file(self) -> str:
        """A file of it, in a sentence."""
        return f"a{'n' if self.title[0] in 'AEIO' else ''} {self.title} file"


CSV = Format("csv", "CSV", (), (".csv", ".tsv", ".tab"), "csv.file", text=True)
FORMATS = (
    CSV,
    Format("parquet", "Parquet", (b"PAR1",), (".parquet", ".pq", ".parq"), "parquet_file", seeks=True),
    Format(
        "arrow",
        "Arrow",
        (b"ARROW1", b"\xff\xff\xff\xff"),  # of a file, and of a stream: a continuation marker
        (".arrow", ".feather", ".ipc", ".arrows"),
        "arrow_file",
    ),
    Format("orc", "ORC", (b"ORC",), (".orc",), "orc_file", seeks=True),
    Format("jsonl", "JSON lines", (), (".jsonl", ".ndjson"), "jsonl.file", text=True),
    Format("npy", "NumPy", (b"\x93NUMPY",), (".npy",), "npy_file", seeks=True),
)
NAMES = tuple(format.name for format in FORMATS)
PACKED = (".gz", ".zst", ".zstd", ".bz2")
SUFFIXES = tuple(suffix for format in FORMATS for suffix in format.suffixes)


def by_name(name: str) -> Format:
    """The format of a name among `NAMES`."""
    return next(format for format in FORMATS if format.name == name)


def by_magic(head: bytes) -> Format | None:
    """The format whose files begin with these bytes, which are no text; None where there is none."""
    return next((format for format in FORMATS if head.startswith(format.magics)), None)


def by_suffix(name: str) -> Format:
    """The format that a name claims, compressed or not; CSV where it claims none."""
    stem = name.lower()
    stem = next((stem.removesuffix(suffix) for suffix in PACKED if stem.endswith(suffix)), stem)
    return next((format for format in FORMATS if stem.endswith(format.suffixes)), CSV)
