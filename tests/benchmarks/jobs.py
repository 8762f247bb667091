"""The child processes of `speed.py`: make data, read them bare, feed them to others.

python -m tests.benchmarks.jobs make FILE ROWS FEATURES [CLASSES.npy | - [ROWS IN A GROUP]]
python -m tests.benchmarks.jobs vectors FILE FILE ROWS FEATURES
python -m tests.benchmarks.jobs scan FILE
python -m tests.benchmarks.jobs peer NAME FILE LABELS.npy
python -m tests.benchmarks.jobs nmi LABELS CLASSES.npy
python -m tests.benchmarks.jobs ari LABELS LABELS
python -m tests.benchmarks.jobs learn ROWS FEATURES REPEATS
python -m tests.benchmarks.jobs stages FILE
"""

from __future__ import annotations

import json
import signal
import sys
import time
from collections.abc import Iterator, Mapping
from statistics import median

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq

BATCH_ROWS = 65_536  # as imdh's default
CHUNK_ROWS = 262_144  # made, and written, at a time
CLUSTERS = 20
LEAVES = 256
MANY = 8  # threads
PATIENCE = 120.0  # processor seconds that a peer may take


def blocks(n_rows: int, d: int) -> Iterator[np.ndarray]:
    """Arrays (<= CHUNK_ROWS, d) float64 of 20 Gaussians in random order, n_rows in all."""
    return (rows for rows, _ in blocks_and_classes(n_rows, d))


def blocks_and_classes(n_rows: int, d: int) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """The same with the Gaussian of each row."""
    rng = np.random.default_rng(0)
    centres = rng.standard_normal((CLUSTERS, d)) * 4
    for start in range(0, n_rows, CHUNK_ROWS):
        n = min(CHUNK_ROWS, n_rows - start)
        which = rng.integers(0, CLUSTERS, n)
        yield centres[which] + rng.standard_normal((n, d)), which


def make(path: str, n_rows: int, d: int, classes: str = "-", group: str | None = None) -> None:
    """A file of random float64 columns; CSV cells have 6 decimals. group : rows in a row group."""
    if classes != "-":
        np.save(classes, np.concatenate([which for _, which in blocks_and_classes(n_rows, d)]))
    schema = pa.schema([(f"x{j}", pa.float64()) for j in range(d)])
    csv = path.endswith(".csv")
    writer = pa.csv.CSVWriter(path, schema) if csv else pq.ParquetWriter(path, schema)
    with writer:
        for rows in blocks(n_rows, d):
            cells = np.round(rows, 6) if csv else rows
            batch = pa.record_batch([pa.array(cells[:, j]) for j in range(d)], schema=schema)
            writer.write(batch, **({} if group is None else {"row_group_size": int(group)}))


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


def peer(name: str, path: str, labels: str) -> None:
    """Clusters of a file as its reader would find them with another library, and the label of each row.

    NAME is the method and the number of centres: minibatch-20. What is made for streams gets the file batch
    by batch, twice; the others all of it at once.
    """

    def give_up(*_: object) -> None:
        raise SystemExit("not within the time")

    signal.signal(signal.SIGPROF, give_up)
    signal.setitimer(signal.ITIMER_PROF, PATIENCE)
    method, k = name.split("-")
    np.save(labels, PEERS[method](path, int(k)))


def _minibatch(path: str, k: int) -> np.ndarray:
    from sklearn.cluster import MiniBatchKMeans

    model = MiniBatchKMeans(k, n_init=1, random_state=0)
    for rows in matrices(path):
        if len(rows) >= k:
            model.partial_fit(rows)
    return np.concatenate([model.predict(rows) for rows in matrices(path)])


def _kmeans(path: str, k: int) -> np.ndarray:
    from sklearn.cluster import KMeans

    return KMeans(k, random_state=0).fit_predict(np.concatenate(list(matrices(path))))


def _bisecting(path: str, k: int) -> np.ndarray:
    from sklearn.cluster import BisectingKMeans

    return BisectingKMeans(k, random_state=0).fit_predict(np.concatenate(list(matrices(path))))


def _birch(path: str, k: int) -> np.ndarray:
    """The threshold is the radius of the clusters that were planted, which a person would not know."""
    from sklearn.cluster import Birch

    model = Birch(n_clusters=k, threshold=5.0)
    for rows in matrices(path):
        model.partial_fit(rows)
    return np.concatenate([model.predict(rows) for rows in matrices(path)])


def _faiss(path: str, k: int) -> np.ndarray:
    """It learns from 256 rows for each centre."""
    import faiss

    rows = np.concatenate([rows.astype(np.float32) for rows in matrices(path)])
    model = faiss.Kmeans(rows.shape[1], k, seed=0)
    model.train(rows)
    return model.index.search(rows, 1)[1][:, 0]


def _river(path: str, k: int) -> np.ndarray:
    """Streaming k-means, one row after another."""
    from river.cluster import KMeans

    model, labels = KMeans(n_clusters=k, seed=0), []
    for rows in matrices(path):
        for row in rows.tolist():
            x = dict(enumerate(row))
            model.learn_one(x)
            labels.append(model.predict_one(x))
    return np.array(labels)


