"""The child processes of `speed.py`: make data, read them bare, feed them to scikit-learn.

python -m tests.benchmarks.jobs make FILE ROWS FEATURES
python -m tests.benchmarks.jobs vectors FILE FILE ROWS FEATURES
python -m tests.benchmarks.jobs scan FILE
python -m tests.benchmarks.jobs minibatch FILE
python -m tests.benchmarks.jobs learn ROWS FEATURES REPEATS
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterator
from statistics import median

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq

BATCH_ROWS = 65_536  # as imdh's default
CHUNK_ROWS = 262_144  # made, and written, at a time
CLUSTERS = 20
LEAVES = 256
MANY = 8  # threads: a stage for each level


def blocks(n_rows: int, d: int) -> Iterator[np.ndarray]:
    """Arrays (<= CHUNK_ROWS, d) float64 of 20 Gaussians in random order, n_rows in all."""
    rng = np.random.default_rng(0)
    centres = rng.standard_normal((CLUSTERS, d)) * 4
    for start in range(0, n_rows, CHUNK_ROWS):
        n = min(CHUNK_ROWS, n_rows - start)
        yield centres[rng.integers(0, CLUSTERS, n)] + rng.standard_normal((n, d))


def make(path: str, n_rows: int, d: int) -> None:
    """A file of random float64 columns; CSV cells have 6 decimals."""
    schema = pa.schema([(f"x{j}", pa.float64()) for j in range(d)])
    csv = path.endswith(".csv")
    writer = pa.csv.CSVWriter(path, schema) if csv else pq.ParquetWriter(path, schema)
    with writer:
        for rows in blocks(n_rows, d):
            cells = np.round(rows, 6) if csv else rows
            columns = [pa.array(cells[:, j]) for j in range(d)]
            writer.write(pa.record_batch(columns, schema=schema))


def vectors(path: str, columns_path: str, n_rows: int, d: int) -> None:
    """A Parquet file of one column of vectors, float32, and one of d columns of the same."""
    flat = pa.schema([(f"x{j}", pa.float32()) for j in range(d)])
    lists = pa.schema({"embedding": pa.list_(pa.float32(), d)})
    with pq.ParquetWriter(path, lists) as one, pq.ParquetWriter(columns_path, flat) as many:
        for rows in blocks(n_rows, d):
            cells = rows.astype(np.float32)
            vector = pa.FixedSizeListArray.from_arrays(pa.array(cells.ravel()), d)
            one.write(pa.record_batch([vector], schema=lists))
            columns = [pa.array(cells[:, j]) for j in range(d)]
            many.write(pa.record_batch(columns, schema=flat))


def matrices(path: str) -> Iterator[np.ndarray]:
    """The file as float64 matrices (rows, d), C order: no more than anybody must do to use it."""
    if path.endswith(".csv"):
        with pa.csv.open_csv(path) as reader:
            for batch in reader:
                yield batch.to_tensor(null_to_nan=True, row_major=True).to_numpy()
    else:
        file = pq.ParquetFile(path, memory_map=True, pre_buffer=False)
        for batch in file.iter_batches(BATCH_ROWS):
            yield batch.to_tensor(null_to_nan=True, row_major=True).to_numpy()


def scan(path: str) -> None:
    """Read everything once, use nothing."""
    print(sum(len(rows) for rows in matrices(path)))


def minibatch(path: str) -> None:
    """MiniBatchKMeans fed batch by batch, as many centres as the tree has leaves."""
    from sklearn.cluster import MiniBatchKMeans

    model = MiniBatchKMeans(LEAVES, n_init=1, random_state=0)
    for rows in matrices(path):
        if len(rows) >= LEAVES:
            model.partial_fit(rows)
    print(model.n_steps_)


def learn_pass(rows: np.ndarray, threads: int) -> tuple[float, float]:
    """Seconds of one pass of learning, everything counted, over rows in memory, by the plain loop for 0
    threads; and processor seconds of the stage that has most of them."""
    from imdh_cli.core.columns import ColumnMoments
    from imdh_cli.core.learner import Learner
    from imdh_cli.core.thread_pipeline import block_rows
    from imdh_cli.core.tree import Tree
    from imdh_cli.params import FitParams
    from imdh_cli.rows.stream import RowStream
    from tests.benchmarks import plain_loop

    params = FitParams()
    columns = ColumnMoments(rows.shape[1])
    columns.add(rows[:CHUNK_ROWS])
    scaling, tree = columns.scaling("standard"), Tree.start(params.learn.depth, rows.shape[1])
    start = time.perf_counter()
    if not threads:
        plain_loop.learn_pass(rows, scaling, params.learn, tree)
        seconds = time.perf_counter() - start
        return seconds, seconds
    learner = Learner(tree, scaling, columns, params, threads)
    learner.begin_epoch(0, counting=True)
    for block in RowStream([rows]).blocks(block_rows(rows.shape[1])):
        learner.partial_fit(block)
    learner.join()
    seconds = time.perf_counter() - start
    busy = dict(learner.busy)
    first, *others = (name for name in busy if name.startswith("level"))
    # By the thread that brings the rows.
    own = busy[first] + busy["standardise"] + busy.get("relocate", 0.0)
    return seconds, max(own, *(busy[name] for name in others)) if others else own


def learn(n_rows: int, d: int, repeats: int) -> None:
    """JSON: median seconds of the plain loop, of one thread and of two, in turn, and of the ratios; the least
    processor seconds of the longest stage of as many as there can be."""
    rows = np.concatenate(list(blocks(n_rows, d)))
    for threads in (0, 2):
        learn_pass(rows[:1000], threads)  # compiled
    runs = [[learn_pass(rows, threads)[0] for threads in (0, 1, 2)] for _ in range(repeats)]
    plain, one, two = zip(*runs, strict=True)
    longest = min(learn_pass(rows, MANY)[1] for _ in range(repeats))
    figures = {
        "plain_loop": median(plain),
        "one_thread": median(one),
        "two_threads": median(two),
        "gain": median(a / b for a, b in zip(plain, one, strict=True)),
        "ratio": median(a / b for a, b in zip(one, two, strict=True)),
        "longest_stage": longest,
        "rows": n_rows,
    }
    print(json.dumps(figures))


def main(words: list[str]) -> None:
    """Run one job."""
    name, *rest = words
    if name == "make":
        make(rest[0], int(rest[1]), int(rest[2]))
    elif name == "vectors":
        vectors(rest[0], rest[1], int(rest[2]), int(rest[3]))
    elif name == "scan":
        scan(rest[0])
    elif name == "minibatch":
        minibatch(rest[0])
    elif name == "learn":
        learn(*(int(word) for word in rest))
    else:
        raise SystemExit(__doc__)


if __name__ == "__main__":
    main(sys.argv[1:])
