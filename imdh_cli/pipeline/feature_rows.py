"""A source -> the rows that can be used, as matrices, counted, with progress."""

from __future__ import annotations

import math
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, closing, nullcontext
from dataclasses import asdict, dataclass, fields
from functools import partial
from itertools import chain
from typing import Any, NamedTuple

import numpy as np

from imdh_cli.core.columns import DistinctValues
from imdh_cli.core.learn import buffer_rows
from imdh_cli.core.logs import spread_by_logs
from imdh_cli.core.notations import Notation
from imdh_cli.core.sentinels import Limits, Sentinel, Sentinels, extremes
from imdh_cli.errors import DataError
from imdh_cli.features import FeatureSpec, Tally, all_bad, extract
from imdh_cli.params import FitParams
from imdh_cli.rows.shuffle import interleave, open_at_once
from imdh_cli.rows.source import IN_ORDER, RowSource, skip
from imdh_cli.sources.base import Chunk, Fragment, Source
from imdh_cli.workers import Workers, in_order, prefetch


@dataclass(frozen=True)
class Progress:
    """Where a pass is. rows: read in this pass. read, size: bytes, size None where unknown."""

    task: str
    rows: int
    total_rows: int | None
    read: int
    size: int | None


OnProgress = Callable[[Progress], None]
# Fragments that a sample is drawn from, at least. Rows that lie together, as in a sorted file, then have a
# share in the sample that is off by the fragment at either end: 0.4 % of all rows at most.
SAMPLED_FRAGMENTS = 256


class _Read(NamedTuple):
    """Used rows (n, d), what became of the others, the limits of columns that are watched, and the processor
    seconds that it took."""

    X: np.ndarray
    tally: Tally
    limits: Limits | None
    spent: float


