"""Summary -> text for people: colours on a terminal, plain text in a pipe, 80 columns or more."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np
from rich.cells import cell_len, set_cell_size
from rich.console import Console
from rich.table import Table
from rich.text import Text

from imdh_cli.report.curve import curve_length, curve_of
from imdh_cli.report.draw import ASCII, BLOCKS, Glyphs, axis, bar, columns, nice_numbers, occupied
from imdh_cli.report.figures import Cluster, Side, Split, Summary
from imdh_cli.report.truth import Agreement
from imdh_cli.report.words import count, listing, percent, printable, quantity, signed, spread

NAME = 60  # characters of a name, at most
LISTED = 128  # clusters described, at most: --csv has all
COLLAPSED = 12  # clusters told apart by the tree unless all of it is asked for
LOADINGS = 10  # features listed at one node
FEATURES = 20  # features listed when there is but one cluster
CONFUSION = 40  # classes listed
WIDE = 100  # columns from which there is room for bars
LEFT, RIGHT = "bright_blue", "yellow"  # apart for every eye, and by place and by words as well


def render(summary: Summary, console: Console, *, tree: bool = False) -> None:
    """Print the report; with `tree` all of the hierarchy and nothing else."""
    view = _View(summary, console)
    if tree:
        view.tree(limit=None)
        return
    view.head()
    view.clusters()
    view.choice()
    view.tree(limit=COLLAPSED)
    if summary.truth is not None:
        view.truth(summary.truth)


def render_node(summary: Summary, node: int, console: Console) -> None:
    """Print one split: the density of the projections, the cut, the depth and the loadings.

    Raises
    ------
    UsageError
        No such split, or one of too few rows.
    """
    _View(summary, console).node(summary.split(node))


class _View:
    def __init__(self, summary: Summary, console: Console) -> None:
        self.s = summary
        self.console = console
        self.width = max(40, console.width)
        self.g: Glyphs = ASCII if console.options.ascii_only else BLOCKS
        self.names = [printable(f.name, NAME) for f in summary.features]

    # --- parts ------------------------------------------------------------------------------------

    def head(self) -> None:
        s, r = self.s, self.s.rows
        where = listing([printable(name, NAME) for name in s.inputs], 3) or "the data"
        used = "all used" if r.used == r.read else f"{r.used:,} used"
        self._flow(
            Text.assemble((where, "bold"), f": {count(r.read)}, {used}; {count(len(s.features), 'feature')}.")
        )
        passes = count(s.passes, "pass", "passes") if isinstance(s.passes, int) else ""
        facts = [
            printable(s.name, NAME),
            passes + (", recounted" if passes and s.statistics == "recounted" else ""),
            f"depth {s.tree_depth}",
            f"{s.choice.largest:,} of {count(2**s.tree_depth, 'leaf', 'leaves')} in use",
            f"preset {s.preset}" if s.preset != "default" else "",
            f"imdh {s.version}" if s.version else "",
        ]
        self._flow(Text(f" {self.g.dot} ".join(f for f in facts if f), style="dim"))
        for warning in s.warnings:
            self._flow(Text.assemble(("! ", "bold yellow"), warning.message), hang=2)

    def clusters(self) -> None:
        s = self.s
        told = f"{len(s.clusters):,}"
        if s.explained is not None and len(s.clusters) > 1:
            told += f", which explain {percent(s.explained)} of the variance"
        self._title("Clusters", told)
        if len(s.clusters) == 1 and s.clusters[0].mean is not None:
            self._features()
            return
        shown = sorted(s.clusters, key=lambda c: -c.rows)[:LISTED]
        rest = len(s.clusters) - len(shown)
        shown.sort(key=lambda c: c.label)
        limit = 3 if len(shown) <= 12 else 2 if len(shown) <= 30 else 1
        wide = self.width >= WIDE
        table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="dim")
        table.add_column("#", justify="right", no_wrap=True)
        table.add_column("rows", justify="right", no_wrap=True)
        table.add_column("share", justify="right", no_wrap=True)
        if wide:
            table.add_column("", width=16, no_wrap=True)
        table.add_column("marked out by", overflow="fold", ratio=None)
        table.add_column("mean", justify="right", no_wrap=True)
        table.add_column("sd", justify="right", no_wrap=True)
        table.add_column("all rows", justify="right", no_wrap=True)
        table.add_column("effect", justify="right", no_wrap=True)
        if wide:
            table.add_column("", width=16, no_wrap=True)
        largest = max(c.share for c in shown)
        for c in shown:
            self._cluster_rows(table, c, limit, wide, largest)
        self._table(table)
        self._flow(
            Text(
                "effect: distance from the mean of all rows, in sds of all rows; sd: within the cluster.",
                style="dim",
            )
        )
        if rest:
            few = sum(c.rows for c in s.clusters) - sum(c.rows for c in shown)
            self._flow(Text(f"{self.g.more} and {count(rest, 'smaller cluster')} with {count(few)}: --csv"))

    def _features(self) -> None:
        """All rows are one cluster: only what they are like can be told."""
        table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="dim")
        table.add_column("feature", overflow="fold")
        table.add_column("mean", justify="right", no_wrap=True)
        table.add_column("sd", justify="right", no_wrap=True)
        for name, f in list(zip(self.names, self.s.features, strict=True))[:FEATURES]:
            sd = self.g.plus_minus + spread(f.sd, share=f.share)
            table.add_row(Text(name), quantity(f.mean, f.sd, share=f.share), sd)
        self._table(table)
        rest = len(self.s.features) - FEATURES
        if rest > 0:
            self._flow(Text(f"{self.g.more} and {count(rest, 'more feature')}: --json", "dim"))

    def _cluster_rows(self, table: Table, c: Cluster, limit: int, wide: bool, largest: float) -> None:
        ident: list[Text | str] = [
            Text(str(c.label), style="bold"), f"{c.rows:,}", percent(c.share)
        ]  # fmt: skip
        blank: list[Text | str] = ["", "", ""]
        if wide:
            ident.append(Text(bar(c.share / largest, 16, self.g), style="cyan"))
            blank.append("")
        if c.withheld or not c.marks:
            few = f"fewer than {count(self.s.min_size)}"
            why = ("no row counted" if not c.rows else few) if c.withheld else "nothing stands out"
            table.add_row(*ident, Text(why, style="dim"))
            return
        for i, j in enumerate(c.marks[:limit]):
            table.add_row(*(blank if i else ident), *self._mark(c, j, wide))

    def _mark(self, c: Cluster, j: int, wide: bool) -> list[Text]:
        f = self.s.features[j]
        assert c.mean is not None
        assert c.sd is not None
        assert c.z is not None
        z = float(c.z[j])
        arrow, style = (self.g.up, RIGHT) if z > 0 else (self.g.down, LEFT)
        cells = [
            Text(self.names[j]),
            Text(quantity(float(c.mean[j]), f.sd, share=f.share), style="bold"),
            Text(self.g.plus_minus + spread(float(c.sd[j]), share=f.share)),
            Text(quantity(f.mean, f.sd, share=f.share)),
            Text(f"{arrow} {signed(z)}", style=style),
        ]
        if wide:
            cells.append(Text(bar(abs(z) / 4.0, 16, self.g), style=style))
        return cells

    def choice(self) -> None:
        c = self.s.choice
        self._title("How many", c.headline)
        self._flow(Text(c.sentence))
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
        self._flow(Text(meaning, style="dim"))

    def tree(self, limit: int | None) -> None:
        s = self.s
        if not s.splits:
            self._title("Tree", "no split is kept: all rows are one cluster")
            return
        cut = limit is not None and limit < len(s.clusters)
        self._title(
            "Tree", f"down to {limit} groups of clusters; --tree shows all" if cut
            else "down to the clusters"
        )  # fmt: skip
        deepest = max(node.bit_length() for node in s.splits)
        branch = self.g.tight if deepest > 8 else self.g.branch
        for first, following, side, split in branches(s, limit, branch):
            self._lines(self._node_units(side, split), first, following)
        self._flow(
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
                Text(f"{_valley(split)} ", "bold" if split.significant else "dim"),
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
            Text(f"cluster {c.label} ", "bold green"),
            Text(f"{count(c.rows)} ({percent(c.share)}) "),
        ]
        if self.width >= WIDE and c.z is not None:
            for j in c.marks[:3]:
                arrow, style = (self.g.up, RIGHT) if c.z[j] > 0 else (self.g.down, LEFT)
                units.append(Text.assemble((arrow, style), f" {self.names[j]}"))
        return units

    def truth(self, t: Agreement) -> None:
        self._title("Against", f"{printable(t.column, NAME)}, {count(t.rows)}")
        for value, meaning in (
            (t.nmi_arithmetic, f"NMI, arithmetic mean ({t.nmi_geometric:.3f} geometric)"),
            (t.ari, "ARI"),
            (t.homogeneity, "homogeneity: every cluster of one class"),
            (t.completeness, "completeness: every class in one cluster"),
        ):
            self._lines([Text(f"{value:6.3f} ", "bold"), *Text(meaning).split(" ")], "", " " * 8)
        left_out = [
            f"{count(n)} {why}"
            for n, why in (
                (t.without_cluster, "without a cluster"),
                (t.without_class, "without a class"),
            )
            if n
        ]
        if left_out:
            self._flow(Text(f"Not compared: {listing(left_out)}."))
        self.console.print()
        self._table(self._contingency(t))
        if len(t.classes) > CONFUSION:
            self._flow(Text(f"{self.g.more} and {len(t.classes) - CONFUSION:,} more: --json"))

    def _contingency(self, t: Agreement) -> Table:
        """Classes by clusters where that fits, else the clusters that hold most of each class."""
        cells = np.array(t.table)
        by_size = np.argsort(-cells.sum(axis=1), kind="stable")[:CONFUSION]
        shown = sorted(int(i) for i in by_size)
        names = [printable(t.classes[i], 24) for i in shown]
        each = max(len(f"{cells.max():,}"), len(str(len(t.clusters)))) + 2
        table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="dim")
        table.add_column("class", overflow="fold", min_width=5)
        table.add_column("rows", justify="right", no_wrap=True)
        if max(map(len, names)) + 12 + each * len(t.clusters) <= self.width:
            for k in t.clusters:
                table.add_column(str(k), justify="right", no_wrap=True)
            for name, i in zip(names, shown, strict=True):
                most = cells[i].max()
                table.add_row(
                    Text(name),
                    f"{cells[i].sum():,}",
                    *(Text(f"{n:,}" if n else self.g.dot, _weight(n, most)) for n in cells[i]),
                )
            return table
        table.add_column("in clusters", overflow="fold")
        for name, i in zip(names, shown, strict=True):
            total = cells[i].sum()
            order = [j for j in np.argsort(-cells[i], kind="stable")[:5] if cells[i][j]]
            most_of = [f"{t.clusters[j]} ({percent(cells[i][j] / total)})" for j in order]
            table.add_row(Text(name), f"{total:,}", Text(", ".join(most_of)))
        return table

    # --- one node -----------------------------------------------------------------------------------

    def node(self, split: Split) -> None:
        self._title(f"Node {split.node}", f"{count(split.rows)} ({percent(split.share)})")
        verdict = "deeper than chance" if split.significant else "no deeper than chance makes one"
        self._flow(
            Text.assemble(
                (_valley(split), "bold"),
                f": {verdict} (excess mass {split.excess:.2f}, chance stays below 1.5).",
            )
        )
        if split.from_k is None:
            self._flow(Text("This split is below the clusters: the model does not use it."))
        self.console.print()
        self._density(split)
        self.console.print()
        self._loadings(split)

    def _density(self, split: Split) -> None:
        lo, hi = occupied(split.density)
        width = min(self.width - 2, 2 * (hi - lo), 128)
        left_edge, right_edge = lo / 16.0 - 4.0, hi / 16.0 - 4.0
        at = left_edge + (np.arange(width) + 0.5) * (right_edge - left_edge) / width
        middles = -4.0 + (np.arange(128) + 0.5) / 16.0
        f = np.interp(at, middles, split.density)
        top = f.max()
        heights = np.where(f > 0.004 * top, f / top, 0.0) if top > 0.0 else f
        cut = int(np.searchsorted(at, 0.0))
        for row in columns(heights, 10, self.g):
            line = list(row)
            if line[cut] == " ":
                line[cut] = self.g.cut
            text = Text("".join(line))
            text.stylize(LEFT, 0, cut)
            text.stylize(RIGHT, cut, len(line))
            if line[cut] == self.g.cut:
                text.stylize("bold red", cut, cut + 1)
            self.console.print(text, no_wrap=True)
        ticks = []
        for value in range(-4, 5):
            if left_edge <= value <= right_edge:
                column = min(width - 1, int(np.searchsorted(at, value)))
                ticks.append((column, "cut" if value == 0 else f"{value:+d} sd"))
        for line_ in axis(width, ticks, self.g):
            self.console.print(Text(line_, style="dim"), no_wrap=True)
        left = f"{self.g.left} {self._side(split.left)}"
        right = f"{self._side(split.right)} {self.g.right}"
        if len(left) + len(right) + 2 <= width:
            gap = " " * (width - len(left) - len(right))
            self.console.print(Text.assemble((left, LEFT), gap, (right, RIGHT)), no_wrap=True)
        else:
            self._flow(Text(left, LEFT))
            self._flow(Text(right, RIGHT))

    def _side(self, side: Side) -> str:
        of = "cluster" if side.n_clusters == 1 else "clusters"
        labels = str(side.first) if side.n_clusters == 1 else f"{side.first} to {side.last}"
        return f"node {side.node}: {count(side.rows)}, {of} {labels}"

    def _loadings(self, split: Split) -> None:
        order = np.argsort(-split.weights, kind="stable")[:LOADINGS]
        table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="dim")
        wide = self.width >= WIDE
        table.add_column("the direction", overflow="fold")
        table.add_column("loading", justify="right", no_wrap=True)
        table.add_column("weight", justify="right", no_wrap=True)
        if wide:
            table.add_column("", width=20, no_wrap=True)
        table.add_column("left mean", justify="right", no_wrap=True)
        table.add_column("right mean", justify="right", no_wrap=True)
        for j in order:
            f, loading = self.s.features[j], float(split.loadings[j])
            weight = float(split.weights[j])
            cells = [
                Text(self.names[j]),
                Text(f"{loading:+.3f}", style=RIGHT if loading > 0 else LEFT),
                Text(percent(weight)),
            ]
            if wide:
                cells.append(Text(bar(weight, 20, self.g), style="cyan"))
            for mean in (split.left_mean, split.right_mean):
                value = None if mean is None else float(mean[j])
                cells.append(Text(quantity(value, f.sd, share=f.share)))
            table.add_row(*cells)
        self._table(table)
        rest = len(split.loadings) - len(order)
        if rest:
            weight = 1.0 - float(split.weights[order].sum())
            self._flow(
                Text(
                    f"{self.g.more} and {count(rest, 'more feature')} with {percent(weight)} of "
                    "the direction: --json",
                    style="dim",
                )
            )

    # --- printing ------------------------------------------------------------------------------------

    def _title(self, title: str, rest: str) -> None:
        self.console.print()
        self._lines([Text(f"{title} ", "bold"), *Text(rest).split(" ")], "", "")

    def _flow(self, text: Text, *, hang: int = 0) -> None:
        """Print a paragraph."""
        self._lines(text.split(" "), "", " " * hang)

    def _lines(self, units: Iterable[Text], first: str, following: str) -> None:
        """Print units that must not be broken, as many a line as fit, between prefixes.

        A unit longer than the line is broken where the line ends.
        """
        prefix = first
        line = Text()
        for unit in units:
            room = max(16, self.width - cell_len(prefix))
            if line and line.cell_len + 1 + unit.cell_len > room:
                self._line(prefix, line)
                prefix, line = following, Text()
                room = max(16, self.width - cell_len(prefix))
            line = Text(" ").join([line, unit]) if line else unit.copy()
            while line.cell_len > room:
                head = set_cell_size(line.plain, room)
                self._line(prefix, line[: len(head)])
                prefix, line = following, line[len(head) :]
        self._line(prefix, line)

    def _table(self, table: Table) -> None:
        """Print a table without the blanks that pad its lines."""
        options = self.console.options.update(width=self.width)
        for segments in self.console.render_lines(table, options, pad=False):
            self._line("", Text.assemble(*((part.text, part.style or "") for part in segments)))

    def _line(self, prefix: str, line: Text) -> None:
        text = Text.assemble((prefix, "dim"), line)
        text.rstrip()
        encoding = self.console.encoding
        spelled = text.plain.encode(encoding, "backslashreplace").decode(encoding)
        if spelled != text.plain:  # a name that this terminal has no letters for
            text = Text(spelled)
        self.console.print(text, no_wrap=True, crop=False, highlight=False)


def _valley(split: Split) -> str:
    return f"valley {split.depth:.2f}" if split.significant else f"weak valley {split.depth:.2f}"


def _weight(n: int, most: int) -> str:
    return "bold" if n == most and n else "" if n else "dim"


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
