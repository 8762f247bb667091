"""Lines for a console: words wrapped between prefixes, tables without padding, only printable text."""

from __future__ import annotations

from collections.abc import Iterable

from rich.cells import set_cell_size
from rich.console import Console
from rich.table import Table
from rich.text import Text

from imdh_cli.report.draw import ASCII, BLOCKS, Glyphs
from imdh_cli.report.figures import Split, Summary
from imdh_cli.words import cells, printable

NAME = 60  # characters of a name, at most
WIDE = 100  # columns from which there is room for bars
LEFT, RIGHT = "bright_blue", "yellow"  # apart for every eye, and by place and by words as well


class Printer:
    """What every view of a summary needs to print.

    Parameters
    ----------
    summary : Summary
    console : Console
        Its width, encoding and colours are respected.
    """

    def __init__(self, summary: Summary, console: Console) -> None:
        self.s = summary
        self.console = console
        self.width = max(40, console.width)
        self.g: Glyphs = ASCII if console.options.ascii_only else BLOCKS
        self.names = [printable(f.name, NAME) for f in summary.features]

    def title(self, title: str, rest: str) -> None:
        self.console.print()
        self.lines([Text(f"{title} ", "bold"), *Text(rest).split(" ")], "", "")

    def flow(self, text: Text, *, hang: int = 0) -> None:
        """Print a paragraph."""
        self.lines(text.split(" "), "", " " * hang)

    def lines(self, units: Iterable[Text], first: str, following: str) -> None:
        """Print units that must not be broken, as many a line as fit, between prefixes.

        A unit longer than the line is broken where the line ends.
        """
        prefix = first
        line = Text()
        for unit in units:
            room = max(16, self.width - cells(prefix))
            if line and line.cell_len + 1 + unit.cell_len > room:
                self.line(prefix, line)
                prefix, line = following, Text()
                room = max(16, self.width - cells(prefix))
            line = Text(" ").join([line, unit]) if line else unit.copy()
            while line.cell_len > room:
                head = set_cell_size(line.plain, room)
                self.line(prefix, line[: len(head)])
                prefix, line = following, line[len(head) :]
        self.line(prefix, line)

    def table(self, table: Table) -> None:
        """Print a table without the blanks that pad its lines."""
        options = self.console.options.update(width=self.width)
        for segments in self.console.render_lines(table, options, pad=False):
            self.line("", Text.assemble(*((part.text, part.style or "") for part in segments)))

    def line(self, prefix: str, line: Text) -> None:
        text = Text.assemble((prefix, "dim"), line)
        text.rstrip()
        encoding = self.console.encoding
        spelled = text.plain.encode(encoding, "backslashreplace").decode(encoding)
        if spelled != text.plain:  # a name that this terminal has no letters for
            text = Text(spelled)
        self.console.print(text, no_wrap=True, crop=False, highlight=False)

    def sheet(self, *columns: str | None) -> Table:
        """An empty table; a column named None is for bars, one that ends in > is of numerals."""
        table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="dim")
        for name in columns:
            if name is None:
                table.add_column("", width=16, no_wrap=True)
            elif name.endswith(">"):
                table.add_column(name[:-1], justify="right", no_wrap=True)
            else:
                table.add_column(name, overflow="fold")
        return table


def valley(split: Split) -> str:
    """How deep, and whether to believe it."""
    return f"valley {split.depth:.2f}" if split.significant else f"weak valley {split.depth:.2f}"
