"""Clusters beside known classes, or beside those of another model, as text."""

from __future__ import annotations

import shlex

import numpy as np
from rich.table import Table
from rich.text import Text

from imdh_cli.report.agreement import Agreement
from imdh_cli.report.comparison import Comparison
from imdh_cli.report.printer import NAME, Printer
from imdh_cli.report.words import percent, similarity
from imdh_cli.words import count, listing, printable, short

CONFUSION = 40  # classes listed
CALLED = 20  # columns of a cluster's name


class AgreementPrinter(Printer):
    """Prints how the clusters of a summary agree with another classification of the rows."""

    def truth(self, t: Agreement) -> None:
        self.title("Against", f"{printable(t.column, NAME)}, {count(t.rows)}")
        self._agreement(t, "class", "of")

    def comparison(self, c: Comparison) -> None:
        """With another model: the measures, which cluster is which, the table."""
        t = c.agreement
        self.title("Compared", f"with {printable(c.other, NAME)}, {count(t.rows)}")
        self._agreement(t, "cluster there", "in")
        self.console.print()
        named = any(m.name or m.other_name for m in c.matches)
        table = self.sheet(
            "#>",
            *(("name",) if named else ()),
            "is there>",
            *(("name",) if named else ()),
            "rows>",
            "Jaccard>",
        )
        for m in c.matches:
            own, other = (
                [Text(short(name or "", CALLED))] if named else [] for name in (m.name, m.other_name)
            )
            table.add_row(
                Text(str(m.cluster), "bold"), *own, str(m.other), *other, f"{m.rows:,}", similarity(m.jaccard)
            )
        self.table(table)
        for clusters, which in ((t.clusters, "here"), (t.classes, "there")):
            matched = {str(m.cluster if which == "here" else m.other) for m in c.matches}
            rest = [str(k) for k in clusters if str(k) not in matched]
            if rest:
                self.flow(Text(f"Without a counterpart {which}: {listing(rest, 12)}."))
        if c.names_to_carry:
            words = shlex.join(
                ["imdh", "prune", printable(c.other, NAME), "--rename", ",".join(c.names_to_carry)]
            )
            self.flow(Text(f"To carry the names over: {words}"))

    def _agreement(self, t: Agreement, noun: str, of: str) -> None:
        """The measures and the table; noun: what rows are classified by beside the clusters."""
        for value, meaning in (
            (t.nmi_arithmetic, f"NMI, arithmetic mean ({t.nmi_geometric:.3f} geometric)"),
            (t.ari, "ARI"),
            (t.homogeneity, f"homogeneity: every cluster {of} one {noun}"),
            (t.completeness, f"completeness: every {noun} in one cluster"),
        ):
            self.lines([Text(f"{value:6.3f} ", "bold"), *Text(meaning).split(" ")], "", " " * 8)
        left_out = [
            f"{count(n)} {why}"
            for n, why in (
                (t.without_cluster, "without a cluster"),
                (t.without_class, f"without a {noun}"),
            )
            if n
        ]
        if left_out:
            self.flow(Text(f"Not compared: {listing(left_out)}."))
        self.console.print()
        self.table(self._contingency(t, noun))
        if len(t.classes) > CONFUSION:
            self.flow(Text(f"{self.g.more} and {len(t.classes) - CONFUSION:,} more: --json"))

    def _contingency(self, t: Agreement, noun: str) -> Table:
        """Classes by clusters where that fits, else the clusters that hold most of each class."""
        cells = np.array(t.table)
        by_size = np.argsort(-cells.sum(axis=1), kind="stable")[:CONFUSION]
        shown = sorted(int(i) for i in by_size)
        names = [printable(t.classes[i], 24) for i in shown]
        each = max(len(f"{cells.max():,}"), len(str(len(t.clusters)))) + 2
        table = self.sheet(noun, "rows>")
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


def _weight(n: int, most: int) -> str:
    return "bold" if n == most and n else "" if n else "dim"
