"""Whether this checkout still does what COMMIT did, byte for byte: `python -m tests.same_as COMMIT`.

For changes that are meant to change no result. The same commands are run with the code of COMMIT and with the
code that is here, over the same small inputs. Arrays and metadata of models, labels, pages, what was printed
and exit statuses are compared, and what differs is named. Nothing but the command line is relied upon, so the
code may move.
"""

from __future__ import annotations

import argparse
import hashlib
import io
import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import tarfile
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq

ROOT = Path(__file__).resolve().parents[1]
# Of the run or of what is installed, not of the result.
VOLATILE = {"seconds", "rows_per_second", "peak_memory_mb", "version", "versions", "imdh_version"}
VOLATILE_TEXT = re.compile(r"[\d.,]+ ((thousand |million )?rows/s|s|MB)\b|compiling \(first run only\)\n")

# Command lines without the `imdh`, run in a folder beside the inputs. "< FILE": on stdin. "!": it is to fail.
# "stop": stopped by a signal once there is a checkpoint.
CHECKPOINTED = "fit ../long.parquet -o m.npz -q --checkpoint 1e-9 --resume --passes 2"
LABELS = "-o labels.csv --with node,leaf,margin,distance"
CASES = {
    "parquet": "fit ../blobs.parquet -o m.npz; report m.npz; report m.npz --json",
    "csv": "fit ../blobs.csv -o m.npz; assign m.npz ../blobs.csv -o labels.csv --keep kind",
    "csv, packed": "fit ../blobs.csv.gz -o m.npz; assign m.npz ../blobs.csv.gz -o labels.csv.gz",
    "arrow": "fit ../blobs.arrow -o m.npz --json; assign m.npz ../blobs.arrow -o labels.arrow",
    "stdin": "fit - -o m.npz < ../blobs.csv; assign m.npz - < ../blobs.csv",
    "folder": "fit ../parts -o m.npz; assign m.npz ../parts -o labels.parquet --keep-all",
    "one column": "fit ../one.parquet -o m.npz; report m.npz; report m.npz --json",
    "many columns": "fit ../wide.parquet -o m.npz; report m.npz",
    "one pass": "fit ../blobs.parquet -o m.npz --passes 1 --recount no; report m.npz",
    "csv, streamed": "fit ../blobs.csv -o m.npz --buffer-rows 500 --passes 1",
    "csv, streamed, four passes": "fit ../blobs.csv -o m.npz --buffer-rows 500 --passes 4",
    "stdin, streamed": "fit - -o m.npz --buffer-rows 500 --passes 2 < ../blobs.csv",
    "mixed order": "fit ../groups.parquet -o m.npz --buffer-rows 500 --passes 1; report m.npz",
    "mixed order, four passes": "fit ../groups.parquet -o m.npz --buffer-rows 500 --passes 4 --recount no",
    "buffer": "fit ../groups.parquet -o m.npz --shuffle buffer --buffer-rows 500 --passes 1",
    "as they come": "fit ../groups.parquet -o m.npz --shuffle none --passes 1",
    "long": "fit ../long.parquet -o m.npz --passes 1 --buffer-rows 3000 --recount no",
    "paper": "fit ../blobs.parquet -o m.npz --preset paper; report m.npz",
    "paper, streamed": "fit ../groups.parquet -o m.npz --preset paper --buffer-rows 500",
    "options": "fit ../blobs.parquet -o m.npz --depth 5 --alpha 0.8 --penalty 5 --bandwidth 2 --rate 1.5"
    " --learning-decay 0.8 --clamp 3 --reseat no --scale none --seed 7 --min-size 50 --weight ss",
    "missing cells": f"fit ../gaps.parquet -o m.npz; assign m.npz ../gaps.parquet {LABELS}",
    "missing cells, mean": f"fit ../gaps.parquet -o m.npz --missing mean; assign m.npz ../gaps.csv {LABELS};"
    " fit ../gaps.csv -o streamed.npz --missing mean --buffer-rows 500 --passes 2",
    "onehot": "fit ../coded.parquet -o m.npz --categorical onehot; report m.npz --json;"
    " assign m.npz ../coded.parquet -o labels.csv",
    "coded columns": "fit ../coded.parquet -o m.npz; report m.npz --json;"
    " fit ../coded.parquet -o streamed.npz --buffer-rows 500 --passes 1",
    "update": "fit ../blobs.parquet -o m.npz; fit ../later.parquet --update m.npz -o u.npz; report u.npz",
    "update, as they come": "fit ../blobs.parquet -o m.npz --shuffle none --passes 1 --recount no;"
    " fit ../later.parquet --update m.npz -o u.npz --shuffle none --passes 1 --recount no",
    "resume": f"stop {CHECKPOINTED}; {CHECKPOINTED}",
    "resume, streamed": f"stop {CHECKPOINTED} --buffer-rows 3000; {CHECKPOINTED} --buffer-rows 3000",
    "recount": "fit ../blobs.csv -o m.npz --passes 1 --recount no; prune m.npz ../blobs.csv -o r.npz",
    "prune": "fit ../blobs.parquet -o m.npz; prune m.npz -k 6 -o six.npz; prune m.npz --table;"
    " prune m.npz -k valleys --min-size 20 -o v.npz --json; assign m.npz ../blobs.csv -k 3 -o three.parquet",
    "reports": "fit ../blobs.parquet -o m.npz; report m.npz ../blobs.parquet --truth kind;"
    " report m.npz ../blobs.parquet --truth kind --json --node 1; report m.npz --tree; report m.npz --csv;"
    " report m.npz --node 1; report m.npz ../blobs.parquet --html page.html",
    "threads": "fit ../wide.parquet -o 1.npz --threads 1; fit ../wide.parquet -o 2.npz --threads 2;"
    " assign 1.npz ../wide.parquet -o 1.csv --threads 1; assign 1.npz ../wide.parquet -o 2.csv --threads 2",
    "refused": "! fit ../bad.csv -o m.npz; fit ../bad.csv -o m.npz --on-bad-row skip;"
    " ! assign m.npz ../one.parquet; ! fit nothing.csv -o n.npz; ! prune ../bad.csv -k 3; ! fit ../bad.csv",
}


