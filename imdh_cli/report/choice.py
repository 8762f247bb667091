"""How many clusters, how sure that is, and in words why: what the terminal, the page and JSON all say."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from imdh_cli.core.pruning import Pruning, doubt_of
from imdh_cli.core.pruning.cut import children, clusters_after
from imdh_cli.core.pruning.valleys import beyond_empty
from imdh_cli.model.metadata import leant_on
from imdh_cli.report import notations
from imdh_cli.report.suspects import doubt
from imdh_cli.words import count, listing

if TYPE_CHECKING:
    from imdh_cli.model import Model

DOUBTS = {
    None: "",
    "codes": "Not clear where columns of few values tell clusters apart.",
    "pile": "Not clear where the rows of one value, as 0, are told from the rest: "
    "it may stand for a missing one.",
}
HUGE = 1e300  # stands for what is too large for a float


@dataclass(frozen=True)
class Alternative:
    """Another number of clusters with something to say for it."""

    clusters: int
    reason: str


@dataclass(frozen=True, eq=False)
class Choice:
    """How many clusters, and how sure."""

    clusters: int
    requested: int | str
    clarity: str  # clear, close, none, given
    natural: int  # what the program chooses by itself
    natural_clarity: str
    alternatives: tuple[Alternative, ...]
    largest: int  # leaves in use
    credit: np.ndarray  # (largest,) separation given up by stopping at K = 1..largest
    total_ss: np.ndarray  # (largest,) within-cluster sum of squares at K, in z
    votes: np.ndarray  # (largest,) of the elbow rule
    valleys: int  # clusters that all significant valleys make
    doubt: str = ""  # why it cannot be clear, as a sentence
    by_size: bool = False  # there are valleys, but no cut through them leaves clusters of the least size
    aside: str = ""  # where no valley counts: rows that stand apart nevertheless, as a sentence

    @property
    def runner_up(self) -> int | None:
        """The number to look at next: the program's own, or the alternative with most votes."""
        if self.clarity == "given" and self.natural != self.clusters:
            return self.natural
        return self.alternatives[0].clusters if self.alternatives else None

    @property
    def given_up(self) -> np.ndarray:
        """(largest,) the credit as a share of what one cluster would give up, 1 at K = 1."""
        top = self.credit[0]
        return self.credit / top if top > 0.0 else np.zeros(len(self.credit))

    @property
    def unexplained(self) -> np.ndarray:
        """(largest,) the sum of squares as a share of that of one cluster."""
        top = self.total_ss[0]
        return self.total_ss / top if top > 0.0 else np.zeros(len(self.total_ss))

    @property
    def found(self) -> str:
        """The clarity, where all significant valleys were asked for and there are none, is none."""
        return "none" if self.requested == "valleys" and self.valleys == 1 else self.clarity

    @property
    def headline(self) -> str:
        """In a few words."""
        clusters = count(self.clusters, "cluster")
        if self.found == "none":
            return "no clear number of clusters"
        if self.requested == "valleys":
            return f"{clusters}, by significant valleys"
        return clusters + {"clear": ", a clear choice", "close": ", a close choice"}.get(
            self.clarity, ", as asked for"
        )

    @property
    def sentence(self) -> str:
        """In words, with the reasons."""
        others = listing([f"{a.clusters} ({a.reason})" for a in self.alternatives])
        if self.clarity == "close" and self.doubt:
            return f"{self.doubt} Other numbers: {others}." if others else self.doubt
        if self.clarity == "clear":
            return (
                "Every valley deeper than chance is a boundary between two of these clusters, and "
                "a stricter and a laxer test find the same number."
            )
        if self.clarity == "close":
            if not others:
                return (
                    "A cluster lies at the tree's last level and may hold more than one: "
                    "try a larger --depth."
                )
            return f"Other numbers are as defensible: {others}."
        if self.found == "none" and self.by_size:
            return (
                "There are valleys deeper than chance makes one, but no cut through them leaves "
                "clusters of the least size (--min-size), so all rows are one cluster."
            )
        if self.found == "none" and self.largest == 1:
            return "No cut divides these rows: they are equal, or too few to learn from."
        if self.found == "none":
            return (
                "No cut runs through a valley deeper than chance makes one, so all rows are one "
                f"cluster. {self.aside or 'Any larger number would be a partition, not a finding.'}"
            )
        own = {
            "clear": f"would choose {self.natural}, a clear choice",
            "close": f"would choose {self.natural}, a close choice",
        }.get(self.natural_clarity, "finds no clear number of clusters")
        how = (
            "All significant valleys were asked for"
            if self.requested == "valleys"
            else "The number was given"
        )
        if self.requested == "valleys" and self.clusters < min(self.valleys, self.largest):
            how += f", and no more than {count(self.clusters, 'cluster')} may be chosen"
        if self.natural == self.clusters and self.natural_clarity != "none":
            return f"{how}; {self.clusters} is also what the program chooses by itself."
        return f"{how}; by itself the program {own}."

    def to_dict(self) -> dict[str, Any]:
        """As the JSON report has it."""
        return {
            "clusters": self.clusters,
            "requested": self.requested,
            "clarity": self.clarity,
            "natural": self.natural,
            "natural_clarity": self.natural_clarity,
            "runner_up": self.runner_up,
            "alternatives": [vars(a).copy() for a in self.alternatives],
            "largest": self.largest,
            "sentence": self.sentence,
            "curve": [
                {"clusters": k, "credit": q, "given_up": g, "total_ss": ss, "unexplained": u, "votes": v}
                for k, (q, g, ss, u, v) in enumerate(
                    zip(
                        self.credit.tolist(),
                        self.given_up.tolist(),
                        self.total_ss.tolist(),
                        self.unexplained.tolist(),
                        self.votes.tolist(),
                        strict=True,
                    ),
                    start=1,
                )
            ],
        }


