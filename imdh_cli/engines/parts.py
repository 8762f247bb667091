"""Record batches of one part of a table -> partial results that add up; no engine is known here.

Learning is a sequence, since each row moves the cuts that the next one meets; counting is a sum. So the parts
of a table are profiled and sampled, the tree is learned in one place from the sample, and the parts are
counted under it. Partial results travel as bytes, and merged in the order of the parts they give the same
bytes each time.
"""

from __future__ import annotations

import io
import json
import zipfile
import zlib
from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from itertools import accumulate
from typing import Any, Self, TypeAlias

import numpy as np
import pyarrow as pa

from imdh_cli.core.columns import ColumnMoments
from imdh_cli.core.counter import Counter
from imdh_cli.core.dither import Dither
from imdh_cli.core.learn import Learned, learn
from imdh_cli.core.sentinels import Sentinels
from imdh_cli.core.state import NOISE
from imdh_cli.core.statistics import Statistics
from imdh_cli.core.tree import FrozenTree, Scaling
from imdh_cli.errors import DataError, ModelError
from imdh_cli.features import FeatureSpec, Tally, bind_features, judge
from imdh_cli.model import Model
from imdh_cli.model.build import Provenance, build, check_range, describe, odd_of, prune
from imdh_cli.model.metadata import doubted
from imdh_cli.params import AssignParams, FitParams, Missing, SourceParams
from imdh_cli.pipeline.assign import ChunkLabeller
from imdh_cli.pipeline.feature_rows import FeatureRows
from imdh_cli.rows.source import ArrayRows
from imdh_cli.sources.memory import batches_source

LEVEL = 1  # of compression: more costs time on every worker
SAMPLE_BYTES = 1 << 20  # of a packed piece of a sample
SAMPLED = b"sampled:"  # how such a piece begins, before its keys and its rows
NAME = "the DataFrame"

Buffer: TypeAlias = bytes | pa.Buffer


@dataclass(frozen=True)
class Matrices:
    """Rows that come as matrices (n, d) of all features, which are columns of numbers alone: they are changed
    in place. To turn them into columns and back takes as long as to profile them."""

    matrices: Iterable[np.ndarray]


Rows: TypeAlias = Iterable[pa.RecordBatch] | Matrices


def pack(arrays: Mapping[str, np.ndarray]) -> bytes:
    """Named arrays as bytes; mostly counts, and these mostly 0."""
    out = io.BytesIO()
    np.savez(out, **arrays)  # type: ignore[arg-type]
    return zlib.compress(out.getbuffer(), LEVEL)


def unpack(data: Buffer) -> dict[str, np.ndarray]:
    """The inverse of `pack`. Raises ModelError for anything else."""
    with _damaged(), np.load(io.BytesIO(zlib.decompress(data)), allow_pickle=False) as file:
        return {name: file[name] for name in file.files}


@contextmanager
def _damaged() -> Iterator[None]:
    try:
        yield
    except (zlib.error, zipfile.BadZipFile, ValueError, OSError, EOFError, KeyError) as error:
        raise ModelError("a partial result is damaged") from error


def _tally_array(tally: Tally) -> np.ndarray:
    return np.array(json.dumps(asdict(tally)))


def _tally(array: np.ndarray) -> Tally:
    return Tally(**json.loads(str(array)))


@dataclass
class Profile:
    """What is known of the rows of parts: moments of the columns, a sample.

    keys, sample : of rows that were drawn, in their order, as blocks (k,) and (k, d); those with the least
    keys are a uniform sample of all rows. used : rows of each part, in the order of parts.
    """

    columns: ColumnMoments
    tally: Tally
    keys: list[np.ndarray]
    sample: list[np.ndarray]
    used: dict[int, int]

    @classmethod
    def empty(cls, d: int) -> Self:
        return cls(ColumnMoments(d), Tally(), [np.empty(0)], [np.empty((0, d))], {})

    @property
    def first_rows(self) -> dict[int, int]:
        """Of each part, the place of its first row among the used ones of all."""
        ends = accumulate(self.used.values(), initial=0)
        return dict(zip(self.used, ends, strict=False))

    def drawn(self, rows: int) -> np.ndarray:
        """A uniform sample of at most so many rows, in their order; the others are forgotten."""
        keys = np.concatenate(self.keys)
        if len(self.keys) > 1 or len(keys) > rows:
            least = np.ones(len(keys), dtype=np.bool_)
            if len(keys) > rows:
                least[np.argpartition(keys, rows)[rows:]] = False
            sample, start, end = np.empty((min(rows, len(keys)), self.sample[0].shape[1])), 0, 0
            for block in self.sample:  # of each straight to its place: they are most of what a driver holds
                here = least[start : start + len(block)]
                start, have = start + len(block), int(here.sum())
                np.compress(here, block, axis=0, out=sample[end : end + have])
                end += have
            self.keys, self.sample = [keys[least]], [sample]
        return self.sample[0]


