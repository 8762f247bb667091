"""One split -> its density drawn in the terminal, with the cut, the depth and the loadings."""

from __future__ import annotations

import numpy as np
from rich.text import Text

from imdh_cli.compiled.histogram import CENTRES, EDGES
from imdh_cli.report.draw import axis, bar, columns, occupied
from imdh_cli.report.figures import Side, Split
from imdh_cli.report.printer import LEFT, RIGHT, WIDE, Printer, valley
from imdh_cli.report.words import percent, quantity
from imdh_cli.words import cells, count

LOADINGS = 10  # features listed
HEIGHT = 10  # lines of the picture


class NodePrinter(Printer):
    """Prints one split of a summary."""

    def print(self, split: Split) -> None:
        """The whole view."""
        self.title(f"Node {split.node}", f"{count(split.rows)} ({percent(split.share)})")
        verdict = "deeper than chance" if split.significant else "no deeper than chance makes one"
        self.flow(
            Text.assemble(
                (valley(split), "bold"),
                f": {verdict} (excess mass {split.excess:.2f}, chance stays below 1.5).",
            )
        )
        if split.from_k is None:
            self.flow(Text("This split is below the clusters: the model does not use it."))
        self.console.print()
        self._density(split)
        self.console.print()
        self._loadings(split)

    def _density(self, split: Split) -> None:
        lo, hi = occupied(split.density)
        width = min(self.width - 2, 2 * (hi - lo), 128)
        left_edge, right_edge = float(EDGES[lo]), float(EDGES[hi])
        at = left_edge + (np.arange(width) + 0.5) * (right_edge - left_edge) / width
        f = np.interp(at, CENTRES, split.density)
        top = f.max()
        heights = np.where(f > 0.004 * top, f / top, 0.0) if top > 0.0 else f
        cut = int(np.searchsorted(at, 0.0))
        for row in columns(heights, HEIGHT, self.g):
            line = list(row)
            if line[cut] == " ":
                line[cut] = self.g.cut
            text = Text("".join(line))
            text.stylize(LEFT, 0, cut)
            text.stylize(RIGHT, cut, len(line))
            if line[cut] == self.g.cut:
                text.stylize("bold red", cut, cut + 1)
            self.line("", text)
        ticks = []
        for value in range(-4, 5):
            if left_edge <= value <= right_edge:
                column = min(width - 1, int(np.searchsorted(at, value)))
                ticks.append((column, "cut" if value == 0 else f"{value:+d} sd"))
        for line_ in axis(width, ticks, self.g):
            self.line("", Text(line_, style="dim"))
        left = f"{self.g.left} {self._side(split.left)}"
        right = f"{self._side(split.right)} {self.g.right}"
        if len(left) + len(right) + 2 <= width:
            gap = " " * (width - len(left) - len(right))
            self.line("", Text.assemble((left, LEFT), gap, (right, RIGHT)))
        else:
            self.flow(Text(left, LEFT))
            self.lines([Text(right, RIGHT)], " " * max(0, width - cells(right)), "")

    def _side(self, side: Side) -> str:
        return f"node {side.node}: {count(side.rows)}, {side.clusters(' to ')}"

    def _loadings(self, split: Split) -> None:
        order = np.argsort(-split.weights, kind="stable")[:LOADINGS]
        wide = self.width >= WIDE
        room = (None,) if wide else ()
        table = self.sheet("the direction", "loading>", "weight>", *room, "left mean>", "right mean>")
        for j in order:
            f, loading = self.s.features[j], float(split.loadings[j])
            weight = float(split.weights[j])
            row = [
                Text(self.names[j]),
                Text(f"{loading:+.3f}", style=RIGHT if loading > 0 else LEFT),
                Text(percent(weight)),
            ]
            if wide:
                row.append(Text(bar(weight, 16, self.g), style="cyan"))
            for mean in (split.left_mean, split.right_mean):
                value = None if mean is None else float(mean[j])
                row.append(Text(quantity(value, f.sd, share=f.share)))
            table.add_row(*row)
        self.table(table)
        rest = len(split.loadings) - len(order)
        if rest:
            weight = 1.0 - float(split.weights[order].sum())
            self.flow(
                Text(
                    f"{self.g.more} and {count(rest, 'more feature')} with {percent(weight)} of "
                    "the direction: --json",
                    style="dim",
                )
            )
