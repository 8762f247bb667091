"""Summary -> text for people: colours on a terminal, plain text in a pipe, 80 columns or more."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from rich.console import Console
from rich.text import Text

from imdh_cli.report.curve import curve_length, curve_of
from imdh_cli.report.draw import axis, bar, columns, nice_numbers
from imdh_cli.report.figures import Cluster, Side, Split, Summary
from imdh_cli.report.printer import LEFT, NAME, RIGHT, WIDE, Printer, valley
from imdh_cli.report.terminal_agreement import AgreementPrinter
from imdh_cli.report.terminal_drift import DriftPrinter
from imdh_cli.report.terminal_node import NodePrinter
from imdh_cli.report.terminal_stability import StabilityPrinter
from imdh_cli.report.words import percent, quantity, signed, spread
from imdh_cli.words import cells, count, listing, printable, short

LISTED = 128  # clusters described, at most: --csv has all
COLLAPSED = 12  # clusters told apart by the tree unless all of it is asked for
FEATURES = 20  # features listed when there is but one cluster
BORDERS = 8  # listed, the most crowded
CALLED = 20  # columns of a cluster's name in the table
MARKED = "marked out by"
WHOLE = 16  # columns of a name that numerals make way for
SPARED = ("all rows>", "sd>", "share>", "mean>", "rows>")  # where they must, in this order


def render(summary: Summary, console: Console, *, tree: bool = False) -> None:
    """Print the report; with `tree` all of the hierarchy and nothing else.

    Where the summary holds drift, stability or a comparison, these are asked for: not the clusters again.
    """
    view = _Report(summary, console)
    if tree:
        view.tree(limit=None)
        return
    view.head()
    if summary.drift is not None:
        DriftPrinter(summary, console).print(summary.drift)
    if summary.stability is not None:
        StabilityPrinter(summary, console).print(summary.stability)
    if summary.comparison is not None:
        AgreementPrinter(summary, console).comparison(summary.comparison)
    if summary.drift is summary.stability is summary.comparison is None:
        view.clusters()
        view.choice()
        view.tree(limit=COLLAPSED)
        view.borders()
        view.next_steps()
    if summary.truth is not None:
        AgreementPrinter(summary, console).truth(summary.truth)


def render_node(summary: Summary, node: int, console: Console) -> None:
    """Print one split: the density of the projections, the cut, the depth and the loadings.

    Raises
    ------
    UsageError
        No such split, or one of too few rows.
    """
    NodePrinter(summary, console).print(summary.split(node))


class _Report(Printer):
    """The parts of the report, in the order they are printed."""

    def head(self) -> None:
        s, r = self.s, self.s.rows
        where = listing([printable(name, NAME) for name in s.inputs], 3) or "the data"
        used = "all used" if r.used == r.read else f"{r.used:,} used"
        self.flow(
            Text.assemble((where, "bold"), f": {count(r.read)}, {used}; {count(len(s.features), 'feature')}.")
        )
        passes = count(s.passes, "pass", "passes") if isinstance(s.passes, int) else ""
        facts = [
            printable(s.name, NAME),
            passes + (", recounted" if passes and s.statistics == "recounted" else ""),
            f"learned from {r.learned:,} of them, {r.counted:,} counted" if r.learned < r.used else "",
            f"depth {s.tree_depth}",
            f"{s.choice.largest:,} of {count(2**s.tree_depth, 'leaf', 'leaves')} in use",
            f"preset {s.preset}" if s.preset != "default" else "",
            f"imdh {s.version}" if s.version else "",
        ]
        self.flow(Text(f" {self.g.dot} ".join(f for f in facts if f), style="dim"))
        for warning in s.warnings:
            self.flow(Text.assemble(("! ", "bold yellow"), warning.message), hang=2)

    def clusters(self) -> None:
        s = self.s
        told = f"{len(s.clusters):,}"
        if s.explained is not None and len(s.clusters) > 1:
            told += f", which explain {percent(s.explained)} of the variance"
        self.title("Clusters", told)
        if len(s.clusters) == 1 and s.clusters[0].mean is not None:
            self._features()
            return
        shown = sorted(s.clusters, key=lambda c: -c.rows)[:LISTED]
        rest = len(s.clusters) - len(shown)
        shown.sort(key=lambda c: c.label)
        limit = 3 if len(shown) <= 12 else 2 if len(shown) <= 30 else 1
        wide = self.width >= WIDE
        room = (None,) if wide else ()
        name = ("name",) if any(c.name for c in shown) else ()
        titles = [
            "#>",
            *name,
            "rows>",
            "share>",
            *room,
            MARKED,
            "mean>",
            "sd>",
            "all rows>",
            "effect>",
            *room,
        ]
        largest = max(c.share for c in shown)
        rows = [row for c in shown for row in self._cluster_rows(c, limit, wide, largest, named=bool(name))]
        kept = self._room_for(titles, rows)
        table = self.sheet(*(titles[i] for i in kept))
        for row in rows:
            table.add_row(*(row[i] for i in kept if i < len(row)))
        self.table(table)
        sd = "; sd: within the cluster" if titles.index("sd>") in kept else ""
        self.flow(Text(f"effect: distance from the mean of all rows, in sds of all rows{sd}.", style="dim"))
        if rest:
            few = sum(c.rows for c in s.clusters) - sum(c.rows for c in shown)
            self.flow(Text(f"{self.g.more} and {count(rest, 'smaller cluster')} with {count(few)}: --csv"))

    def _features(self) -> None:
        """All rows are one cluster: only what they are like can be told."""
        table = self.sheet("feature", "mean>", "sd>")
        for name, f in list(zip(self.names, self.s.features, strict=True))[:FEATURES]:
            sd = self.g.plus_minus + spread(f.sd, share=f.share)
            table.add_row(Text(name), quantity(f.mean, f.sd, share=f.share), sd)
        self.table(table)
        rest = len(self.s.features) - FEATURES
        if rest > 0:
            self.flow(Text(f"{self.g.more} and {count(rest, 'more feature')}: --json", "dim"))

    def _room_for(self, titles: list[str | None], rows: list[list[Text | str]]) -> list[int]:
        """Which columns of a table are shown, so that names are left whole for as long as can be."""
        need = []
        for i, title in enumerate(titles):
            texts = [title.rstrip(">") if title else " " * 16, *(str(row[i]) for row in rows if i < len(row))]
            longest = max(map(cells, texts))
            need.append(longest if title is None or title.endswith(">") else min(longest, WHOLE))
        kept = list(range(len(titles)))
        for spare in SPARED:
            if sum(need[i] + 2 for i in kept) - 2 > self.width:
                kept.remove(titles.index(spare))
        return kept

    def _cluster_rows(
        self, c: Cluster, limit: int, wide: bool, largest: float, *, named: bool
    ) -> Iterator[list[Text | str]]:
        ident: list[Text | str] = [Text(str(c.label), style="bold")]
        if named:
            ident.append(Text(short(c.name or "", CALLED), style="bold"))
        ident += [f"{c.rows:,}", percent(c.share)]
        if wide:
            ident.append(Text(bar(c.share / largest, 16, self.g), style="cyan"))
        blank: list[Text | str] = [""] * len(ident)
        if c.withheld or not c.marks:
            few = f"fewer than {count(self.s.min_size)}"
            why = ("no row counted" if not c.rows else few) if c.withheld else "nothing stands out"
            yield [*ident, Text(why, style="dim")]
            return
        for i, j in enumerate(c.marks[:limit]):
            yield [*(blank if i else ident), *self._mark(c, j, wide)]

    def _mark(self, c: Cluster, j: int, wide: bool) -> list[Text]:
        f = self.s.features[j]
        assert c.mean is not None
        assert c.sd is not None
        assert c.z is not None
        z = float(c.z[j])
        arrow, style = (self.g.up, RIGHT) if z > 0 else (self.g.down, LEFT)
        row = [
            Text(self.names[j]),
            Text(quantity(float(c.mean[j]), f.sd, share=f.share), style="bold"),
            Text(self.g.plus_minus + spread(float(c.sd[j]), share=f.share)),
            Text(quantity(f.mean, f.sd, share=f.share)),
            Text(f"{arrow} {signed(z)}", style=style),
        ]
        if wide:
            row.append(Text(bar(abs(z) / 4.0, 16, self.g), style=style))
        return row

    def choice(self) -> None:
        c = self.s.choice
        self.title("How many", c.headline)
        self.flow(Text(c.sentence))
        curve, meaning = curve_of(self.s)
        if len(curve) < 3 or curve[0] <= 0.0:
            return
        self.console.print()
        n = curve_length(c, len(curve))
        room = self.width - 7
        step = max(1, -(-n // room))
        ks = np.arange(1, n + 1, step)
        wide = max(1, min(4, room // len(ks)))
        heights = np.repeat(curve[ks - 1], wide)
        if wide > 2:
            heights[wide - 1 :: wide] = 0.0  # a gap between bars that are wide enough
        chosen = _column(c.clusters, ks, wide)
        rows = columns(heights, 8, self.g)
        for i, row in enumerate(rows):
            label = {0: "100 %", 4: " 50 %"}.get(i, "     ")
            line = Text(f"{label} {row}"[: self.width].rstrip())
            if chosen is not None:
                line.stylize("bold green", 6 + chosen, 6 + chosen + wide)
            self.console.print(line, no_wrap=True)
        ticks = [(_column(k, ks, wide), str(k)) for k in nice_numbers(n)]
        line1, line2 = axis(
            len(heights), [(t + (wide - 1) // 2, k) for t, k in ticks if t is not None], self.g
        )
        marks = {c.clusters: f"{self.g.mark} chosen"}
        if c.runner_up and c.runner_up <= n:
            marks[c.runner_up] = f"{self.g.mark} runner-up"
        self.console.print(Text(f"      {line1}", style="dim"), no_wrap=True)
        self.console.print(Text(f"      {line2}", style="dim"), no_wrap=True)
        for k in sorted(marks):
            column = _column(k, ks, wide)
            if column is not None:
                text = f"{marks[k]}: {k}"
                at = min(6 + column + (wide - 1) // 2, self.width - len(text))
                style = "bold green" if k == c.clusters else ""
                self.console.print(Text(" " * at + text, style=style), no_wrap=True)
        self.flow(Text(meaning, style="dim"))

    def tree(self, limit: int | None) -> None:
        s = self.s
        if not s.splits:
            self.title("Tree", "no split is kept: all rows are one cluster")
            return
        cut = limit is not None and limit < len(s.clusters)
        self.title(
            "Tree", f"down to {limit} groups of clusters; --tree shows all" if cut
            else "down to the clusters"
        )  # fmt: skip
        deepest = max(node.bit_length() for node in s.splits)
        branch = self.g.tight if deepest > 8 else self.g.branch
        for first, following, side, split in branches(s, limit, branch):
            self.lines(self._node_units(side, split), first, following)
        self.flow(
            Text(
                "valley: depth of the density at the cut, 1 = empty; weak: no deeper than chance. "
                "+ larger in the second branch, - smaller; %: share of the direction.",
                style="dim",
            )
        )

    def _node_units(self, side: Side, split: Split | None) -> list[Text]:
        units = [Text(f"{side.node} ")]
        if split is not None:
            units += [
                Text(f"{count(split.rows)} "),
                Text(f"{valley(split)} ", "bold" if split.significant else "dim"),
            ]
            for j in split.carriers():
                sign = "+" if split.loadings[j] > 0 else "-"
                weight = f"{100.0 * split.weights[j]:.0f}%"
                units.append(Text(f"{self.names[j]} {sign}{weight}", "cyan"))
            return units
        if side.n_clusters > 1:
            labels = f"{self.g.more} clusters {side.first} to {side.last} "
            return [*units, Text(labels, "green"), Text(count(side.rows))]
        c = self.s.clusters[side.first - 1]
        units += [
            Text(f"{c.title} ", "bold green"),
            Text(f"{count(c.rows)} ({percent(c.share)}) "),
        ]
        if self.width >= WIDE and c.z is not None:
            for j in c.marks[:3]:
                arrow, style = (self.g.up, RIGHT) if c.z[j] > 0 else (self.g.down, LEFT)
                units.append(Text.assemble((arrow, style), f" {self.names[j]}"))
        return units

    def next_steps(self) -> None:
        """What to do, a line each."""
        if self.s.next_steps:
            self.console.print()
        for step in self.s.next_steps:
            self.flow(Text.assemble(("Next: ", "bold"), step, "."), hang=2)

    def borders(self) -> None:
        """How many rows lie near the cuts: of DATA by pair of clusters, else of the model by split."""
        s = self.s
        if s.borders is not None:
            lines = [(f"{b.first} and {b.second}", float(b.rows), b.share) for b in s.borders]
            of = "by the clusters on both sides"
        else:
            splits = sorted(s.splits.values(), key=lambda split: -split.near / split.rows)
            lines = [(p.between, p.near, p.near / p.rows) for p in splits]
            of = "about, by the model's histograms"
        lines = [line for line in lines if line[1] >= 0.5]
        if not s.splits:
            return
        if not lines:
            self.title("Borders", "no row lies within 0.1 sd of a cut")
            return
        self.title("Borders", f"rows within 0.1 sd of a cut, {of}")
        table = self.sheet("between", "rows>", "share>")
        for between, rows, share in lines[:BORDERS]:
            table.add_row(between, f"{rows:,.0f}", percent(share))
        self.table(table)
        if len(lines) > BORDERS:
            self.flow(Text(f"{self.g.more} and {len(lines) - BORDERS:,} more: --json", "dim"))


def _column(k: int, ks: np.ndarray, wide: int) -> int | None:
    """The first column of the bar that stands for k clusters."""
    i = int(np.searchsorted(ks, k, side="right")) - 1
    return i * wide if k <= ks[-1] + (ks[-1] - ks[0]) // max(1, len(ks) - 1) else None


def branches(
    s: Summary, limit: int | None, branch: tuple[str, str, str, str]
) -> Iterator[tuple[str, str, Side, Split | None]]:
    """Every node of the tree in order, with the prefixes of its first and of its following lines.

    A split that only matters to more than `limit` clusters comes as None, like a cluster.
    """
    inner, last, beside, blank = branch
    stack: list[tuple[Side, str, str]] = [(s.root, "", "")]
    while stack:
        side, first, following = stack.pop()
        split = s.splits.get(side.node)
        if split is not None and limit is not None and (split.from_k or 2) > limit:
            split = None
        yield first, following + (beside if split is not None else blank), side, split
        if split is not None:
            stack.append((split.right, following + last, following + blank))
            stack.append((split.left, following + inner, following + beside))
