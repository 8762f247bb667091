"""Options that several commands share, as decorators, and what they are turned into."""

from __future__ import annotations

import functools
import math
import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import click

from imdh_cli import formats
from imdh_cli.params import Clusters, FeatureParams, PruneParams, SourceParams

Command = Callable[..., Any]
READING = {
    "Reading DATA": "--missing --null-value --delimiter --decimal --encoding --no-header --format "
    "--on-bad-row --max-rows --batch-rows --threads"
}  # a section of help pages
LARGEST = 2**63 - 1  # of whole numbers: what the model and the arrays can hold


class Whole(click.IntRange):
    """A whole number from `least` up that 64 bits hold."""

    def __init__(self, least: int = 1) -> None:
        super().__init__(min=least, max=LARGEST)

    def _describe_range(self) -> str:
        return f"x>={self.min}"  # the upper end is no news to anybody


class Real(click.FloatRange):
    """A finite number within a range."""

    def convert(self, value: Any, param: Any, ctx: Any) -> float:
        number: float = super().convert(value, param, ctx)
        if not math.isfinite(number):
            self.fail(f"{value!r} is no finite number", param, ctx)
        return number


class Names(click.ParamType):
    """Column names separated by commas; a name that holds a comma is given alone, in quotes: '"a,b",c'."""

    name = "A,B"

    def convert(self, value: Any, param: Any, ctx: Any) -> tuple[str, ...]:
        if not isinstance(value, str):
            return tuple(value)
        import csv

        try:
            names = next(csv.reader([value], skipinitialspace=True), [])
        except csv.Error:
            self.fail("a name that holds the end of a line is given in quotes", param, ctx)
        if not names or any(not name for name in names):
            self.fail("column names are separated by commas", param, ctx)
        return tuple(names)


class ClusterCount(click.ParamType):
    """`auto`, `valleys` or a whole number from 1 up."""

    name = "N|auto|valleys"

    def convert(self, value: Any, param: Any, ctx: Any) -> Clusters:
        if value in ("auto", "valleys") or isinstance(value, int):
            return value
        try:
            number = int(value)
        except ValueError:
            number = 0
        if not 1 <= number <= LARGEST:
            self.fail(f"{value!r} is neither a number from 1 up nor auto nor valleys", param, ctx)
        return number


class Auto(click.ParamType):
    """`auto` or a whole number from 1 up."""

    name = "N|auto"

    def convert(self, value: Any, param: Any, ctx: Any) -> Any:
        if value == "auto" or isinstance(value, int):
            return value
        try:
            number = int(value)
        except ValueError:
            number = 0
        if not 1 <= number <= LARGEST:
            self.fail(f"{value!r} is neither a number from 1 up nor auto", param, ctx)
        return number


def apply(*decorators: Command) -> Command:
    """Several option decorators as one, in the order in which the help page lists them."""
    return lambda function: functools.reduce(lambda f, d: d(f), reversed(decorators), function)


column_options = apply(
    click.option("-c", "--columns", type=Names(), help="Features, by name. Default: all numeric columns."),
    click.option("-x", "--exclude", type=Names(), default=(), help="Columns that are no features."),
    click.option("--id", "ids", type=Names(), default=(), help="No features, but carried to the labels."),
    click.option(
        "--categorical",
        type=click.Choice(["error", "ignore", "onehot"]),
        default="ignore",
        show_default=True,
        help="Text columns; onehot makes a 0/1 feature of each level, at most 100 a column.",
    ),
)


def missing_option(default: str) -> Command:
    """--missing, with what happens without it."""
    return click.option(
        "--missing",
        type=click.Choice(["skip", "error", "mean"]),
        help="A cell that is empty, NaN, null, infinite or beyond 1e100: leave the row out (label -1), "
        f"stop, or put the training mean there. Default: {default}.",
    )


reading_options = apply(
    click.option(
        "--null-value",
        "null_values",
        multiple=True,
        help="CSV: text that means missing, beside the empty cell, NA, null, NaN and the like; repeatable.",
    ),
    click.option(
        "--delimiter",
        help="CSV: between cells. Default: told by a first line sep=; or from the rows, among , ; | tab.",
    ),
    click.option("--decimal", default=".", show_default=True, help="CSV: the decimal point.", metavar="CHAR"),
    click.option(
        "--encoding", default="utf-8", show_default=True, help="CSV: of the text; a byte order mark wins."
    ),
    click.option("--no-header", is_flag=True, help="CSV: the first row is data."),
    click.option(
        "--format",
        "file_format",
        type=click.Choice(formats.NAMES),
        help="Of the input. Default: told from its content.",
    ),
    click.option(
        "--on-bad-row",
        type=click.Choice(["error", "skip"]),
        default="error",
        show_default=True,
        help="CSV: a row of another length, or with text where a number belongs: stop and name it, or "
        "count it and label it -1.",
    ),
    click.option("--max-rows", type=Whole(), help="Read no more rows than this."),
    click.option(
        "--batch-rows",
        type=Whole(),
        default=65536,
        show_default=True,
        help="Rows read at a time; no result depends on it.",
    ),
    click.option(
        "--threads",
        type=Whole(),
        help="Default: the processors this process may use. No result depends on it.",
    ),
)

