"""Source and features -> a learned, counted and pruned tree, as a model."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from imdh_cli.core.columns import ColumnMoments, DistinctValues
from imdh_cli.core.counter import Counter
from imdh_cli.core.learn import Learned, NoRows, learn
from imdh_cli.core.pruning import Pruning
from imdh_cli.errors import UsageError
from imdh_cli.features import Selection, Tally
from imdh_cli.model import Model
from imdh_cli.model.build import (
    Provenance,
    build,
    check_range,
    describe,
    learner_state,
    odd_of,
    prune,
)
from imdh_cli.model.metadata import doubted
from imdh_cli.params import FitParams
from imdh_cli.pipeline.checkpoint import Checkpoint
from imdh_cli.pipeline.feature_rows import FeatureRows, OnProgress
from imdh_cli.rows.sample import UniformSample, bound_for
from imdh_cli.rows.source import IN_ORDER, ArrayRows
from imdh_cli.sources.base import Source

EARLY = 0.05  # of the rows that a sample is drawn from: if all of these can be used, most of the others can


@dataclass
class Fit:
    """What `fit` made: the model, how it was pruned, and what became of the rows."""

    model: Model
    pruning: Pruning
    tally: Tally
    passes: int
    recounted: bool
    values: DistinctValues
    drifting: list[str] = field(default_factory=list)  # columns whose early and late rows differ
    busy: Mapping[str, float] = field(default_factory=dict)  # processor seconds by stage
    unequal: list[str] = field(default_factory=list)  # columns of very unequal amounts, which --log spreads
    parts_read: tuple[int, int] | None = None  # of how many parts of the input, where a sample is of some


def fit(
    source: Source,
    selection: Selection,
    params: FitParams,
    *,
    threads: int = 1,
    preset: str = "default",
    on_progress: OnProgress | None = None,
    checkpoint: Checkpoint | None = None,
    update: Model | None = None,
) -> Fit:
    """Learn the tree, prune it, make the model.

    Parameters
    ----------
    source : Source
    selection : Selection
        The features, and what was left out.
    params : FitParams
    threads : int
        Reading and levels of the tree are shared among them; the result does not depend on it.
    checkpoint : Checkpoint, optional
        Where the state is written from time to time, and the stage to go on from.
    update : Model, optional
        Go on learning from it; its parameters and features must be these.

    Raises
    ------
    DataError
        When no row can be used.
    UsageError
        When more clusters are asked for than leaves are in use, or a model that is gone on from is
        asked for more than one pass or a recount.
    """
    if update is not None:
        if params.passes not in ("auto", 1) or params.recount == "yes":
            raise UsageError(
                "going on from a model is one pass without a recount: the earlier rows are not there",
                "leave --passes and --recount out, and recount with imdh prune MODEL all of the data",
            )
        if params.n_init not in ("auto", 1):
            raise UsageError(
                f"--n-init {params.n_init}: going on from a model is learning on with its one tree",
                "leave --n-init out",
            )
        params = replace(params, passes=1, recount="no")
    if params.sample is not None and (update is not None or checkpoint is not None):
        raise UsageError(
            "--sample learns anew, in one go", "leave --sample out, or --update, --checkpoint and --resume"
        )
    rows = FeatureRows(source, selection.spec, on_progress, params=params, threads=threads)
    state = None if update is None else learner_state(update)
    try:
        if params.sample is None:
            learned = learn(rows, params, state, threads=threads, snapshots=checkpoint)
        else:
            learned = _learn_sample(rows, params, params.sample, threads)
    except NoRows as error:
        raise rows.no_rows() from error
    names = selection.spec.names
    check_range(learned, names, params.scale)
    odd = odd_of(rows.sentinels, rows.notations, selection.spec, learned.columns)
    if update is not None:
        known = {key: update.metadata.get(key, []) for key in odd}
        odd["notations"] = [n for n in odd["notations"] if n not in known["notations"]]
        odd = {key: [*known[key], *found] for key, found in odd.items()}
    chosen = doubted(prune(learned, params.prune), odd, names, learned.tree.directions)
    tally = rows.first_tally or rows.tally
    drifting = [name for name, differs in zip(names, learned.drifting, strict=True) if differs]
    provenance = Provenance(
        rows=tally.row_counts(),
        cells=tally.cell_counts(),
        inputs=[_base_name(part.name) for part in source.parts],
        left_out=_left_out(source, selection),
        ids=list(selection.ids),
        preset=preset,
        odd=odd,
    )
    if update is not None:
        provenance = provenance.after(update.metadata)
    sampled = learned.rows if params.sample is not None and learned.rows < tally.used else None
    about = describe(learned, chosen, params, selection.spec, provenance, drifting, sampled)
    model = build(learned, names, chosen, about)
    flat = np.logical_or(*model.flat) & (rows.values.counts > 1)
    if flat.any():
        model.metadata["too_little_spread"] = [n for n, so in zip(names, flat, strict=True) if so]
    return Fit(
        model,
        chosen,
        tally,
        learned.passes,
        learned.recounted,
        rows.values,
        drifting,
        learned.busy,
        _unequal(rows, odd["suspects"]),
        rows.fragments_read,
    )


def _unequal(rows: FeatureRows, suspects: Sequence[Mapping[str, Any]]) -> list[str]:
    """Columns of very unequal amounts; not for the sake of cells that may be no amounts."""
    spec, apart = rows.spec, {suspect["column"] for suspect in suspects}
    columns = [spec.columns[spec.owners[j]] for j in np.flatnonzero(rows.unequal)]
    return [c.name for c in columns if c.levels is None and c.items is None and c.name not in apart]


def _learn_sample(rows: FeatureRows, params: FitParams, size: int, threads: int) -> Learned:
    """Learn from a uniform sample, in the coordinates of all rows that are read; count it, or where asked all
    rows, which are then all read the first time, too."""
    if params.recount == "yes" and not rows.rereadable:
        raise UsageError(
            "--sample with --recount yes reads the data twice, and a stream can be read once",
            "leave --recount out, or write the stream to a file first",
        )
    columns, held = _drawn(rows, params, size)
    in_memory = replace(params, buffer_rows=max(1, len(held)))
    learned = learn(ArrayRows(held), in_memory, columns=columns, threads=threads)
    if params.recount != "yes":
        return learned
    counter = Counter(
        learned.tree.freeze(), learned.scaling, threads, dither=learned.dither, seed=params.seed
    )
    try:
        for X in rows.blocks(IN_ORDER):
            counter.update(X)
    finally:
        counter.join()
    return replace(learned, statistics=counter.statistics(), busy={**learned.busy, **counter.busy})


def _drawn(rows: FeatureRows, params: FitParams, size: int) -> tuple[ColumnMoments, np.ndarray]:
    """The moments of all rows that are read, and a uniform sample (k, d) of them."""

    def matrices() -> tuple[Iterator[np.ndarray], int | None]:
        whole = params.recount == "yes"
        return (rows.blocks(IN_ORDER), rows.source.rows) if whole else rows.to_sample(size)

    d, seed = rows.n_features, [params.seed, 9, 0]
    columns = ColumnMoments(d)
    coming, n_rows = matrices()
    known = n_rows if n_rows is not None and rows.rereadable else 0
    sample = UniformSample(size, d, seed, bound=bound_for(size, known))
    for X in coming:
        columns.add(X)
        sample.add(X)
        if known and rows.tally.used == rows.tally.rows >= EARLY * known:
            sample.expect(known)
    if not sample.complete:  # most rows could not be used
        sample = UniformSample(size, d, seed)
        for X in matrices()[0]:
            sample.add(X)
    return columns, sample.rows()


def _left_out(source: Source, selection: Selection) -> list[list[str]]:
    """Each column left out and why, where a file that lacks it is named without its folder."""
    absent = source.absent
    return [
        [name, why.replace(absent[name], _base_name(absent[name])) if name in absent else why]
        for name, why in selection.left_out
    ]


def _base_name(path: str) -> str:
    """A path's last part; bytes in it that are no UTF-8, which no JSON holds, as U+FFFD."""
    base = path.rstrip("/").rsplit("/", 1)[-1]
    return base.encode("utf-8", "surrogateescape").decode("utf-8", "replace")
