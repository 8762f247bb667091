"""A PostgreSQL server of one's own, for as long as a test session takes.

`server` finds `initdb` on the PATH or where Debian has it, makes a cluster in a folder under /tmp and starts
it on a socket there, without a port. The server refuses to run as root: then it runs as the user "postgres".
"""

from __future__ import annotations

import glob
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa

from tests.needs import missing

DEBIAN = sorted(glob.glob("/usr/lib/postgresql/*/bin"), reverse=True)
OPTIONS = "-c listen_addresses='' -c fsync=off -c full_page_writes=off -c synchronous_commit=off"


def programs() -> str | None:
    """The folder of initdb, pg_ctl and psql, or None."""
    found = shutil.which("initdb")
    folders = [*([os.path.dirname(os.path.realpath(found))] if found else []), *DEBIAN]
    needed = ("initdb", "pg_ctl", "psql")
    return next((f for f in folders if all(os.path.exists(f"{f}/{name}") for name in needed)), None)


@dataclass(frozen=True)
class Server:
    """A running server. folder: of its socket. programs: of its client."""

    folder: Path
    programs: str

    def run(self, sql: str, stdin: str | None = None) -> str:
        """What psql prints, values separated by tabs, without a header; an error of SQL fails the test."""
        words = ["-X", "-q", "-A", "-t", "-F", "\t", "-v", "ON_ERROR_STOP=1", "-h", str(self.folder)]
        command = [f"{self.programs}/psql", *words, "-U", "postgres", "-d", "postgres"]
        with tempfile.NamedTemporaryFile("w", suffix=".sql", encoding="utf-8") as file:
            file.write(sql)
            file.flush()
            done = subprocess.run(
                [*command, "-f", file.name],
                input=stdin,
                capture_output=True,
                encoding="utf-8",
                env=os.environ | {"PGCLIENTENCODING": "UTF8"},
                timeout=300,
                check=False,
            )
        assert done.returncode == 0, done.stderr
        return done.stdout

    def create(self, name: str, table: pa.Table, types: Sequence[str]) -> None:
        """A table with these rows and a column `row` that numbers them; types are PostgreSQL's."""
        quoted = ['"' + column.replace('"', '""') + '"' for column in table.column_names]
        columns = ", ".join(f"{column} {kind}" for column, kind in zip(quoted, types, strict=True))
        self.run(f'DROP TABLE IF EXISTS {name}; CREATE TABLE {name} ("row" bigint, {columns})')
        rows = zip(range(table.num_rows), *(c.to_pylist() for c in table.columns), strict=True)
        lines = "".join("\t".join(map(_cell, row)) + "\n" for row in rows)
        self.run(f"\\copy {name} FROM pstdin", stdin=lines)

    def labels(self, query: str, name: str = "cluster") -> np.ndarray:
        """The labels of a query over a table of `create`, in the order of its rows."""
        text = self.run(f'SELECT "{name}" FROM (\n{query}\n) AS labelled ORDER BY "row"')
        return np.array([int(line) for line in text.split()], dtype=np.int64)


def _cell(value: object) -> str:
    if value is None:
        return "\\N"
    if isinstance(value, float):
        return repr(value)
    if isinstance(value, list):
        return "{" + ",".join("NULL" if item is None else repr(item) for item in value) + "}"
    return str(value).replace("\\", "\\\\").replace("\t", "\\t").replace("\n", "\\n").replace("\r", "\\r")


@contextmanager
def server() -> Iterator[Server]:
    """A server until the end of the block, for a test that needs one."""
    found = programs() or missing("postgres", "PostgreSQL is not installed")
    other = ["runuser", "-u", "postgres", "--"] if os.geteuid() == 0 else []
    folder = Path(tempfile.mkdtemp(prefix="imdh-postgres-", dir="/tmp"))  # a socket's path must be short
    if other:
        shutil.chown(folder, "postgres")
    data = folder / "data"

    def run(*words: str) -> None:
        done = subprocess.run(
            [*other, *words],
            cwd=folder,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            encoding="utf-8",
            timeout=120,
            check=False,
        )
        assert done.returncode == 0, done.stdout

    try:
        run(f"{found}/initdb", "-D", str(data), "-U", "postgres", "-A", "trust", "-E", "UTF8",
            "--locale", "C", "--no-sync")  # fmt: skip
        run(f"{found}/pg_ctl", "-D", str(data), "-w", "-l", str(folder / "log"),
            "-o", f"{OPTIONS} -k {folder}", "start")  # fmt: skip
        try:
            yield Server(folder, found)
        finally:
            run(f"{found}/pg_ctl", "-D", str(data), "-w", "-m", "immediate", "stop")
    finally:
        shutil.rmtree(folder)
