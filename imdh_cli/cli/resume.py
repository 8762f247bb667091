"""`imdh fit` that goes on: from a model (--update), or from where an earlier run was stopped (--resume)."""

from __future__ import annotations

import os
from dataclasses import fields, replace
from typing import TYPE_CHECKING, Any

from imdh_cli.cli import options
from imdh_cli.cli.signals import on_first
from imdh_cli.errors import UsageError
from imdh_cli.params import FitParams, LearnParams
from imdh_cli.report.words import listing

if TYPE_CHECKING:
    from imdh_cli.cli.console import Console
    from imdh_cli.features import Selection
    from imdh_cli.model import Model
    from imdh_cli.pipeline.checkpoint import Checkpoint
    from imdh_cli.sources import Source

KEPT = tuple(f.name for f in fields(LearnParams) if f.name != "start") + ("scale",)


def params_of_update(o: dict[str, Any], model: Model) -> FitParams:
    """The model's parameters, with what may be asked anew: pruning, order, seed.

    Raises
    ------
    UsageError
        For an option that would make another tree of it, by name.
    """
    old = model.params
    if o["preset"] != "default" and o["preset"] != model.metadata["preset"]:
        raise UsageError(f"--preset {o['preset']}: the model was fitted with {model.metadata['preset']}")
    for name in KEPT:
        was = getattr(old, name) if name == "scale" else getattr(old.learn, name)
        if o[name] is not None and o[name] != was:
            option = "--" + name.replace("_", "-")
            raise UsageError(
                f"{option} {o[name]}: the model was fitted with {option} {was}, which cannot change",
                "leave the option out, or fit all of the data again",
            )
    given = {n: o[n] for n in ("passes", "recount", "shuffle", "buffer_rows", "seed") if o[n] is not None}
    base = replace(old, passes="auto", recount="auto")
    return replace(base, prune=options.prune_params(o, old.prune), **given)


def selection_of_update(o: dict[str, Any], model: Model, source: Source) -> Selection:
    """The model's features, found in the new data.

    Raises
    ------
    UsageError
        When other features are asked for.
    DataError
        When one is not there, or is of another kind.
    """
    from imdh_cli.features import Selection, bind_features

    spec = model.spec
    if o["columns"] is not None and set(o["columns"]) != set(spec.source_columns):
        odd = sorted(set(o["columns"]) ^ set(spec.source_columns))
        raise UsageError(
            f'-c: the features of the model are others ("{odd[0]}" is in one list only)',
            "leave -c out: the model's features are used",
        )
    clash = set(o["exclude"]) & set(spec.source_columns)
    if clash:
        raise UsageError(f'-x: "{min(clash)}" is a feature of the model')
    bind_features(source, spec)
    if o["missing"] is not None:
        spec = replace(spec, missing=o["missing"])
    left_out = [(str(name), str(why)) for name, why in model.metadata["left_out_columns"]]
    return Selection(spec, left_out, [], tuple(model.metadata.get("id_columns", ())))


def change_lines(old: Model, new: Model) -> list[str]:
    """One line for each cluster of the old model that is no longer what it was."""
    from imdh_cli.pipeline.prune import cluster_changes

    lines = []
    for fate in cluster_changes(old, new):
        now = listing([str(n) for n in fate["became"]], 12)
        what = f"cluster {fate['cluster']} (node {fate['node']})"
        if fate["how"] == "kept":
            if fate["became"][0] != fate["cluster"]:
                lines.append(f"{what} is now cluster {now}")
        elif fate["how"] == "merged":
            lines.append(f"{what} is now part of cluster {now}")
        else:
            lines.append(f"{what} was split into clusters {now}")
    return lines or ["every cluster kept its tree node and its number"]


def open_checkpoint(
    o: dict[str, Any], params: FitParams, selection: Selection, locations: tuple[str, ...]
) -> Checkpoint | None:
    """The checkpoint of this run, if one is asked for or gone on from.

    Raises
    ------
    UsageError, DataError
        When the one to go on from is of other options or data.
    """
    if o["checkpoint"] is None and not o["resume"]:
        return None
    if o["output"] == "-":
        raise UsageError("--checkpoint and --resume need an output with a name", "name it with -o FILE")
    from imdh_cli.pipeline.checkpoint import Checkpoint

    reading = ("delimiter", "decimal", "encoding", "no_header", "null_values", "on_bad_row", "max_rows")
    identity = {
        "parameters": params.to_dict(),
        "features": selection.spec.to_dict(),
        "reading options": {name: o[name] for name in reading},
        "inputs": [_identity(location) for location in locations],
        "model to go on from": _identity(o["update"]) if o["update"] else None,
    }
    seconds = o["checkpoint"] if o["checkpoint"] is not None else 60.0
    return Checkpoint(checkpoint_path(o), seconds, identity, resume=o["resume"])


def checkpoint_path(o: dict[str, Any]) -> str:
    """Beside the output."""
    return f"{o['output']}.checkpoint"


def report_stale(console: Console, o: dict[str, Any]) -> None:
    """A checkpoint of an earlier run that this one does not go on from: it holds rows of the data."""
    path = checkpoint_path(o)
    if o["resume"] or o["output"] == "-" or not os.path.exists(path):
        return
    if o["checkpoint"] is not None and not o["dry_run"]:
        console.note(f"{path} of an earlier run is replaced; --resume would have gone on from it")
    else:
        console.note(f"{path} holds rows of an earlier run: --resume goes on from it, or remove it")


def _identity(location: str) -> dict[str, Any]:
    """What tells one input from another without reading it; a folder by all that lies in it."""
    if location == "-" or "://" in location:
        return {"name": location}
    found = {"name": os.path.abspath(location)}
    if os.path.isdir(location):
        files = sorted(os.path.join(folder, name) for folder, _, names in os.walk(location) for name in names)
        return found | {"files": [_file_identity(path) for path in files]}
    return found | _file_identity(location)


def _file_identity(path: str) -> dict[str, Any]:
    try:
        status = os.stat(path)
    except OSError:  # a pattern; what it matches is told by its name
        return {}
    return {"file": os.path.basename(path), "bytes": status.st_size, "changed": status.st_mtime_ns}


def end_with_checkpoint(checkpoint: Checkpoint) -> None:
    """From here on the first signal writes a checkpoint and ends; the next one ends at once."""

    def first() -> None:
        checkpoint.stop = True

    on_first(first)
