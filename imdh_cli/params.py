"""Every parameter, said once: the command fills these, the pipeline passes them, the model keeps them.

The letters beside a field are those of Hofmeyr's paper.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, field, fields
from typing import Any, ClassVar, Literal

from imdh_cli import formats
from imdh_cli.errors import UsageError
from imdh_cli.option import option

START_DEPTH = 8  # of a tree whose depth is not given
MAX_DEPTH = 14  # 2^14 leaves; the tree arrays grow with it
Clusters = int | Literal["auto", "valleys"]
Missing = Literal["skip", "error", "mean"]
Extra = Literal["node", "leaf", "margin", "distance", "runner_up", "path"]


@dataclass(frozen=True)
class SourceParams:
    """How the input files are read; never changes which hyperplanes are right, only what the cells say."""

    SECTION: ClassVar[str] = "Reading DATA"
    null_values: tuple[str, ...] | None = option(
        None,
        "A number or text that means missing, or column=value; beside the empty cell and, in CSV, NA, null "
        "and the like. Repeatable; a model remembers it.",
        "--null-value",
        repeatable=True,
    )  # None: the usual spellings
    delimiter: str | None = option(
        None, "CSV: between cells.", default="told by a first line sep=; or from the rows, among , ; | tab"
    )
    decimal: str = option(".", "CSV: the decimal point.", default="a point", metavar="CHAR")
    encoding: str = option("utf-8", "CSV: of the text; a byte order mark wins.")
    header: bool = option(True, "CSV: the first row is data.", "--no-header")
    format: str | None = option(None, "Of the input.", default="told from its content", choices=formats.NAMES)
    on_bad_row: Literal["error", "skip"] = option(
        "error",
        "A CSV row of another length, or with text where a number belongs, or a list of another length: stop "
        "and name it, or count it and label it -1.",
    )
    max_rows: int | None = option(None, "Read no more rows than this.", min=1)
    batch_rows: int = option(65536, "Rows read at a time; no result depends on it.", min=1, neutral=True)
    threads: int = option(
        1,
        "No result depends on it.",
        default="the processors this process may use",
        min=1,
        neutral=True,
    )


@dataclass(frozen=True)
class FeatureParams:
    """Which columns are features, and what to do with cells that hold no number."""

    SECTION: ClassVar[str] = "Columns"
    columns: tuple[str, ...] | None = option(
        None, "Features, by name.", "-c", "--columns", default="all numeric columns"
    )
    exclude: tuple[str, ...] = option((), "Columns that are no features.", "-x", "--exclude")
    ids: tuple[str, ...] = option((), "No features, but carried to the labels.", "--id")
    categorical: Literal["error", "ignore", "onehot"] = option(
        "ignore", "Text columns; onehot makes a 0/1 feature of each level, at most 100 a column."
    )
    onehot: tuple[str, ...] = option(
        (), "Columns of codes, numbers or text, that become 0/1 features whatever --categorical says."
    )
    parse: tuple[str, ...] = option(
        (),
        "Columns of text that hold numbers; these may have thousands separators, and a minus that is not "
        "ASCII.",
    )
    log: tuple[str, ...] = option(
        (),
        "Columns of very unequal amounts, such as money or counts: learned from as sign(x) log(1 + |x|). A "
        "model remembers it.",
    )
    missing: Missing = option(
        "skip",
        "A cell that is empty, NaN, null, infinite or beyond 1e100: leave the row out (label -1), stop, or "
        "put the training mean there.",
        default="skip; with --update, as MODEL was fitted",
        section=SourceParams.SECTION,
    )


@dataclass(frozen=True)
class LearnParams:
    """The learning rule (paper, sections 2 and 4)."""

    SECTION: ClassVar[str] = "Learning rule"
    depth: int | Literal["auto"] = option(
        "auto",
        "Split levels: up to 2^depth leaves. A number is kept to.",
        default="auto, 8, and 10 where rows are met again and the eighth level still divides clusters",
        min=1,
        max=MAX_DEPTH,
        section="Method",
    )  # D
    alpha: float = option(0.5, "Free distance of a cut from the mean, in sd.", min=0)
    penalty: float = option(10.0, "C: on a cut farther away.", min=0)
    bandwidth: float = option(1.0, "Factor of the kernel's bandwidth s t^-q.", min=0, above=True)  # delta
    bandwidth_decay: float = option(0.2, "q of the bandwidth.", min=0, max=1)
    learning_decay: float = option(1.0, "r of the steps t^-r.", min=0, max=2)
    rate: float = option(1.0, "Factor of the steps.", min=0)  # gamma
    clamp: float = option(5.0, "A cut stays within clamp alpha sd of the mean; 0: free.", min=0)
    step: Literal["scaled", "paper"] = option("scaled", "scaled: steps free of units; paper: as published.")
    start: Literal["random", "axis"] = "random"  # the first direction of each split
    reseat: Literal["yes", "no"] = option("yes", "Cuts that found no valley move to one that others found.")
    dither: Literal["yes", "no"] = option("yes", "Values that come again spread over the room around them.")

    @property
    def levels(self) -> int:
        """Those that a tree begins with; of `auto` it may become deeper."""
        return START_DEPTH if self.depth == "auto" else self.depth


@dataclass(frozen=True)
class PruneParams:
    """From the tree to clusters (paper, section 3)."""

    SECTION: ClassVar[str] = "Number of clusters"
    clusters: Clusters = option("auto", "How many clusters.", "-k", "--clusters", min=1)
    weight: Literal["valley", "ss"] = option(
        "valley", "What a split is worth: sum of squares and valley, or sum of squares alone."
    )
    elbow: Literal["weighted", "paper"] = option("weighted", "The rule for the corner of the curve.")
    min_size: int = option(1, "A node with fewer rows is no cluster of its own.", min=1)
    max_clusters: int | None = option(None, "No more than this when chosen.", min=1)

    def check(self) -> None:
        """UsageError when more clusters are asked for than are allowed."""
        k, most = self.clusters, self.max_clusters
        if isinstance(k, int) and most is not None and k > most:
            raise UsageError(
                f"-k {k} is more than --max-clusters {most} allows", "leave one of the two options out"
            )


@dataclass(frozen=True)
class FitParams:
    """All of `imdh fit`."""

    SECTION: ClassVar[str] = "Method"
    learn: LearnParams = field(default_factory=LearnParams)
    prune: PruneParams = field(default_factory=PruneParams)
    passes: int | Literal["auto"] = option(
        "auto",
        "Readings to learn from.",
        default="auto, 4 up to 200,000 rows, 2 up to a million",
        min=1,
        max=10_000,
    )
    n_init: int | Literal["auto"] = option(
        "auto",
        "Trees learned from different starts, of which the one is kept that the others agree with and whose "
        "valleys are worth most.",
        default="auto, 4 up to 200,000 rows, else 1",
        min=1,
        max=100,
    )
    recount: Literal["auto", "yes", "no"] = option(
        "auto",
        "Count all rows again under the finished tree, else 100,000 drawn from them.",
        default="auto, up to a million rows",
    )
    scale: Literal["standard", "none"] = option(
        "standard", "standard: each feature to mean 0, sd 1, cut at 10 sd."
    )
    shuffle: Literal["auto", "buffer", "none"] = option(
        "auto", "The order rows are met in; auto reads a large file from many places at once."
    )
    buffer_rows: int | None = option(
        None, "Rows that the shuffle buffer holds.", default="200000, or what 512 MB hold", min=1
    )
    seed: int = option(0, "Of the start and the shuffle.", min=0)
    sample: int | None = option(
        None,
        "Learn from so many rows, drawn uniformly from all of DATA, which is read once; of hundreds of row "
        "groups or files 256 or more are read, drawn from all over DATA, that hold twice as many rows. The "
        "figures are of the rows learned from, or with --recount yes of all, which are then all read.",
        default="all rows",
        min=1,
    )

    def check(self) -> None:
        """UsageError when more clusters are asked for than any tree of this depth has."""
        k, depth = self.prune.clusters, self.learn.levels
        if isinstance(k, int) and k > 2**depth:
            deeper = (k - 1).bit_length()
            hint = f"use -k {2**depth} or fewer" + (f", or --depth {deeper}" if deeper <= MAX_DEPTH else "")
            raise UsageError(f"-k {k}: a tree of depth {depth} has at most {2**depth} leaves", hint)

    def to_dict(self) -> dict[str, Any]:
        """Plain values, as the model's metadata keep them."""
        return asdict(self)

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> FitParams:
        """The inverse of `to_dict`; keys this version does not know are ignored."""
        own = _known(cls, values)
        learn, prune = own.pop("learn", {}), own.pop("prune", {})
        return cls(
            LearnParams(**_known(LearnParams, learn)), PruneParams(**_known(PruneParams, prune)), **own
        )