def write_inputs(folder: Path) -> None:
    """Tables of a few thousand rows in all formats; the same each time."""
    rng = np.random.default_rng(0)
    centres = 5 * rng.standard_normal((4, 30))

    def table(rows: int, d: int) -> pa.Table:
        which = rng.integers(0, 4, rows)
        X = centres[which, :d] + rng.standard_normal((rows, d))
        return pa.table({**{f"x{j + 1}": X[:, j] for j in range(d)}, "kind": np.array(list("abcd"))[which]})

    blobs = table(4000, 5)
    pq.write_table(blobs, folder / "blobs.parquet")
    pa.csv.write_csv(blobs, folder / "blobs.csv")
    with pa.CompressedOutputStream(str(folder / "blobs.csv.gz"), "gzip") as out:
        pa.csv.write_csv(blobs, out)
    with pa.ipc.new_file(str(folder / "blobs.arrow"), blobs.schema) as writer:
        writer.write_table(blobs, max_chunksize=700)
    (folder / "parts").mkdir()
    for number, start in ((1, 0), (2, 1500), (10, 2200)):
        pq.write_table(blobs.slice(start, 1500), folder / "parts" / f"part-{number}.parquet")
    pq.write_table(blobs.sort_by("kind"), folder / "groups.parquet", row_group_size=100)
    pq.write_table(table(2000, 5), folder / "later.parquet")
    pq.write_table(table(2000, 1), folder / "one.parquet")
    pq.write_table(table(3000, 30), folder / "wide.parquet")
    pq.write_table(table(50_000, 2).sort_by("kind"), folder / "long.parquet", row_group_size=2500)
    gaps = blobs
    for j in range(2):
        cells = pa.array(blobs[f"x{j + 1}"].to_numpy(), mask=rng.random(blobs.num_rows) < 0.04)
        gaps = gaps.set_column(j, f"x{j + 1}", cells)
    pq.write_table(gaps, folder / "gaps.parquet")
    pa.csv.write_csv(gaps, folder / "gaps.csv")
    coded = blobs.append_column("level", pa.array(rng.integers(0, 5, blobs.num_rows)))
    coded = coded.append_column("flag", pa.array(rng.random(blobs.num_rows) < 0.3))
    pq.write_table(coded, folder / "coded.parquet")
    lines = (folder / "blobs.csv").read_text().splitlines()[:1000]
    lines[700] = "word," + lines[700].split(",", 1)[1]
    (folder / "bad.csv").write_text("\n".join([*lines, "1,2"]) + "\n")


def code_of(commit: str, folder: Path) -> Path:
    """Unpack a commit of this repository into `folder`."""
    packed = subprocess.run(["git", "-C", ROOT, "archive", commit], check=True, stdout=subprocess.PIPE).stdout
    with tarfile.open(fileobj=io.BytesIO(packed)) as archive:
        archive.extractall(folder, filter="data")
    return folder


