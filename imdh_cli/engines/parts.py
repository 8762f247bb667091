"""Record batches of one part of a table -> partial results that add up; no engine is known here.

Learning is a sequence, since each row moves the cuts that the next one meets; counting is a sum. So the parts
of a table are profiled and sampled, the tree is learned in one place from the sample, and the parts are
counted under it. Partial results travel as bytes, and merged in the order of the parts they give the same
bytes each time.
"""

from __future__ import annotations

import io
import json
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, Self

import numpy as np
import pyarrow as pa

from imdh_cli.core.columns import ColumnMoments
from imdh_cli.core.counter import Counter
from imdh_cli.core.dither import Dither
from imdh_cli.core.learn import Learned, learn
from imdh_cli.core.statistics import Statistics
from imdh_cli.core.tree import FrozenTree, Scaling
from imdh_cli.errors import DataError, ModelError
from imdh_cli.features import FeatureSpec, Tally, extract
from imdh_cli.model import Model
from imdh_cli.model.build import Provenance, build, check_range, describe, prune
from imdh_cli.params import Extra, FitParams, Missing
from imdh_cli.pipeline.assign import EXTRA_TYPES, Labeller
from imdh_cli.rows.source import ArrayRows
from imdh_cli.sources.base import Chunk

LEVEL = 1  # of compression: more costs time on every worker
SAMPLE_BYTES = 64 << 20  # of a packed piece of a sample


def pack(arrays: Mapping[str, np.ndarray]) -> bytes:
    """Named arrays as bytes."""
    out = io.BytesIO()
    np.savez(out, **arrays)  # type: ignore[arg-type]
    return zlib.compress(out.getvalue(), LEVEL)


def unpack(data: bytes) -> dict[str, np.ndarray]:
    """The inverse of `pack`. Raises ModelError for anything else."""
    try:
        with np.load(io.BytesIO(zlib.decompress(data)), allow_pickle=False) as file:
            return {name: file[name] for name in file.files}
    except (zlib.error, ValueError, OSError, EOFError, KeyError) as error:
        raise ModelError("a partial result is damaged") from error


def _tally_array(tally: Tally) -> np.ndarray:
    return np.array(json.dumps(asdict(tally)))


def _tally(array: np.ndarray) -> Tally:
    return Tally(**json.loads(str(array)))


@dataclass
class Profile:
    """What is known of the rows of parts: moments of the columns, a sample.

    keys, sample : (k,) and (k, d), rows that were drawn, in their order; those with the least keys are a
    uniform sample of all rows.
    """

    columns: ColumnMoments
    tally: Tally
    keys: np.ndarray
    sample: np.ndarray

    @classmethod
    def empty(cls, d: int) -> Self:
        return cls(ColumnMoments(d), Tally(), np.empty(0), np.empty((0, d)))

    def drawn(self, rows: int) -> np.ndarray:
        """A uniform sample of at most so many rows, in their order."""
        if len(self.keys) <= rows:
            return self.sample
        return self.sample[np.sort(np.argpartition(self.keys, rows)[:rows])]


def profile(
    batches: Iterable[pa.RecordBatch], spec: FeatureSpec, *, fraction: float, seed: int, part: int
) -> Profile:
    """One reading of a part: column moments of all its used rows, and about `fraction` of them.

    Which rows are drawn follows from seed, part and the order of rows alone.
    """
    found = Profile.empty(len(spec.names))
    rng = np.random.default_rng([seed, 9, part])
    keys, rows = [found.keys], [found.sample]
    for X in _matrices(batches, spec, found.tally):
        found.columns.add(X)
        key = rng.random(len(X))
        taken = key < fraction
        keys.append(key[taken])
        rows.append(X[taken])
    found.keys, found.sample = np.concatenate(keys), np.concatenate(rows)
    return found


