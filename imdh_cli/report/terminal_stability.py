"""Which clusters and cuts come back when other rows are learned from, as text."""

from __future__ import annotations

from rich.text import Text

from imdh_cli.report.draw import bar
from imdh_cli.report.printer import WIDE, Printer
from imdh_cli.report.stability import DISSOLVED, HIGHLY, PATTERN, STABLE, ClusterStability, Stability
from imdh_cli.report.words import percent, similarity
from imdh_cli.words import count, printable, short

CLUSTERS = 64  # listed, those that come back least
SPLITS = 24  # listed, in the order in which they matter
CALLED = 20  # columns of a cluster's name


class StabilityPrinter(Printer):
    """Prints the stability of a summary."""

    def print(self, s: Stability) -> None:
        """The verdict, a line for each cluster, and the cuts."""
        self.title("Stability", s.headline)
        self.flow(Text(s.sentence))
        between = "" if s.ari_between is None else f", with each other {s.ari_between:.2f}"
        self.flow(
            Text(
                f"{count(s.refits, 'refit')} of {count(s.rows_each)} each, compared on {count(s.sample)}; "
                f"ARI with the model {s.ari_model:.2f}{between}.",
                style="dim",
            )
        )
        self.console.print()
        self._clusters(s)
        if s.splits:
            self._splits(s)

    def _clusters(self, s: Stability) -> None:
        shown = sorted(s.clusters, key=lambda c: -1.0 if c.jaccard is None else c.jaccard)[:CLUSTERS]
        shown.sort(key=lambda c: c.cluster)
        named = any(c.name for c in shown)
        bars = (None,) if self.width >= WIDE else ()
        table = self.sheet(
            "#>", *(("name",) if named else ()), "Jaccard>", *bars, "lowest>", "dissolved>", "reading"
        )
        for c in shown:
            row: list[Text | str] = [Text(str(c.cluster), "bold")]
            if named:
                row.append(Text(short(printable(c.name or ""), CALLED), "bold"))
            row.append(similarity(c.jaccard))
            if bars:
                row.append(Text(bar(c.jaccard or 0.0, 16, self.g), style="cyan"))
            row.append(similarity(c.lowest))
            table.add_row(*row, f"{c.dissolved} of {s.refits}", Text(c.reading, _style(c)))
        self.table(table)
        if len(shown) < len(s.clusters):
            self.flow(
                Text(f"{self.g.more} and {len(s.clusters) - len(shown):,} more stable ones: --json", "dim")
            )
        self.flow(
            Text(
                f"Jaccard: similarity to the best match in a refit, the mean; from {HIGHLY:g} highly stable, "
                f"from {STABLE:g} stable, from {PATTERN:g} a pattern, below not to be trusted. dissolved: "
                f"refits in which it is {DISSOLVED:g} or less.",
                style="dim",
            )
        )

    def _splits(self, s: Stability) -> None:
        self.console.print()
        returned = {split.node: split.returned for split in s.splits}
        nodes = sorted(returned, key=lambda node: self.s.splits[node].from_k or 0)
        table = self.sheet("node>", "came back>", "between")
        for node in nodes[:SPLITS]:
            split, share = self.s.splits[node], returned[node]
            table.add_row(str(node), "-" if share is None else percent(share), split.between)
        self.table(table)
        if len(nodes) > SPLITS:
            self.flow(Text(f"{self.g.more} and {len(nodes) - SPLITS:,} more: --json", "dim"))
        self.flow(Text("came back: refits in which a cut parts the rows there the same way.", style="dim"))


def _style(c: ClusterStability) -> str:
    if c.jaccard is None:
        return "dim"
    return "green" if c.jaccard >= STABLE else "yellow" if c.jaccard >= PATTERN else "bold red"