def outcome(root: Path, lines: str, folder: Path) -> dict[str, str]:
    """Run command lines with the code in `root` in a new folder; digests of all that comes of it, by name.

    Raises
    ------
    RuntimeError
        When a command that is to succeed fails, or the other way round: then nothing would be compared.
    """
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    found = {}
    for number, line in enumerate(lines.split(";"), 1):
        words = shlex.split(line)
        how = words.pop(0) if words[0] in ("!", "stop") else ""
        status, out, err = _run(root, words, folder, stop=how == "stop")
        if bool(status) != bool(how):
            raise RuntimeError(f"{line.strip()}: status {status} by {root}\n{err.decode()}")
        name = f"{number} {words[0]}"
        found[f"{name}: status"] = str(status)
        found[f"{name}: stderr"] = _digest(VOLATILE_TEXT.sub("", err.decode()).encode())
        printed = out.startswith(b"{") and _flat(json.loads(out))
        found |= {f"{name}: {key}": value for key, value in printed or [("stdout", _digest(out))]}
    return found | digests(folder)


def digests(folder: Path) -> dict[str, str]:
    """Digests by name of all files: of models, one for each array and each key of the metadata."""
    found = {}
    for path in sorted(x for x in folder.rglob("*") if x.is_file()):
        name = path.relative_to(folder).as_posix()
        if path.suffix != ".npz":
            found[name] = _digest(path.read_bytes())
            continue
        with np.load(path, allow_pickle=False) as arrays:
            metadata = json.loads(str(arrays["metadata"]))
            found |= {f"{name}: metadata.{key}": value for key, value in _flat(metadata)}
            for key in arrays.files:
                if key != "metadata":
                    kind = f"{arrays[key].dtype.str} {arrays[key].shape} "
                    found[f"{name}: {key}"] = _digest(kind.encode() + arrays[key].tobytes())
    return found


def differences(one: dict[str, str], other: dict[str, str]) -> list[str]:
    """Names of what is not the same, or in one of them only."""
    return [name for name in {**one, **other} if one.get(name) != other.get(name)]


def _run(root: Path, words: list[str], folder: Path, *, stop: bool) -> tuple[int, bytes, bytes]:
    """Exit status, stdout and stderr of `imdh WORDS` as a program."""
    words, source = (words[:-2], folder / words[-1]) if "<" in words else (words, Path(os.devnull))
    env = {key: value for key, value in os.environ.items() if key != "NUMBA_CACHE_DIR"}
    env |= {"PYTHONPATH": str(root), "COLUMNS": "100", "NO_COLOR": "1"}
    program = [sys.executable, "-m", "imdh_cli", *words]
    pipe = subprocess.PIPE
    with (
        open(source, "rb") as stdin,
        subprocess.Popen(program, env=env, cwd=folder, stdin=stdin, stdout=pipe, stderr=pipe) as running,
    ):
        while stop and running.poll() is None:
            if any(folder.glob("*.checkpoint")):
                running.send_signal(signal.SIGTERM)  # SIGINT may have been ignored from the start
                break
            time.sleep(0.001)
        out, err = running.communicate()
    return running.returncode, out, err


def _flat(value: Any, name: str = "") -> Iterator[tuple[str, str]]:
    """The innermost values of a JSON object by dotted name, but for those of the run; lists are one value."""
    if not isinstance(value, dict) or not value:
        yield name, json.dumps(value)
        return
    for key, inner in value.items():
        if key not in VOLATILE:
            yield from _flat(inner, f"{name}.{key}".lstrip("."))


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def main(arguments: Sequence[str] | None = None) -> int:
    """Compare, a line a case; 1 when anything differs."""
    parser = argparse.ArgumentParser(prog="python -m tests.same_as", description=__doc__)
    parser.add_argument("commit", nargs="?", metavar="COMMIT", help="whose results are to be kept")
    parser.add_argument(
        "--only", action="append", choices=CASES, metavar="NAME", help="this case; repeatable"
    )
    parser.add_argument("--list", action="store_true", help="the cases and their commands")
    options = parser.parse_args(arguments)
    if options.list:
        print("\n".join(f"{name}: {lines}" for name, lines in CASES.items()))
        return 0
    if options.commit is None:
        parser.error("which COMMIT?")
    chosen = options.only or list(CASES)
    different = 0
    with tempfile.TemporaryDirectory(prefix="same-as-") as scratch:
        then, now = Path(scratch, "then"), Path(scratch, "now")
        code = code_of(options.commit, Path(scratch, "code"))
        for side in (then, now):
            side.mkdir()
            write_inputs(side)
        for name in chosen:
            try:
                found = outcome(code, CASES[name], then / "case"), outcome(ROOT, CASES[name], now / "case")
                names = differences(*found)
            except RuntimeError as error:
                names = [str(error)]
            different += bool(names)
            print(f"differs  {name}: {', '.join(names)}" if names else f"same     {name}", flush=True)
    print(f"{different} of {len(chosen)} cases differ")
    return int(different > 0)


if __name__ == "__main__":
    sys.exit(main())
