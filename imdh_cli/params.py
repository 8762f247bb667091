"""Every parameter, said once: the command fills these, the pipeline passes them, the model keeps them.

The letters beside a field are those of Hofmeyr's paper.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, field, fields
from typing import Any, Literal

MAX_DEPTH = 14  # 2^14 leaves; the tree arrays grow with it
Clusters = int | Literal["auto", "valleys"]


@dataclass(frozen=True)
class SourceParams:
    """How the input files are read; never changes which hyperplanes are right, only what the cells say."""

    format: str | None = None  # of `formats.NAMES`; None: told by content, then suffix
    delimiter: str | None = None  # None: sniffed among , ; tab |
    decimal: str = "."
    encoding: str = "utf-8"
    header: bool = True
    null_values: tuple[str, ...] | None = None  # None: the usual spellings
    on_bad_row: Literal["error", "skip"] = "error"
    max_rows: int | None = None
    batch_rows: int = 65536
    threads: int = 1


@dataclass(frozen=True)
class FeatureParams:
    """Which columns are features, and what to do with cells that hold no number."""

    columns: tuple[str, ...] | None = None  # None: all numeric columns
    exclude: tuple[str, ...] = ()
    ids: tuple[str, ...] = ()  # never features, carried to the labels
    categorical: Literal["error", "ignore", "onehot"] = "ignore"
    missing: Literal["skip", "error", "mean"] = "skip"


@dataclass(frozen=True)
class LearnParams:
    """The learning rule (paper, sections 2 and 4)."""

    depth: int = 8  # D: split levels, 1 to MAX_DEPTH
    alpha: float = 0.5  # distance of the cut from the mean that is free of penalty, in projected sd
    penalty: float = 10.0  # C
    bandwidth: float = 1.0  # delta: h = delta s t^-q
    bandwidth_decay: float = 0.2  # q
    learning_decay: float = 1.0  # r
    rate: float = 1.0  # gamma
    clamp: float = 5.0  # the offset is kept within clamp * alpha * s of the mean; 0: no clamp
    step: Literal["scaled", "paper"] = "scaled"
    start: Literal["random", "axis"] = "random"  # the first direction of each split
    reseat: Literal["yes", "no"] = "yes"  # cuts that found no valley may be moved to one


@dataclass(frozen=True)
class PruneParams:
    """From the tree to clusters (paper, section 3)."""

    clusters: Clusters = "auto"
    weight: Literal["valley", "ss"] = "valley"
    elbow: Literal["weighted", "paper"] = "weighted"
    min_size: int = 1  # a node with fewer rows is no cluster of its own
    max_clusters: int | None = None


@dataclass(frozen=True)
class FitParams:
    """All of `imdh fit`."""

    learn: LearnParams = field(default_factory=LearnParams)
    prune: PruneParams = field(default_factory=PruneParams)
    passes: int | Literal["auto"] = "auto"
    recount: Literal["auto", "yes", "no"] = "auto"
    scale: Literal["standard", "none"] = "standard"
    shuffle: Literal["auto", "buffer", "none"] = "auto"
    buffer_rows: int | None = None  # None: 200,000, or fewer where these would take over 512 MB
    seed: int = 0

    def to_dict(self) -> dict[str, Any]:
        """Plain values, as the model's metadata keep them."""
        return asdict(self)

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> FitParams:
        """The inverse of `to_dict`; keys this version does not know are ignored."""
        plain = {f.name for f in fields(cls)} - {"learn", "prune"}
        return cls(
            learn=LearnParams(**_known(LearnParams, values.get("learn", {}))),
            prune=PruneParams(**_known(PruneParams, values.get("prune", {}))),
            **{k: v for k, v in values.items() if k in plain},
        )


def _known(cls: type, values: dict[str, Any]) -> dict[str, Any]:
    names = {f.name for f in fields(cls)}
    return {k: v for k, v in values.items() if k in names}


# The method as first released, which the paper's tables show. That release had no 1/sqrt(2 pi) in its
# normal density: a rate of sqrt(2 pi) and a penalty of 10 / sqrt(2 pi) say the same.
PAPER_PRESET = FitParams(
    learn=LearnParams(
        depth=7, alpha=0.1, penalty=3.98942, rate=2.50663, clamp=1.0, step="paper", start="axis", reseat="no"
    ),
    prune=PruneParams(weight="ss", elbow="paper"),
    passes=1,
    recount="yes",
)
