"""Where models, pages and summaries go."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import click

from imdh_cli.cli.signals import finish_first
from imdh_cli.errors import UsageError

if TYPE_CHECKING:
    from imdh_cli.model import Model


def takes_stdout(output: str | None) -> bool:
    """Whether an output is standard output, so that nothing else may go there."""
    return output in ("-", "/dev/stdout", "/dev/fd/1", "/proc/self/fd/1")


def echo_json(value: Any, *, err: bool = False) -> None:
    """JSON, as UTF-8 where that is possible: the name of a file may hold bytes that are no UTF-8."""
    text = json.dumps(value, ensure_ascii=False, indent=2, allow_nan=False)
    try:
        text.encode()
    except UnicodeEncodeError:
        text = json.dumps(value, indent=2, allow_nan=False)
    click.echo(text, err=err)


def check_model_target(target: str, *, force: bool, inputs: Sequence[str]) -> None:
    """Refuse now where a model could not be written in the end."""
    from imdh_cli.atomic import check_target

    if target != "-":
        check_target(target, force=force, inputs=inputs)
    elif sys.stdout.isatty():
        raise UsageError("a model is not written to a terminal", "redirect it: -o - > model.npz")


def write_model(model: Model, target: str, *, force: bool) -> None:
    """To a path, or for `-` to stdout."""
    from imdh_cli.model import save

    finish_first(target)
    if target == "-":
        save(model, "/dev/stdout", force=True)
    else:
        save(model, target, force=force)