pruning_options = apply(
    click.option("-k", "--clusters", type=ClusterCount(), help="How many clusters. Default: auto."),
    click.option(
        "--min-size",
        type=Whole(),
        help="A node with fewer rows is no cluster of its own. Default: 1.",
    ),
    click.option("--max-clusters", type=Whole(), help="No more than this when chosen."),
    click.option(
        "--weight",
        type=click.Choice(["valley", "ss"]),
        help="What a split is worth: sum of squares and valley, or sum of squares alone. Default: valley.",
    ),
    click.option(
        "--elbow",
        type=click.Choice(["weighted", "paper"]),
        help="The rule for the corner of the curve. Default: weighted.",
    ),
)

output_options = apply(
    click.option("-f", "--force", is_flag=True, help="Replace an output that exists."),
    click.option("-q", "--quiet", is_flag=True, help="No summary, notes or progress; errors only."),
    click.option("-v", "--verbose", is_flag=True, help="Tell more: files, columns, caches."),
    click.option("--debug", is_flag=True, help="Show the traceback of an error."),
    click.option("--no-progress", is_flag=True, help="No progress display."),
    click.option("--no-color", is_flag=True, help="No colours (as with NO_COLOR set)."),
)


def data_argument(required_text: str = "DATA") -> Command:
    """DATA...: files, folders, quoted globs, `-` for stdin."""
    return click.argument("data", nargs=-1, metavar=f"{required_text}...")


def locations(data: tuple[str, ...], context: click.Context) -> tuple[str, ...]:
    """What to read: the arguments; stdin when there are none and it is no terminal.

    Raises
    ------
    UsageError
        At a terminal, after the help page.
    """
    if data:
        return data
    if _at_terminal():
        from imdh_cli.errors import UsageError

        click.echo(context.get_help() + "\n", err=True)
        raise UsageError("no DATA were named", "name files or folders, or - for stdin")
    return ("-",)


def _at_terminal() -> bool:
    return sys.stdin is None or sys.stdin.isatty()


def check_data(command: str, data: Sequence[str], model: str | None = None) -> None:
    """Refuse models among DATA: a slip of the hand that deserves better words than those for any zip.

    Raises
    ------
    ModelError
        When MODEL and DATA were exchanged.
    DataError
        When a model stands where data belong.
    """
    found = next((name for name in data if _is_model(name)), None)
    if found is None:
        return
    from imdh_cli.errors import DataError, ModelError

    if model is not None and os.path.isfile(model) and not _is_model(model):
        raise ModelError(
            f"{model}: not a model file, but {found} is", f"the model comes first: imdh {command} MODEL DATA"
        )
    usage = "imdh fit DATA" if model is None else f"imdh {command} MODEL DATA"
    raise DataError(f"{found}: this is a model, not data", f"name the data: {usage}")


def _is_model(name: str) -> bool:
    """Whether a file is a zip whose first entry is a NumPy array."""
    if not os.path.isfile(name):
        return False
    try:
        with open(name, "rb") as file:
            head = file.read(64)
    except OSError:
        return False
    return head.startswith(b"PK\x03\x04") and b".npy" in head


def source_params(o: dict[str, Any], threads: int) -> SourceParams:
    """The reading options as one value. From here on Arrow leaves signals alone: its handlers lose some."""
    import pyarrow

    pyarrow.enable_signal_handlers(False)
    return SourceParams(
        format=o["file_format"],
        delimiter=o["delimiter"],
        decimal=o["decimal"],
        encoding=o["encoding"],
        header=not o["no_header"],
        null_values=o["null_values"] or None,
        on_bad_row=o["on_bad_row"],
        max_rows=o["max_rows"],
        batch_rows=o["batch_rows"],
        threads=threads,
    )


def feature_params(o: dict[str, Any]) -> FeatureParams:
    """The column options as one value."""
    return FeatureParams(
        columns=o["columns"],
        exclude=o["exclude"],
        ids=o["ids"],
        categorical=o["categorical"],
        missing=o["missing"] or "skip",
    )


def prune_params(o: dict[str, Any], base: PruneParams) -> PruneParams:
    """The pruning options that were given, over `base`.

    Raises
    ------
    UsageError
        When more clusters are asked for than are allowed.
    """
    from dataclasses import replace

    k, most = o["clusters"], o["max_clusters"]
    if isinstance(k, int) and most is not None and k > most:
        from imdh_cli.errors import UsageError

        raise UsageError(
            f"-k {k} is more than --max-clusters {most} allows", "leave one of the two options out"
        )
    names = ("clusters", "min_size", "max_clusters", "weight", "elbow")
    return replace(base, **{name: o[name] for name in names if o[name] is not None})


def usable_threads() -> int:
    """Processors that this process may use: affinity, and the quota of its control group."""
    try:
        count = len(os.sched_getaffinity(0))
    except AttributeError:  # not on this system
        count = os.cpu_count() or 1
    quota = _cgroup_quota()
    return max(1, min(count, quota) if quota else count)


def _cgroup_quota() -> int | None:
    for path, separate in (("/sys/fs/cgroup/cpu.max", None), ("/sys/fs/cgroup/cpu/cpu.cfs_quota_us", 1)):
        try:
            text = Path(path).read_text()
            if separate:
                text += " " + Path("/sys/fs/cgroup/cpu/cpu.cfs_period_us").read_text()
            quota, period = text.split()[:2]
            if quota not in ("max", "-1"):
                return max(1, -(-int(quota) // int(period)))
        except (OSError, ValueError):
            continue
    return None
