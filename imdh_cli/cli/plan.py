"""`imdh fit --dry-run`: what would be read, used and left out, and what it would take."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from imdh_cli.cli.outputs import echo_json
from imdh_cli.params import FitParams
from imdh_cli.words import count, printable

if TYPE_CHECKING:
    from imdh_cli.features import Selection
    from imdh_cli.sources import Source


def show_plan(
    source: Source, selection: Selection, params: FitParams, threads: int, *, as_json: bool
) -> None:
    """Print the plan to stdout."""
    plan = make_plan(source, selection, params, threads)
    if as_json:
        echo_json(plan)
        return
    click.echo(f"files ({len(plan['files'])}, in this order)")
    for f in plan["files"]:
        rows = "rows not known before reading" if f["rows"] is None else count(f["rows"], "row")
        size = "" if f["bytes"] is None else f", {f['bytes'] / 1e6:,.1f} MB"
        click.echo(f"  {printable(f['name'])}  {f['format']}, {rows}{size}")
    click.echo(f"features ({len(plan['features'])})")
    for f in plan["features"]:
        click.echo(f"  {printable(f['name'])}  {f['type']}")
    if plan["left_out"]:
        click.echo(f"left out ({len(plan['left_out'])})")
        for f in plan["left_out"]:
            click.echo(f"  {printable(f['name'])}  {printable(f['reason'])}")
    click.echo(f"passes: {plan['passes']}; trees: {plan['n_init']}; depth: {plan['depth']}")
    click.echo(f"recount: {plan['recount']}; order: {plan['order']}")
    click.echo(
        f"memory: about {plan['memory_mb']:,.0f} MB "
        f"(trees {plan['tree_mb']:,.1f}, buffer {plan['buffer_mb']:,.1f}, samples {plan['sample_mb']:,.1f}); "
        f"{count(threads, 'thread')}"
    )


def make_plan(source: Source, selection: Selection, params: FitParams, threads: int) -> dict[str, Any]:
    """The plan as plain values, for JSON."""
    from imdh_cli.compiled.histogram import BINS
    from imdh_cli.core.candidates import sample_rows
    from imdh_cli.core.learn import AGAIN_ROWS, buffer_rows, counted_rows, trees_worth
    from imdh_cli.core.learner import MORE_LEVELS
    from imdh_cli.core.thread_pipeline import block_rows, blocks_in_flight

    d = len(selection.spec.names)
    learn, met = params.learn, source.rows if params.sample is None else params.sample
    buffer = buffer_rows(params, d) if params.sample is None else params.sample
    held = buffer if source.rows is None else min(buffer, source.rows)
    in_memory = met is None or met <= held
    again = met is None or met <= AGAIN_ROWS if params.passes == "auto" else params.passes > 1
    grows = learn.depth == "auto" and learn.reseat == "yes" and again
    levels = learn.levels + (MORE_LEVELS if grows else 0)
    splits, nodes = 2**levels - 1, 2 ** (levels + 1) - 1
    starts = (trees_worth(held) if params.n_init == "auto" else params.n_init) if in_memory else 1
    # The last rows met; those that are drawn, of which half as many again are held for a while.
    samples = sample_rows(d) * starts if learn.reseat == "yes" and params.shuffle != "none" else 0
    drawn = 0 if params.recount == "yes" or (in_memory and params.recount == "auto") else counted_rows(d)
    drawn = max(drawn, params.sample or 0)
    samples += min(drawn + drawn // 2, source.rows or drawn * 2)
    # Directions and pivots; three sets of leaf moments and what is merged from them; histograms.
    tree = 8 * (d * (splits + nodes + 2 * (4 * (splits + 1) + 2 * nodes)) + 3 * BINS * splits)
    tree *= starts
    rows = block_rows(d)
    blocks = (
        8 * d * rows * 2 * (1 if threads == 1 else blocks_in_flight(rows, d, threads + 1))
    )  # raw rows, too
    blocks += 8 * d * min(source.rows or 65536, 65536) * 4
    types = {f.name: str(f.type) for f in source.schema}
    columns = []
    for column in selection.spec.columns:
        kind = types.get(column.name, "?")
        if column.items is not None:
            columns += [{"name": name, "type": f"{kind}, {column.width} features"} for name in column.asked]
        elif column.levels is None:
            columns.append({"name": column.name, "type": kind})
        else:
            columns.append({"name": column.name, "type": f"{kind}, one-hot, {len(column.levels)} levels"})
    if params.shuffle == "none":
        order = "as in the input"
    elif source.rows is not None and source.rows <= held:
        order = "shuffled whole"
    elif params.shuffle == "buffer" or not source.rereadable:
        order = f"shuffled within a buffer of {buffer:,} rows"
    else:
        order = f"from many places at once, through a buffer of {buffer:,} rows"
    auto = "4 up to 200,000 rows, 2 up to a million, else 1"
    trees = "4 up to 200,000 rows, else 1"
    if not source.rereadable:
        auto = trees = "4 if the buffer holds all rows, else 1"
    return {
        "files": [
            {"name": p.name, "format": p.format, "rows": p.rows, "bytes": p.size} for p in source.parts
        ],
        "rows": source.rows,
        "features": columns,
        "matrix_columns": d,
        "left_out": [{"name": n, "reason": r} for n, r in selection.left_out],
        "passes": auto if params.passes == "auto" else params.passes,
        "n_init": trees if params.n_init == "auto" else params.n_init,
        "depth": f"{learn.levels}, or {levels} if clusters are left" if grows else levels,
        "recount": params.recount,
        "order": order,
        "threads": threads,
        "tree_mb": tree / 1e6,
        "buffer_mb": 8 * d * held / 1e6,
        "sample_mb": 8 * d * samples / 1e6,
        "memory_mb": (tree + blocks + 8 * d * (held + samples)) / 1e6 + 170,
    }