PEERS = {
    "minibatch": _minibatch,
    "kmeans": _kmeans,
    "bisecting": _bisecting,
    "birch": _birch,
    "faiss": _faiss,
    "river": _river,
}


def nmi(labels: str, classes: str) -> None:
    """JSON: normalised mutual information (arithmetic) of labels, a .npy or a Parquet file, and classes."""
    from sklearn.metrics import normalized_mutual_info_score

    found = np.load(labels) if labels.endswith(".npy") else pq.read_table(labels)["cluster"].to_numpy()
    score = float(normalized_mutual_info_score(np.load(classes), found))
    print(json.dumps({"nmi": score, "clusters": len(np.unique(found))}))


def ari(one: str, other: str) -> None:
    """JSON: adjusted Rand index of the labels in two Parquet files."""
    from sklearn.metrics import adjusted_rand_score

    labels = [pq.read_table(path)["cluster"].to_numpy() for path in (one, other)]
    print(json.dumps({"ari": float(adjusted_rand_score(*labels))}))


def learn_pass(rows: np.ndarray, threads: int) -> tuple[float, dict[str, float]]:
    """Seconds of one pass of learning, everything counted, over rows in memory, by the plain loop for 0
    threads; and processor seconds by step."""
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
    scaling, tree = columns.scaling("standard"), Tree.start(params.learn.levels, rows.shape[1])
    start = time.perf_counter()
    if not threads:
        plain_loop.learn_pass(rows, scaling, params.learn, tree)
        return time.perf_counter() - start, {}
    learner = Learner(tree, scaling, columns, params, threads)
    learner.begin_epoch(0, counting=True)
    for block in RowStream([rows]).blocks(block_rows(rows.shape[1])):
        learner.partial_fit(block)
    learner.join()
    return time.perf_counter() - start, dict(learner.busy)


def pace(busy: Mapping[str, float], threads: int) -> float:
    """Seconds that so many processors would take: those of the longest step, or of all steps shared out.

    Cuts are moved while all wait; columns are decoded by any number.
    """
    steps = {name: seconds for name, seconds in busy.items() if name != "relocate"}
    longest = max(seconds for name, seconds in steps.items() if name != "decode")
    return busy.get("relocate", 0.0) + max(longest, sum(steps.values()) / threads)


def learn(n_rows: int, d: int, repeats: int) -> None:
    """JSON: medians of the plain loop, one thread and two, in turn, in seconds and processor seconds, and of
    their ratios; what two threads and eight would take by the steps alone."""
    rows = np.concatenate(list(blocks(n_rows, d)))
    for threads in (0, 1, 2, MANY):
        learn_pass(rows[:1000], threads)  # compiled
    runs = []
    for _ in range(repeats):
        now = []
        for threads in (0, 1, 2, MANY):
            start = time.process_time()
            seconds, busy = learn_pass(rows, threads)
            now.append((seconds, time.process_time() - start, busy))
        runs.append(now)
    plain, one, two, many = zip(*runs, strict=True)
    figures = {
        "plain_loop": median(run[0] for run in plain),
        "one_thread": median(run[0] for run in one),
        "two_threads": median(run[0] for run in two),
        "plain_loop_cpu": median(run[1] for run in plain),
        "one_thread_cpu": median(run[1] for run in one),
        "gain": median(a[1] / b[1] for a, b in zip(plain, one, strict=True)),
        "ratio": median(a[0] / b[0] for a, b in zip(one, two, strict=True)),
        "paced_2": median(pace(run[2], 2) for run in two),
        "paced_8": median(pace(run[2], MANY) for run in many),
        "rows": n_rows,
    }
    print(json.dumps(figures))


def stages(path: str) -> None:
    """JSON: processor seconds by step of one pass over a file by as many threads as MANY."""
    from dataclasses import replace

    from imdh_cli.features import select_features
    from imdh_cli.params import FeatureParams, FitParams, SourceParams
    from imdh_cli.pipeline.fit import fit
    from imdh_cli.sources import open_source

    source = open_source([path], SourceParams(threads=1))  # one thread decodes: its time is all of it
    done = fit(
        source,
        select_features(source, FeatureParams()),
        replace(FitParams(), passes=1, recount="no"),
        threads=MANY,
    )
    busy = dict(done.busy)
    print(json.dumps({"rows": done.tally.used, "paced_8": pace(busy, MANY), "busy": busy}))


def main(words: list[str]) -> None:
    """Run one job."""
    name, *rest = words
    if name == "make":
        make(rest[0], int(rest[1]), int(rest[2]), *rest[3:])
    elif name == "vectors":
        vectors(rest[0], rest[1], int(rest[2]), int(rest[3]))
    elif name == "scan":
        scan(rest[0])
    elif name == "peer":
        peer(*rest)
    elif name == "nmi":
        nmi(*rest)
    elif name == "ari":
        ari(*rest)
    elif name == "learn":
        learn(*(int(word) for word in rest))
    elif name == "stages":
        stages(rest[0])
    else:
        raise SystemExit(__doc__)


if __name__ == "__main__":
    main(sys.argv[1:])
