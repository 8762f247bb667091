"""A summary -> what to know before believing it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from imdh_cli.report import notations
from imdh_cli.report.figures import Caution, Summary
from imdh_cli.report.suspects import warning
from imdh_cli.report.tails import sentence
from imdh_cli.report.words import percent
from imdh_cli.words import count, listing, printable, quoted

if TYPE_CHECKING:
    from imdh_cli.model import Model

GIANT = 0.9  # one cluster with more than this share of the rows
TINY_ROWS, TINY_SHARE = 10, 0.001  # a cluster with fewer rows, or a smaller share
LOUD = 0.05  # more than this share of the rows left out
CLIPPED = 8.0  # a mean this many sds out: the model sees no farther than 10
NAME = 40  # characters of a name


def cautions(summary: Summary) -> tuple[Caution, ...]:
    """The warnings, the most important first."""
    return tuple(
        Caution(code, message)
        for found in (
            _rows,
            _copies,
            _lookups,
            _suspects,
            _notations,
            _tails,
            _logs,
            _missing_kinds,
            _statistics,
            _giant,
            _tiny,
            _clipped,
            _outliers,
            _constant,
            _columns,
        )
        for code, message in found(summary)
    )


def copies(model: Model) -> str:
    """That rows are copies of others, in words; nothing where they are not."""
    if not model.copies > 0.0:
        return ""
    counted = model.metadata["rows"]["counted"]
    like = round(counted / (1.0 + model.copies * counted))
    return (
        f"many rows are copies of others: {count(counted)} count for about {like:,}, and valleys are "
        "judged as among so many; learning from each row once gives sharper answers"
    )


def lookups(model: Model) -> list[str]:
    """Columns that are looked up from some thing, in words, a sentence for each kind of thing."""
    found = model.lookups
    said = []
    for group in sorted(set(found.groups.tolist())):
        own = found.groups == group
        names = [printable(model.feature_names[f], NAME) for f in found.columns[own]]
        verb, number = "have" if len(names) > 1 else "has", round(float(found.things[own][0]))
        said.append(
            f"{quoted(names)} {verb} the values of about {number:,} things, as shops or patients, that come "
            "again and again: valleys along what belongs to a thing are judged as among so many"
        )
    return said


def _rows(s: Summary) -> Iterator[tuple[str, str]]:
    r = s.rows
    left_out = r.skipped + r.bad
    if not left_out or not r.read:
        return
    why = []
    if r.bad:
        why.append(f"{count(r.bad)} could not be read")
    for kind, counts in (("missing", s.missing), ("infinite or beyond 1e100", s.infinite)):
        found = sorted(((n, c) for c, n in counts.items() if n), key=lambda pair: -pair[0])
        if r.skipped and found:
            cells = listing([f"{printable(c, NAME)} ({n:,})" for n, c in found], 4)
            why.append(f"{kind} in {cells}")
    share = left_out / r.read
    loud = ": more than a twentieth" if share > LOUD else ""
    yield (
        "rows-left-out",
        f"{left_out:,} of {count(r.read)} left out ({percent(share)}{loud})"
        + (f"; {'; '.join(why)}" if why else "")
        + ".",
    )


def _copies(s: Summary) -> Iterator[tuple[str, str]]:
    if s.model is not None and (said := copies(s.model)):
        yield "copies", f"{said[0].upper()}{said[1:]}."


def _lookups(s: Summary) -> Iterator[tuple[str, str]]:
    for said in [] if s.model is None else lookups(s.model):
        yield "lookups", f"{said}."


def _suspects(s: Summary) -> Iterator[tuple[str, str]]:
    for suspect in [] if s.model is None else s.model.metadata.get("suspects", ()):
        text = warning(suspect)
        yield "sentinel", text[0].upper() + text[1:] + "."


def _notations(s: Summary) -> Iterator[tuple[str, str]]:
    for notation in [] if s.model is None else s.model.metadata.get("notations", ()):
        yield "notation", f"{notations.warning(notation)}."


def _tails(s: Summary) -> Iterator[tuple[str, str]]:
    for tail in [] if s.model is None else s.model.metadata.get("tails", ()):
        yield "far-cells", f"{sentence(tail)}."


def _logs(s: Summary) -> Iterator[tuple[str, str]]:
    names = (
        [] if s.model is None else [f.name for f, log in zip(s.features, s.model.logs, strict=True) if log]
    )
    if names:
        yield (
            "logarithms",
            f"{listing([printable(n, NAME) for n in names])}: learned from as sign(x) log(1 + |x|), and so "
            "in the coefficients of cuts. Their means are those of the logarithms, turned back into their "
            "own units, their sds half of what lies between mean - sd and mean + sd.",
        )


def _missing_kinds(s: Summary) -> Iterator[tuple[str, str]]:
    found = [f"{printable(c, NAME)} ({n:,})" for c, n in s.unseen.items() if n]
    if found:
        yield "unseen-levels", f"Levels that the model does not know, counted as none: {listing(found)}."


def _statistics(s: Summary) -> Iterator[tuple[str, str]]:
    some = s.rows.counted < s.rows.used
    if s.statistics == "windowed":
        of = f" are of the last {count(s.rows.counted)} of {s.rows.used:,}," if some else " were"
        yield (
            "windowed",
            f"All figures{of} counted while cuts still moved; imdh prune MODEL DATA counts all rows again.",
        )
    if s.statistics == "sampled" and some:
        yield (
            "sampled",
            f"All figures are of a random sample of {count(s.rows.counted)} of {s.rows.used:,}; "
            "imdh prune MODEL DATA counts all of them.",
        )


def _giant(s: Summary) -> Iterator[tuple[str, str]]:
    largest = max(s.clusters, key=lambda c: c.rows)
    if len(s.clusters) > 1 and largest.share > GIANT:
        yield (
            "giant",
            f"Cluster {largest.label} holds {percent(largest.share)} of the rows: the others are "
            "what stands apart from it.",
        )


def _tiny(s: Summary) -> Iterator[tuple[str, str]]:
    tiny = [
        c
        for c in s.clusters
        if len(s.clusters) > 1 and not c.withheld and (c.rows < TINY_ROWS or c.share < TINY_SHARE)
    ]
    if tiny:
        named = listing([f"{c.label} ({count(c.rows)})" for c in tiny])
        verb = "is" if len(tiny) == 1 else "are"
        noun = "Cluster" if len(tiny) == 1 else "Clusters"
        yield "tiny", f"{noun} {named} {verb} tiny; --min-size sets the least size of a cluster."
    single = [c for c in tiny if c.rows == 1]
    if single:
        yield (
            "single-row",
            f"{count(len(single), 'cluster')} of one row: the mean shown is that row.",
        )
    withheld = [c for c in s.clusters if c.withheld and c.rows]
    if withheld:
        yield (
            "withheld",
            f"{count(len(withheld), 'cluster')} with fewer than {count(s.min_size)} "
            f"({count(sum(c.rows for c in withheld))} together): only counted, not described.",
        )
    empty = [c for c in s.clusters if not c.rows]
    if empty:
        yield "empty", f"{count(len(empty), 'cluster')} of the model without any row counted."


def _clipped(s: Summary) -> Iterator[tuple[str, str]]:
    if not s.clipped:
        return
    names = [printable(f.name, NAME) for f in s.features if f.clipped]
    where = f" in {listing(names, 4)}" if names else ""
    whole = "; those of all rows do not" if names else ""
    verb = "lies" if s.clipped == 1 else "lie"
    yield (
        "clipped",
        f"{count(s.clipped)} {verb} beyond 10 sd{where}: the means and sds"
        f"{' of clusters' if names else ''} count such values as 10 sd{whole}.",
    )


def _outliers(s: Summary) -> Iterator[tuple[str, str]]:
    if s.parameters.get("scale") == "none":
        return  # nothing is cut off
    far = [
        f"{c.label} ({printable(s.features[c.marks[0]].name, NAME)})"
        for c in s.clusters
        if c.z is not None and c.marks and abs(c.z[c.marks[0]]) > CLIPPED
    ]
    if far:
        noun = "Cluster" if len(far) == 1 else "Clusters"
        yield (
            "outliers",
            f"{noun} {listing(far)}: more than {CLIPPED:g} sd from the mean, and the model sees no "
            "farther than 10: outliers, whose true means may lie farther out.",
        )


def _constant(s: Summary) -> Iterator[tuple[str, str]]:
    flat = s.model.flat if s.model is not None else None
    several = {j for j in range(len(s.features)) if flat is not None and flat[1][j]}
    constant = [j for j, f in enumerate(s.features) if not f.sd > 0.0 and j not in several]
    for text, which in (
        ("Constant, so they tell nothing", constant),
        ("Too little spread for the doubles that hold it", sorted(several)),
    ):
        if which:
            yield "constant", f"{text}: {listing([printable(s.features[j].name, NAME) for j in which])}."


def _columns(s: Summary) -> Iterator[tuple[str, str]]:
    if s.left_out:
        named = listing([f"{printable(c, NAME)} ({printable(why, NAME)})" for c, why in s.left_out])
        yield "columns-left-out", f"{count(len(s.left_out), 'column')} left out: {named}."
