"""What `imdh report` is asked for."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Literal

from imdh_cli.cli.command import argument
from imdh_cli.cli.console import OutputOptions
from imdh_cli.cli.inputs import ReadingOptions, is_model
from imdh_cli.option import option

Kind = Literal["tree", "node", "curve", "profiles"]


@dataclass(frozen=True, kw_only=True)
class ReportOptions:
    model: str = argument("MODEL")
    data: tuple[str, ...] = argument("[DATA]...")
    as_json: bool = option(False, "All figures as JSON on stdout.", "--json")
    as_csv: bool = option(False, "One line per cluster and feature.", "--csv")
    tree: bool = option(False, "The whole hierarchy.")
    node: int | None = option(
        None,
        "One split, by its number (the root is 1): shown, drawn by --plot, or added to --json.",
        min=1,
        metavar="I",
    )
    html: str | None = option(
        None,
        "One page for a browser. With DATA it also shows a random sample of the rows at each split.",
        metavar="FILE",
    )
    plot: str | None = option(None, "A picture (.png, .svg, .pdf) of the tree, or of --node.", metavar="FILE")
    kind: Kind | None = option(None, "What --plot draws.")
    truth: str | None = option(None, "Compare with the known classes in a column of DATA.", metavar="COLUMN")
    drift: bool = option(False, "Compare the rows of DATA with those that MODEL was made from.")
    fail_above: float | None = option(
        None,
        "With --drift: exit status 5 where the population stability index is larger.",
        min=0,
        metavar="PSI",
    )
    stability: int | None = option(
        None,
        "Which clusters come back in N refits of random halves of DATA, of at most 200,000 rows each.",
        min=1,
        max=10_000,
        metavar="[N]",
        bare="20",
        default="20 refits where N is left out",
    )
    seed: int = option(0, "Of the halves and the refits of --stability.", min=0)
    min_size: int | None = option(None, "Describe no cluster or node of fewer rows.", min=1)
    reading: ReadingOptions
    out: OutputOptions

    @property
    def other(self) -> str | None:
        """Another model to compare with: one that stands where DATA begin."""
        first = self.data[0] if self.data else None
        slip = os.path.isfile(self.model) and not is_model(self.model)  # MODEL and DATA were exchanged
        return first if first is not None and is_model(first) and not slip else None

    @property
    def rows(self) -> tuple[str, ...]:
        """DATA without that model."""
        return self.data[1:] if self.other else self.data

    @property
    def drawn(self) -> Kind | None:
        """What --plot draws."""
        if self.plot is None:
            return None
        return self.kind or ("tree" if self.node is None else "node")

    @property
    def views(self) -> list[str]:
        """What stdout is to show, by the options that say so; JSON has the tree and the node in it."""
        if self.as_json:
            return ["--json", *(["--csv"] if self.as_csv else [])]
        node = self.node is not None and self.drawn != "node"
        views = {"--csv": self.as_csv, "--tree": self.tree, "--node": node}
        return [name for name, asked in views.items() if asked]
