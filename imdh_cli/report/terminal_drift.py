"""What has moved since the model was made, as text."""

from __future__ import annotations

from rich.text import Text

from imdh_cli.report.draw import bar
from imdh_cli.report.drift import Drift
from imdh_cli.report.printer import WIDE, Printer
from imdh_cli.report.words import percent
from imdh_cli.words import count, printable, short

CLUSTERS = 20  # listed, those with the largest parts of the index
FINDINGS = 12  # said
CALLED = 20  # columns of a cluster's name


class DriftPrinter(Printer):
    """Prints the drift of a summary."""

    def print(self, drift: Drift) -> None:
        """The verdict, the shares then and now, and what moved, most first."""
        self.title("Drift", drift.headline)
        used = "all used" if drift.rows_used == drift.rows_read else f"{drift.rows_used:,} used"
        self.flow(Text(f"{count(drift.rows_read)} now, {used}. {drift.sentence}"))
        if len(drift.clusters) > 1:
            self.console.print()
            self._shares(drift)
        if drift.findings:
            self.console.print()
            for finding in drift.findings[:FINDINGS]:
                self.flow(Text.assemble(("! ", "bold yellow"), finding.message), hang=2)
            rest = len(drift.findings) - FINDINGS
            if rest > 0:
                self.flow(Text(f"{self.g.more} and {rest} more: --json", "dim"))

    def _shares(self, drift: Drift) -> None:
        shown = sorted(drift.clusters, key=lambda c: -c.psi)[:CLUSTERS]
        shown.sort(key=lambda c: c.cluster)
        named = any(c.name for c in shown)
        wide = self.width >= WIDE
        bars = (None,) if wide else ()
        table = self.sheet(
            "#>", *(("name",) if named else ()), "then>", *bars, "now>", *bars, "rows now>", "PSI>"
        )
        largest = max(max(c.share_then, c.share_now) for c in shown)
        for c in shown:
            row: list[Text | str] = [Text(str(c.cluster), "bold")]
            if named:
                row.append(Text(short(printable(c.name or ""), CALLED), "bold"))
            for share in (c.share_then, c.share_now):
                row.append(percent(share))
                if wide:
                    row.append(Text(bar(share / largest, 16, self.g), style="cyan"))
            table.add_row(*row, f"{c.rows_now:,}", f"{c.psi:.3f}")
        self.table(table)
        rest = len(drift.clusters) - len(shown)
        if rest:
            self.flow(Text(f"{self.g.more} and {count(rest, 'cluster')} with less: --json", "dim"))
        self.flow(
            Text(
                "PSI: population stability index, the sum over the clusters; 0.1 is a little, 0.25 is much"
                + (f"; chance stays below {drift.chance:.3f}." if drift.chance > 0.001 else "."),
                style="dim",
            )
        )