def profile(
    rows: Rows,
    spec: FeatureSpec,
    *,
    fraction: float,
    seed: int,
    part: int,
    reading: SourceParams | None = None,
) -> Profile:
    """One reading of a part: column moments of all its used rows, and about `fraction` of them.

    Which rows are drawn follows from seed, part and the order of rows alone.
    """
    found = Profile.empty(len(spec.names))
    rng = np.random.default_rng([seed, 9, part])
    for X in _matrices(rows, spec, found.tally, reading):
        found.columns.add(X)
        keys = rng.random(len(X))
        taken = np.flatnonzero(keys < fraction)
        found.keys.append(keys[taken])
        found.sample.append(X[taken])
    found.used[part] = found.tally.used
    return found


def pack_profile(found: Profile) -> Iterator[bytes]:
    """As some pieces, since a sample may be larger than what an engine takes at once.

    Of a sample as they are: its doubles would give way by a tenth, and compressing them take longer than to
    read the rows, of 2,000,000 x 20, half of them drawn, 5 of 13 processor seconds.
    """
    (part,) = found.used
    yield pack({**found.columns.state(), "tally": _tally_array(found.tally), "part": np.array(part)})
    keys, sample = np.concatenate(found.keys), np.concatenate(found.sample)
    step = max(1, SAMPLE_BYTES // (keys.itemsize + sample.itemsize * sample.shape[1]))
    for k in range(0, len(keys), step):
        yield b"".join([SAMPLED, keys[k : k + step], sample[k : k + step]])  # type: ignore[list-item]


def merge_profiles(pieces: Iterable[Buffer], d: int) -> Profile:
    """All together; pieces in the order of their parts, those of one part as `pack_profile` gave them. Their
    sample stays where it is."""
    total = Profile.empty(d)
    for piece in pieces:
        if bytes(memoryview(piece)[: len(SAMPLED)]) == SAMPLED:
            with _damaged():
                cells = np.frombuffer(piece, offset=len(SAMPLED))
                rows = cells.reshape(-1, 1 + d).shape[0]
                total.keys.append(cells[:rows])
                total.sample.append(cells[rows:].reshape(rows, d))
        else:
            arrays = unpack(piece)
            columns = ColumnMoments(d)
            columns.restore(arrays)
            total.columns += columns
            tally = _tally(arrays["tally"])
            total.tally += tally
            total.used[int(arrays["part"])] = tally.used
    return total


@dataclass
class Counts:
    """The rows of parts at the leaves and splits of a tree, and those of their cells that lie far from all
    others, as of `Sentinels.state`."""

    statistics: Statistics
    tally: Tally
    far: dict[str, np.ndarray]

    def pack(self) -> bytes:
        """As bytes."""
        counted = {name: array for name, array in vars(self.statistics).items() if array is not None}
        return pack({**counted, "tally": _tally_array(self.tally), **self.far})

    @classmethod
    def unpack(cls, piece: Buffer) -> Self:
        """The inverse of `pack`."""
        arrays = unpack(piece)
        tally = _tally(arrays.pop("tally"))
        far = {name: arrays.pop(name) for name in list(arrays) if name.startswith("far_")}
        return cls(Statistics(**arrays), tally, far)

    def __iadd__(self, other: Counts) -> Counts:
        both = Sentinels(self.statistics.means.shape[1])
        both.add_state(self.far)
        both.add_state(other.far)
        self.statistics, self.far = self.statistics.merged(other.statistics), both.state()
        self.tally += other.tally
        return self


def count(
    rows: Rows,
    spec: FeatureSpec,
    tree: FrozenTree,
    scaling: Scaling,
    *,
    dither: Dither | None = None,
    seed: int = 0,
    first_row: int = 0,
    watch: Sentinels | None = None,
    reading: SourceParams | None = None,
) -> Counts:
    """The rows of a part at the leaves and splits of a frozen tree.

    first_row : among the used ones of all parts, whose noise depends on their places. watch : of a sample.
    """
    counter = Counter(tree, scaling, dither=dither, seed=seed, first_row=first_row)
    watch = Sentinels(len(spec.names)) if watch is None else watch
    tally = Tally()
    for X in _matrices(rows, spec, tally, reading):
        counter.update(X)
        watch.add(spec.unlogged(X))
    return Counts(counter.statistics(), tally, watch.state())


def merge_counts(pieces: Iterable[Buffer]) -> bytes | None:
    """All together, in the order of their parts; None for none."""
    total: Counts | None = None
    for piece in pieces:
        if total is None:
            total = Counts.unpack(piece)
        else:
            total += Counts.unpack(piece)
    return None if total is None else total.pack()


def label(
    batches: Iterable[pa.RecordBatch],
    model: Model,
    params: AssignParams,
    *,
    missing: Missing | None = None,
    reading: SourceParams | None = None,
) -> Iterator[pa.RecordBatch]:
    """The batches with the columns that `imdh assign` writes behind their own."""
    whole: deque[pa.RecordBatch] = deque()

    def passing() -> Iterator[pa.RecordBatch]:
        for batch in batches:
            whole.append(batch)
            yield batch

    source = batches_source(passing(), reading, NAME)
    if source is not None:
        bind_features(source, model.spec)
        labelled = ChunkLabeller(model, source, replace(params, keep=()), missing)
        for chunk in source.chunks(model.spec.source_columns):
            batch, (labels, *_) = whole.popleft(), labelled(chunk, 0)
            names = [*batch.schema.names, *labels.schema.names]
            yield pa.RecordBatch.from_arrays([*batch.columns, *labels.columns], names=names)


def slim(model: Model) -> Model:
    """What labelling needs, since the model travels to every task: a tenth of it."""
    return replace(
        model,
        histograms=np.zeros((model.n_splits, 0), dtype=np.int64),
        pivots=np.zeros((model.n_nodes, 0)),
        sums_of_squares=np.zeros((model.n_nodes, 0)),
        extras={name: array for name, array in model.extras.items() if name == "fill"},
    )


def watch_of(sample: np.ndarray, spec: FeatureSpec) -> Sentinels:
    """What looks for values that stand for missing ones, in all rows, by a sample (rows, d) of them."""
    return Sentinels.by(
        spec.unlogged(sample), np.array([spec.columns[i].levels is not None for i in spec.owners])
    )


def learn_sample(found: Profile, params: FitParams, sample_rows: int, *, threads: int = 1) -> Learned:
    """Learn a tree from the sample of a profile, in the coordinates of all rows.

    Raises
    ------
    DataError
        When there are no rows.
    """
    X = found.drawn(sample_rows)
    if not len(X):
        raise DataError(
            f"none of the {found.tally.rows} rows can be used" if found.tally.rows else "there are no rows",
            "a model is learned from rows",
        )
    held = replace(params, buffer_rows=max(len(X), params.buffer_rows or 0), recount="no")
    return learn(ArrayRows(X), held, columns=found.columns, threads=threads, count=False)


def finished(
    learned: Learned,
    counted: Counts,
    watch: Sentinels,
    params: FitParams,
    spec: FeatureSpec,
    provenance: Mapping[str, Any],
) -> Model:
    """The model of a tree that was learned from a sample and counted on all rows. watch : as for `count`."""
    learned = replace(learned, statistics=counted.statistics, counted="recounted")
    check_range(learned, spec.names, params.scale)
    watch.add_state(counted.far)
    odd, tally = odd_of(watch.found(), watch.notations, spec, learned.columns), counted.tally
    chosen = doubted(prune(learned, params.prune), odd, spec.names, learned.tree.directions)
    rows = Provenance(tally.row_counts(), tally.cell_counts(), odd=odd, **provenance)
    sampled = learned.rows if learned.rows < tally.used else None
    about = describe(learned, chosen, params, spec, rows, learned_rows=sampled)
    model = build(learned, spec.names, chosen, about)
    # Learning can go on from it where it has met all rows.
    kept = [name for name in model.extras if not name.startswith("window_")]
    if learned.rows < tally.used:
        kept = [name for name in kept if name == "fill" or name.startswith(NOISE)]
    return replace(model, extras={name: model.extras[name] for name in kept})


def _matrices(
    rows: Rows, spec: FeatureSpec, tally: Tally, reading: SourceParams | None
) -> Iterator[np.ndarray]:
    """The used rows as matrices; `tally` is added to, in place."""
    if isinstance(rows, Matrices):
        for X in rows.matrices:
            used = judge(X, spec, tally, NAME)
            yield X if used.all() else X[used]
        return
    source = batches_source(iter(rows), reading, NAME)
    if source is None:
        return
    bind_features(source, spec)
    found = FeatureRows(source, spec)
    yield from found.in_order()
    tally += found.tally