def pack_profile(found: Profile) -> Iterator[bytes]:
    """As some pieces, since a sample may be larger than what an engine takes at once."""
    empty = found.keys[:0], found.sample[:0]
    yield pack({**found.columns.state(), "tally": _tally_array(found.tally), **_sampled(*empty)})
    step = max(1, SAMPLE_BYTES // max(1, found.sample[:1].nbytes))
    for k in range(0, len(found.keys), step):
        yield pack(_sampled(found.keys[k : k + step], found.sample[k : k + step]))


def _sampled(keys: np.ndarray, sample: np.ndarray) -> dict[str, np.ndarray]:
    return {"keys": keys, "sample": sample}


def merge_profiles(pieces: Iterable[bytes], d: int) -> Profile:
    """All together; pieces in the order of their parts, those of one part as `pack_profile` gave them."""
    total = Profile.empty(d)
    keys, rows = [], []
    for piece in pieces:
        arrays = unpack(piece)
        keys.append(arrays["keys"])
        rows.append(arrays["sample"])
        if "tally" in arrays:
            columns = ColumnMoments(d)
            columns.restore(arrays)
            total.columns += columns
            total.tally += _tally(arrays["tally"])
    total.keys = np.concatenate([total.keys, *keys])
    total.sample = np.concatenate([total.sample, *rows])
    return total


def count(
    batches: Iterable[pa.RecordBatch],
    spec: FeatureSpec,
    tree: FrozenTree,
    scaling: Scaling,
    *,
    dither: Dither | None = None,
    seed: int = 0,
    part: int = 0,
) -> tuple[Statistics, Tally]:
    """The rows of a part at the leaves and splits of a frozen tree; each part has noise of its own."""
    counter = Counter(tree, scaling, dither=dither, seed=seed, first_row=part << 32)
    tally = Tally()
    for X in _matrices(batches, spec, tally):
        counter.update(X)
    return counter.statistics(), tally


def pack_counts(statistics: Statistics, tally: Tally) -> bytes:
    """As bytes."""
    return pack({**vars(statistics), "tally": _tally_array(tally)})


def merge_counts(pieces: Iterable[bytes]) -> bytes | None:
    """All together, in the order of their parts; None for none."""
    total: Statistics | None = None
    tally = Tally()
    for piece in pieces:
        statistics, more = unpack_counts(piece)
        total = statistics if total is None else total.merged(statistics)
        tally += more
    return None if total is None else pack_counts(total, tally)


def unpack_counts(piece: bytes) -> tuple[Statistics, Tally]:
    """The inverse of `pack_counts`."""
    arrays = unpack(piece)
    return Statistics(**{k: a for k, a in arrays.items() if k != "tally"}), _tally(arrays["tally"])


def label(
    batches: Iterable[pa.RecordBatch],
    model: Model,
    *,
    name: str = "cluster",
    clusters: int | None = None,
    with_: Sequence[Extra] = (),
    missing: Missing | None = None,
) -> Iterator[pa.RecordBatch]:
    """The batches with the columns that `imdh assign` writes behind their own."""
    spec = model.spec if missing is None else replace(model.spec, missing=missing)
    labeller, tally = Labeller(model, clusters, tuple(with_)), Tally()
    for batch in batches:
        X, used = extract(Chunk(batch.select(list(spec.source_columns)), None, None), spec, tally)
        found = labeller(X)
        lost = None if used.all() else ~used
        if lost is not None:
            found["cluster"][lost] = -1
        columns = [pa.array(found["cluster"])]
        columns += [pa.array(found[extra], EXTRA_TYPES[extra], mask=lost) for extra in with_]
        names = [*batch.schema.names, name, *with_]
        yield pa.RecordBatch.from_arrays([*batch.columns, *columns], names=names)


def slim(model: Model) -> Model:
    """What labelling needs, since the model travels to every task: a tenth of it."""
    return replace(
        model,
        histograms=np.zeros((model.n_splits, 0), dtype=np.int64),
        pivots=np.zeros((model.n_nodes, 0)),
        sums_of_squares=np.zeros((model.n_nodes, 0)),
        extras={name: array for name, array in model.extras.items() if name == "fill"},
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
    return learn(ArrayRows(X), held, columns=found.columns, threads=threads)


def finished(
    learned: Learned,
    counted: Statistics,
    tally: Tally,
    params: FitParams,
    spec: FeatureSpec,
    provenance: Mapping[str, Any],
) -> Model:
    """The model of a tree that was learned from a sample and counted on all rows."""
    learned = replace(learned, statistics=counted, recounted=True)
    check_range(learned, spec.names, params.scale)
    chosen = prune(learned, params.prune)
    rows = Provenance(tally.row_counts(), tally.cell_counts(), **provenance)
    sampled = learned.rows if learned.rows < tally.used else None
    about = describe(learned, chosen, params, spec, rows, learned_rows=sampled)
    model = build(learned, spec.names, chosen, about)
    # Learning can go on from it where it has met all rows.
    kept = [name for name in model.extras if not name.startswith("window_")]
    if learned.rows < tally.used:
        kept = [name for name in kept if name == "fill" or name.startswith("dither_")]
    return replace(model, extras={name: model.extras[name] for name in kept})


def _matrices(batches: Iterable[pa.RecordBatch], spec: FeatureSpec, tally: Tally) -> Iterator[np.ndarray]:
    names = list(spec.source_columns)
    for batch in batches:
        X, used = extract(Chunk(batch.select(names), None, None), spec, tally, first_row=tally.rows)
        yield X if used.all() else X[used]
