"""Source and features -> a learned, counted and pruned tree, as a model."""

from __future__ import annotations

import platform
from dataclasses import dataclass, field, replace
from importlib.metadata import version
from typing import Any

import numpy as np
import pyarrow as pa

from imdh_cli import __version__
from imdh_cli.core import pruning
from imdh_cli.core.discrete_gaps import without_gaps
from imdh_cli.core.pruning import Pruning
from imdh_cli.core.tree import Statistics
from imdh_cli.errors import DataError, UsageError
from imdh_cli.features import FeatureSpec, Selection, Tally
from imdh_cli.model import Model
from imdh_cli.params import FitParams
from imdh_cli.pipeline.checkpoint import Checkpoint
from imdh_cli.pipeline.passes import Run
from imdh_cli.pipeline.prune import choice
from imdh_cli.pipeline.reading import OnProgress, Reader
from imdh_cli.sources.base import Source

LARGEST_UNSCALED = 1e60  # mean and sd of a column that is not scaled
LARGEST_LEARNED = 1e130


@dataclass
class Fit:
    """What `fit` made: the model, how it was pruned, and what became of the rows."""

    model: Model
    pruning: Pruning
    tally: Tally
    passes: int
    recounted: bool
    drifting: list[str] = field(default_factory=list)  # columns whose early and late rows differ


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
        params = replace(params, passes=1, recount="no")
    run = Run(Reader(source, selection.spec, on_progress), params, threads, checkpoint, update)
    run.learn()
    _check_range(run)
    statistics = run.learner.statistics()
    counts, means, squares = statistics.of_nodes()
    tree, steps = run.learner.tree, run.columns.steps(run.learner.scaling.scale)
    histograms = without_gaps(statistics.histograms, tree.directions, np.sqrt(tree.variances), steps)
    chosen = pruning.prune(counts, means, squares, tree.pivots, histograms, params.prune)
    metadata = _metadata(source, selection, params, preset, run, chosen, int(counts[0]))
    model = _model(run, selection.spec, statistics, chosen, metadata)
    return Fit(model, chosen, run.tally, run.passes, run.recounted, run.drifting)


def _check_range(run: Run) -> None:
    """Refuse what would leave the range of numbers further on.

    Raises
    ------
    DataError
        For values without scaling whose squares' squares do not fit, by column.
    UsageError
        When learning diverged, as it can with steps that never shrink.
    """
    if run.params.scale == "none":
        large = np.abs(run.columns.mean) + np.sqrt(run.columns.square / np.maximum(run.columns.count, 1))
        if not (large <= LARGEST_UNSCALED).all():
            name = run.reader.spec.names[int(np.argmax(~(large <= LARGEST_UNSCALED)))]
            raise DataError(
                f'column "{name}" holds values too large for --scale none', "leave --scale none out"
            )
    tree = run.learner.tree
    for array in (tree.directions, tree.offsets, tree.pivots, tree.variances):
        if not (np.abs(array) <= LARGEST_LEARNED).all():
            raise UsageError(
                "learning diverged: its steps were too large",
                "use a --clamp, a smaller --rate or --penalty, or a larger --learning-decay",
            )


def _metadata(
    source: Source,
    selection: Selection,
    params: FitParams,
    preset: str,
    run: Run,
    chosen: Pruning,
    counted: int,
) -> dict[str, Any]:
    """What the model says of itself: nothing that depends on time, threads or folders."""
    tally = run.tally
    how = "recounted" if run.recounted else "windowed" if run.passes == 1 else "last pass"
    inputs = [_base_name(part.name) for part in source.parts]
    rows = {"read": tally.rows, "used": tally.used, "skipped": tally.skipped, "bad": tally.bad}
    cells = {"missing": tally.missing, "infinite": tally.infinite, "unseen": tally.unseen}
    if run.update is not None:
        old = run.update.metadata
        inputs = [*old["inputs"], *inputs]
        rows = {name: n + old["rows"][name] for name, n in rows.items()}
        cells = {
            kind: {c: n.get(c, 0) + old[kind].get(c, 0) for c in {**old[kind], **n}}
            for kind, n in cells.items()
        }
    return {
        "program": "imdh",
        "version": __version__,
        "parameters": params.to_dict(),
        "preset": preset,
        "features": selection.spec.to_dict(),
        "left_out_columns": _left_out(source, selection),
        "id_columns": list(selection.ids),
        "rows": rows | {"counted": counted},
        **cells,
        "statistics": how,
        "passes": run.passes,
        "choice": choice(chosen, params.prune),
        "inputs": inputs,
        "versions": {
            "python": platform.python_version(),
            "numpy": np.__version__,
            "numba": version("numba"),
            "pyarrow": pa.__version__,
        },
        "notes": [f"early and late rows differ in {name}" for name in run.drifting],
    }


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


def _model(
    run: Run, spec: FeatureSpec, statistics: Statistics, chosen: Pruning, metadata: dict[str, Any]
) -> Model:
    learner, tree = run.learner, run.learner.tree
    thresholds, offsets = tree.frozen()
    counts, means, squares = statistics.of_nodes()
    extras = run.columns.state() | {"code_steps": run.columns.steps(learner.scaling.scale)}
    if run.learned_state is not None:
        extras |= run.learned_state
    else:
        state = learner.state()
        own = {"learning_directions", "learning_pivots", "learning_center", "learning_scale"}
        extras |= {
            name: array
            for name, array in state.items()
            if name not in own and not (run.recounted and name.startswith("window_"))
        }
    return Model(
        feature_names=list(spec.names),
        center=learner.scaling.center,
        scale=learner.scaling.scale,
        directions=tree.directions,
        thresholds=thresholds,
        offsets=offsets,
        pivots=tree.pivots,
        projection_sd=np.sqrt(tree.variances),
        histograms=statistics.histograms,
        means=means,
        counts=counts,
        sums_of_squares=squares,
        merge_order=chosen.merge_order,
        cluster_of_leaf=chosen.cluster_of_leaf,
        metadata=metadata,
        extras=extras,
    )