def own_choice(model: Model) -> Pruning:
    """What the program chooses for the tree of a model when it is not told how many clusters to make."""
    return model.pruned(replace(model.params.prune, clusters="auto"))


def finite(values: np.ndarray) -> np.ndarray:
    """The same numbers; what only a forged model can make too large for a float is a very large one."""
    return np.nan_to_num(values, nan=0.0, posinf=HUGE, neginf=-HUGE)


def choice_of(model: Model, natural: Pruning) -> Choice:
    """The choice that a model holds, set against the program's own (`own_choice`)."""
    chosen, suspects = model.metadata["choice"], model.metadata.get("suspects", ())
    valleys = int(np.count_nonzero(natural.kept)) + 1
    deep = int(np.count_nonzero(natural.significant)) + 1
    reasons = {deep: "without cuts through a cluster", valleys: "every significant valley"}
    votes = np.asarray(natural.votes)
    others = sorted(
        {int(k) for k in chosen["alternatives"]} - {model.n_clusters},
        key=lambda k: (-votes[k - 1] if k <= len(votes) else 0, abs(k - model.n_clusters)),
    )
    return Choice(
        clusters=model.n_clusters,
        requested=chosen["requested"],
        clarity=chosen["clarity"],
        natural=natural.n_clusters,
        natural_clarity=natural.clarity,
        alternatives=tuple(
            Alternative(k, reasons.get(k, "a laxer test" if k > valleys else "a stricter test"))
            for k in others
        ),
        largest=natural.largest,
        credit=finite(natural.credit),
        total_ss=finite(natural.total_ss),
        votes=votes,
        valleys=valleys,
        doubt=doubt(suspects) if suspects else _inherent(model),
        by_size=natural.by_size,
        aside=_aside(model, natural),
    )


def _inherent(model: Model) -> str:
    """What no choice of these clusters can be clear for."""
    if leant := leant_on(model.metadata, model.feature_names, model.directions, model.cluster_of_leaf):
        return notations.doubt(leant)
    piles = model.extras.get("histograms_on_piles")
    known = model.histograms, piles, model.noise_shares, model.piles_shared
    return DOUBTS[doubt_of(model.cluster_of_leaf, *known)]


def _aside(model: Model, natural: Pruning) -> str:
    """The largest small group beyond an empty valley that no cluster was made of, in words."""
    lesser = np.minimum(*children(model.counts))
    found = beyond_empty(natural.depths, lesser)
    i = int(np.argmax(found))
    if natural.kept.any() or not found[i]:
        return ""
    step = int(np.argmax(natural.merge_order == i + 1))
    k = clusters_after(natural.merge_order, model.counts, max(1, model.params.prune.min_size))[step]
    few = "too few different ones" if model.copies > 0.0 else "too few"
    return (
        f"But {count(int(lesser[i]))} stand apart beyond an empty valley at node {i + 1}, {few} to count "
        f"as a finding: -k {k} makes them a cluster."
    )