class FeatureRows(RowSource):
    """The used rows of a source as matrices (rows, d); what became of the others is in tallies.

    tally : of the reading under way. first_tally : of the first one that came to its end, whose rows were
    looked at for sentinels, and a sample of them for notations.
    fragments_read : of how many, where a sample was drawn from some of them.
    params : how epochs are put in order: `shuffle`, `seed`, `buffer_rows`; by default rows keep their order.
    """

    def __init__(
        self,
        source: Source,
        spec: FeatureSpec,
        on_progress: OnProgress | None = None,
        task: str = "learning",
        *,
        params: FitParams | None = None,
        threads: int = 1,
    ) -> None:
        self.source = source
        self.spec = spec
        self.n_features = len(spec.names)
        self.rereadable = source.rereadable
        self.tally = Tally()
        self.first_tally: Tally | None = None
        self.values = DistinctValues(self.n_features)
        self.sentinels: list[Sentinel] = []
        self.notations: list[Notation] = []
        self.by_any_thread = True
        self.fragments_read: tuple[int, int] | None = None
        self.busy: defaultdict[str, float] = defaultdict(float)
        self.unequal = np.zeros(self.n_features, dtype=np.bool_)  # columns that logarithms would spread
        self._watch: Sentinels | None = None
        self._task = task
        self._on_progress = on_progress
        self._params = params
        self._threads = threads

    @property
    def reorders(self) -> bool:
        return self._fragments() is not None

    @property
    def n_rows(self) -> int | None:
        fragments = self._fragments()
        if fragments is None:
            return self.source.rows
        rows = [fragment.about if fragment.rows is None else fragment.rows for fragment in fragments]
        return None if None in rows else sum(n or 0 for n in rows)

    def blocks(self, epoch: int, start: int = 0) -> Iterator[np.ndarray]:
        """As of `RowSource`: an epoch in the random order of its own where that can be had."""
        matrices = None
        if epoch != IN_ORDER and (fragments := self._fragments()) is not None:
            matrices = self._mixed(fragments, epoch)
        return self._reading(skip(matrices if matrices is not None else self.in_order(), start), epoch)

    def to_sample(self, rows: int) -> tuple[Iterator[np.ndarray], int | None]:
        """Matrices to draw so many rows from, each row as likely: all rows, or some fragments where there are
        hundreds: see `_some`. And how many rows that are, used or not, if that is known."""
        fragments = self._fragments() or []
        some = _some(
            fragments, rows, np.random.default_rng([self._params.seed, 9, 2]) if self._params else None
        )
        if len(some) == len(fragments):
            return self.blocks(IN_ORDER), self.source.rows
        self.fragments_read = len(some), len(fragments)
        chunks = chain.from_iterable(map(self._decoded, some))
        known = [fragment.rows for fragment in some if fragment.rows is not None]
        matrices = self.in_order(prefetch(chunks) if self._threads > 1 else chunks)
        return self._reading(matrices, IN_ORDER), sum(known) if len(known) == len(some) else None

    def _reading(self, matrices: Iterator[np.ndarray], epoch: int) -> Iterator[np.ndarray]:
        """One reading: what the first one tells is kept."""
        self.tally = Tally()
        if self.first_tally is not None:
            self._task = f"pass {epoch + 1}" if epoch > 0 else "counting"
        elif self._params is not None:
            texts = [self.spec.columns[i].levels is not None for i in self.spec.owners]
            self._watch = Sentinels(self.n_features, np.array(texts))
        yield from matrices
        if self.first_tally is None:
            self.first_tally = self.tally
            if self._watch is not None:
                self.sentinels, self.notations = self._watch.found(), self._watch.notations
                if self._watch.quantiles is not None:
                    self.unequal = spread_by_logs(self._watch.quantiles) & ~self.spec.logs
                self._watch = None

    def in_order(self, chunks: Iterator[Chunk] | None = None) -> Iterator[np.ndarray]:
        """All used rows in input order, or those of some chunks."""
        coming = self.source.chunks(self.spec.source_columns) if chunks is None else chunks
        if self._threads == 1:
            yield from self._taken_in(self._read(chunk, self.tally.rows) for chunk in coming)
            return

        def tasks() -> Iterator[Callable[[], _Read]]:
            row = 0
            for chunk in coming:
                yield partial(self._read, chunk, row)
                row += chunk.features.num_rows

        with (
            Workers(self._threads, "matrices") as workers,
            closing(in_order(workers, tasks(), self._threads + 1)) as made,
        ):
            yield from self._taken_in(made)

    def state(self) -> dict[str, Any]:
        """What the first reading told."""
        if self.first_tally is None:
            return {}
        return asdict(self.first_tally) | {
            "sentinels": [asdict(found) for found in self.sentinels],
            "notations": [asdict(found) for found in self.notations],
        }

    def restore(self, state: Mapping[str, Any]) -> None:
        self.sentinels = [Sentinel(**found) for found in state["sentinels"]]
        self.notations = [Notation(n["kind"], tuple(n["columns"])) for n in state["notations"]]
        self.first_tally = Tally(**{f.name: state[f.name] for f in fields(Tally)})

    def no_rows(self) -> DataError:
        """What to raise when no row can be used."""
        return no_rows(self.tally, self.source)

    def _read(self, chunk: Chunk, first_row: int | None) -> _Read:
        """The used rows of a chunk, by any thread."""
        start = time.thread_time()
        tally = Tally()
        X, used = extract(chunk, self.spec, tally, first_row=first_row, source_name=name_of(self.source))
        X = X if used.all() else X[used]
        limits = extremes(self.spec.unlogged(X)) if self._watch is not None and len(X) else None
        return _Read(X, tally, limits, time.thread_time() - start)

    def _taken_in(self, portions: Iterable[_Read]) -> Iterator[np.ndarray]:
        """What was read, counted and looked at in the order it is met."""
        for X, tally, limits, spent in portions:
            self.busy["make rows"] += spent
            self.tally += tally
            if self._on_progress is not None:
                s = self.source
                self._on_progress(Progress(self._task, self.tally.rows, s.rows, s.bytes_read, s.size))
            if self._watch is not None:
                self._watch.add(self.spec.unlogged(X), limits)
            if self.first_tally is None:
                self.values.add(X)
            yield X

    def _fragments(self) -> list[Fragment] | None:
        """The parts of the input that can be met in any order; None where the order is to be kept."""
        if self._params is None or self._params.shuffle != "auto" or not self.rereadable:
            return None
        return self.source.fragments(self.spec.source_columns) or None

    def _mixed(self, fragments: list[Fragment], epoch: int) -> Iterator[np.ndarray]:
        assert self._params is not None
        at_once = open_at_once(((f.rows, f.size, f.held) for f in fragments), self.n_features)
        buffered = buffer_rows(self._params, self.n_features)
        with self._pool() as pool:
            yield from interleave(
                [(f.size, partial(self._rows_of, f, pool)) for f in fragments],
                np.random.default_rng([self._params.seed, 3, epoch]),
                at_once=at_once,
                run_rows=int(np.clip(buffered // (4 * min(at_once, len(fragments))), 1, 256)),
            )

    def _rows_of(self, fragment: Fragment, pool: Workers | None) -> Iterator[np.ndarray]:
        portions = (self._read(chunk, None) for chunk in self._decoded(fragment))
        return self._taken_in(portions if pool is None else prefetch(portions, pool))

    def _decoded(self, fragment: Fragment) -> Iterator[Chunk]:
        chunks = fragment.chunks()
        while True:
            start = time.thread_time()
            chunk = next(chunks, None)
            self.busy["decode"] += time.thread_time() - start  # nearly right where several threads decode
            if chunk is None:
                return
            yield chunk

    def _pool(self) -> AbstractContextManager[Workers | None]:
        """What reads fragments while rows are learned from. Text is parsed in several threads; an open
        Parquet file, which its row groups share, is left to one."""
        if self._threads == 1:
            return nullcontext()
        return Workers(self._threads if self.source.parallel_fragments else 1, "fragments")


def _some(fragments: list[Fragment], rows: int, rng: np.random.Generator | None) -> list[Fragment]:
    """The fragments to draw a sample of so many rows from, in input order.

    One at a random place of each of equally long stretches of the input, so that what is sorted is met in its
    proportions: each fragment is as likely. They hold twice the rows asked for, and are SAMPLED_FRAGMENTS or
    more; all where that would be more than half of them, or where it is not known how many rows they have.
    """
    have = [fragment.about if fragment.rows is None else fragment.rows for fragment in fragments]
    known = [n for n in have if n is not None]
    if rng is None or len(known) < len(have) or len(have) < 2 * SAMPLED_FRAGMENTS:
        return fragments
    number = max(SAMPLED_FRAGMENTS, math.ceil(2 * rows * len(have) / max(sum(known), 1)))
    if number > len(have) / 2:
        return fragments
    places = (np.arange(number) + rng.random(number)) * (len(have) / number)
    return [fragments[k] for k in np.unique(places.astype(np.int64))]


def name_of(source: Source) -> str:
    """The source in a message: its first part."""
    return source.parts[0].name if source.parts else "the input"


def no_rows(tally: Tally, source: Source) -> DataError:
    """The error for an input of which no row can be used."""
    name = name_of(source)
    if tally.rows == 0:
        return DataError(f"{name}: no data rows", "a model is learned from rows")
    if tally.bad == tally.rows:
        return all_bad(name, tally.rows)
    lost = {c: tally.missing.get(c, 0) + tally.infinite.get(c, 0) for c in tally.missing | tally.infinite}
    worst = max(lost, key=lambda c: lost[c], default=None)
    hint = "use --missing mean, or choose columns with -c"
    if worst is not None:
        hint = (
            f'column "{worst}" is empty, infinite or beyond 1e100 in {lost[worst]} of {tally.rows} rows: '
            "leave it out with -x, or use --missing mean"
        )
    return DataError(f"{name}: none of its {tally.rows} rows can be used", hint)