@dataclass(frozen=True)
class AssignParams:
    """What `imdh assign` writes beside the rows it is told to keep."""

    clusters: int | None = option(None, "Cut at N, without changing MODEL.", "-k", "--clusters", min=1)
    keep: tuple[str, ...] = option(
        (), "Columns to carry along. Those of a CSV are text, byte for byte, in any output."
    )
    extra: tuple[Extra, ...] = option(
        (),
        "More about each row: node, leaf (tree nodes), margin (from the nearest cut on its path, in "
        "projected sd), distance (to its cluster's mean, in z), runner_up (the cluster beyond the nearest "
        "cut), path (the nodes passed, 1/3/6).",
        "--with",
    )
    name: str = option("cluster", "Of the label column.")
    names: bool = option(False, "Also the name that imdh prune --rename gave to the cluster.")

    @property
    def columns(self) -> list[str]:
        """What is written beside the columns that are kept, in order."""
        return [self.name, *([f"{self.name}_name"] if self.names else []), *self.extra]

    def check(self) -> None:
        """UsageError when two columns of the output would have one name."""
        if not self.name:
            raise UsageError("--name: the label column has an empty name")
        if len(set(self.columns)) < len(self.columns):
            raise UsageError(f"--name {self.name}: --with writes a column of this name")
        for name in self.columns:
            if name in self.keep:
                raise UsageError(
                    f'the input has a column "{name}", too, which is to be kept',
                    f"name the label column otherwise: --name {name}_found"
                    if name == self.name
                    else "leave it out of --keep",
                )


def _known(cls: type, values: dict[str, Any]) -> dict[str, Any]:
    names = {f.name for f in fields(cls)}
    return {k: v for k, v in values.items() if k in names}


# The method as first released, which the paper's tables show. That release had no 1/sqrt(2 pi) in its
# normal density: a rate of sqrt(2 pi) and a penalty of 10 / sqrt(2 pi) say the same.
PAPER_PRESET = FitParams(
    learn=LearnParams(
        depth=7,
        alpha=0.1,
        penalty=3.98942,
        rate=2.50663,
        clamp=1.0,
        step="paper",
        start="axis",
        reseat="no",
        dither="no",
    ),
    prune=PruneParams(weight="ss", elbow="paper"),
    passes=1,
    n_init=1,
    recount="yes",
)
