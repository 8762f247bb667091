"""Summary -> pictures for a paper: the tree, one split, the choice of K, the profiles (matplotlib).

The extra `plots` brings matplotlib; it is imported here only when a picture is asked for. The same
summary gives the same bytes: no date, no random names.
"""

from __future__ import annotations

import io
import os
import warnings
from collections.abc import Callable
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from imdh_cli.compiled.histogram import EDGES, PER_SD
from imdh_cli.errors import UsageError
from imdh_cli.report.curve import curve_length, curve_of
from imdh_cli.report.draw import nice_numbers
from imdh_cli.report.figures import Split, Summary
from imdh_cli.report.layout import Frame, Place, places
from imdh_cli.report.profiles import cluster_order, feature_order, telling_features
from imdh_cli.report.scatter import Scatter
from imdh_cli.report.words import percent, signed
from imdh_cli.words import count, short

if TYPE_CHECKING:
    from collections.abc import Iterator

Kind = Literal["tree", "node", "curve", "profiles"]
FORMATS = ("png", "svg", "pdf")
CLUSTERS = 128  # lines of the tree, columns of the heat map
FEATURES = 60  # rows of the heat map
LOADINGS = 10  # bars at one split
DPI = 200
INK, MUTED, RULE, LEFT, RIGHT = "#1a1e24", "#59626d", "#dde1e6", "#2f7dc9", "#d8741c"
# From low to high, the colours of the page: blue and orange, which every eye can tell apart.
SCALE = ["#0c4a86", "#2770b8", "#72a9de", "#aecdec", "#dbe8f5", "#f4f4f3"]
SCALE += ["#fbe8d6", "#f6cca3", "#eda664", "#d8741c", "#91450a"]


_NODE = "draw a node: --node 1"
_MORE = "choose more clusters: imdh prune MODEL -k N"


def check(summary: Summary, path: str | os.PathLike[str], kind: Kind, node: int | None) -> str:
    """Refuse now what could not be drawn later, and tell the format: its suffix without the dot.

    Raises
    ------
    UsageError
        An unknown suffix, no such node, nothing to draw, or matplotlib is not installed.
    """
    name = os.fspath(path)
    format = os.path.splitext(name)[1][1:].lower()
    if format not in FORMATS:
        raise UsageError(f"{name}: no picture is written in that format", "name it .png, .svg or .pdf")
    _check_content(summary, kind, node)
    with _matplotlib():
        return format


def _check_content(summary: Summary, kind: Kind, node: int | None) -> None:
    """Is there anything to draw?"""
    if kind == "node":
        if node is None:
            raise UsageError("a picture of a node needs its number", "add --node 1")
        summary.split(node)
    elif kind == "tree":
        if not summary.splits:
            raise UsageError(
                "there is no tree to draw: all rows are one cluster", f"{_NODE}; or first {_MORE}"
            )
    elif kind == "curve":
        values, _ = curve_of(summary)
        if len(values) < 3 or values[0] <= 0.0:
            raise UsageError("there is no curve to draw: no number of clusters is better than one", _NODE)
    elif sum(c.z is not None for c in summary.clusters) < 2:
        raise UsageError(
            "there are no profiles to compare: fewer than two clusters are described", f"first {_MORE}"
        )


def draw(
    summary: Summary,
    format: str,
    kind: Kind = "tree",
    node: int | None = None,
    *,
    sample: Scatter | None = None,
) -> bytes:
    """The picture as the bytes of a file.

    Parameters
    ----------
    format : one of FORMATS
    kind : what to draw
    node : for kind "node": the split, by its number
    sample : for kind "node": rows to draw in the plane of the split
    """
    _check_content(summary, kind, node)
    with _matplotlib() as figure_class:
        if kind == "node":
            assert node is not None
            figure = _node(figure_class, summary, summary.split(node), sample)
        else:
            drawing: Callable[[Any, Summary], Any] = {
                "tree": _tree,
                "curve": _curve,
                "profiles": _profiles,
            }[kind]
            figure = drawing(figure_class, summary)
        out = io.BytesIO()
        date = {"png": {}, "svg": {"Date": None}, "pdf": {"CreationDate": None}}[format]
        figure.savefig(out, format=format, dpi=DPI, metadata=date, bbox_inches="tight", pad_inches=0.1)
        return out.getvalue()


@contextmanager
def _matplotlib() -> Iterator[Any]:
    """matplotlib's Figure, with our style and without its state; or what to type to get it."""
    try:
        import matplotlib
        from matplotlib.figure import Figure
    except ImportError as error:
        raise UsageError("pictures need matplotlib", "pip install 'imdh[plots]'") from error
    style: dict[Any, Any] = {
        "font.size": 9,
        "axes.edgecolor": MUTED,
        "axes.labelcolor": INK,
        "axes.spines.top": False,
        "axes.spines.right": False,
        "xtick.color": MUTED,
        "ytick.color": MUTED,
        "text.color": INK,
        "svg.hashsalt": "imdh",
        "pdf.fonttype": 42,  # text stays text
        "text.usetex": False,
        "text.parse_math": False,  # a dollar sign in a name is a dollar sign
    }
    with matplotlib.rc_context(style), warnings.catch_warnings():
        # A name in letters that the font does not have is drawn as boxes: no reason to stop.
        warnings.filterwarnings("ignore", message="Glyph .* missing from")
        yield Figure


def _name(text: str, width: int = 24) -> str:
    return short(text, width)


# --- the tree ---------------------------------------------------------------------------------------

_THUMB = 0.74  # width of a density, of the distance of two levels


def _tree(figure_class: Any, summary: Summary) -> Any:
    at = {place.side.node: place for place in places(summary, CLUSTERS)}
    splits = [place for place in at.values() if place.split is not None]
    ends = [place for place in at.values() if place.split is None]
    levels = max(place.level for place in splits) + 1
    figure = figure_class(figsize=(1.25 * levels + 3.2, 0.36 * len(ends) + 0.4))
    axes = figure.add_axes((0.0, 0.0, 1.0, 1.0))
    axes.set_axis_off()
    # One unit across is a level, one down is the line of an end.
    axes.set_xlim(-0.05, levels + 2.6)
    axes.set_ylim(max(place.line for place in ends) + 0.6, -0.4)
    for place in splits:
        _branches(axes, place, at, float(levels))
        _thumb(axes, summary, place)
    largest = max(place.side.rows for place in ends)
    for place in ends:
        _end(axes, summary, place, float(levels), largest)
    return figure


def _branches(axes: Any, place: Place, at: dict[int, Place], last: float) -> None:
    assert place.split is not None
    y, start, turn = place.line, place.level + _THUMB + 0.02, place.level + _THUMB + 0.1
    for side, colour in ((place.split.left, LEFT), (place.split.right, RIGHT)):
        child = at[side.node]
        end = last if child.split is None else child.level - 0.02
        axes.plot([start, turn, turn, end], [y, y, child.line, child.line], color=colour, lw=1.2)


def _thumb(axes: Any, summary: Summary, place: Place) -> None:
    split = place.split
    assert split is not None
    frame = Frame.of(split, _THUMB)
    ground, height = place.line + 0.42, 0.8
    x, f = frame.sampled(split, 161)
    f = height * f / (f.max() or 1.0)
    alpha = 1.0 if split.significant else 0.35
    cut = place.level + frame.x(0.0)
    for colour, here in ((LEFT, x <= 0.0), (RIGHT, x >= 0.0)):
        across = [place.level + frame.x(float(value)) for value in x[here]]
        axes.fill_between(across, ground - f[here], ground, color=colour, alpha=alpha, lw=0)
    axes.plot([place.level, place.level + _THUMB], [ground, ground], color=MUTED, lw=0.6)
    axes.plot([cut, cut], [ground - height, ground], color=INK, lw=1.0)
    carried = split.carriers(1)
    small = {"fontsize": 7}
    top = ground - height - 0.08
    axes.text(place.level, top, str(split.node), weight="bold", va="bottom", **small)
    axes.text(place.level + _THUMB, top, f"{split.depth:.2f}", ha="right", va="bottom", **small)
    name = _name(summary.features[carried[0]].name, 16)
    axes.text(place.level + _THUMB / 2, ground + 0.07, name, ha="center", va="top", color=MUTED, **small)


def _end(axes: Any, summary: Summary, place: Place, x: float, largest: int) -> None:
    side, y = place.side, place.line
    one = side.n_clusters == 1
    axes.text(x + 0.06, y, side.labels(), weight="bold", va="center")
    axes.barh(y, 0.5 * side.rows / largest, height=0.3, left=x + 0.4, color=MUTED, alpha=0.5)
    share = side.rows / max(1, summary.rows.counted)
    axes.text(x + 0.95, y, percent(share), va="center", fontsize=8)
    told = ""
    if one and (c := summary.clusters[side.first - 1]).z is not None:
        told = "  ".join(
            ("+ " if c.z[j] > 0 else "\u2212 ") + _name(summary.features[j].name, 14) for j in c.marks[:2]
        )
    if one and c.name:
        told = f"{_name(c.name, 20)}  {told}"
    if told:
        axes.text(x + 1.4, y, told, va="center", fontsize=8, color=MUTED)


# --- one split --------------------------------------------------------------------------------------


def _node(figure_class: Any, summary: Summary, split: Split, sample: Scatter | None) -> Any:
    figure = figure_class(figsize=(8.6, 3.1 if sample is None else 4.9), layout="constrained")
    rows = 1 if sample is None else 2
    grid = figure.add_gridspec(rows, 2, width_ratios=(1.75, 1.0), height_ratios=(1.0, 1.25)[-rows:])
    axes = figure.add_subplot(grid[rows - 1, 0])
    frame = Frame.of(split, 1.0)
    bars = PER_SD * split.histogram / max(1, int(split.histogram.sum()))
    axes.stairs(bars, EDGES, color=MUTED, lw=0.6, alpha=0.7)
    x, f = frame.sampled(split, 161)
    for colour, here in ((LEFT, x <= 0.0), (RIGHT, x >= 0.0)):
        axes.fill_between(x[here], f[here], color=colour, alpha=0.75 if split.significant else 0.4, lw=0)
    axes.axvline(0.0, color=INK, lw=1.4)
    axes.set_xlim(frame.low, frame.high)
    top = max(float(f.max()), 1e-12)
    axes.set_ylim(0.0, 1.05 * max(1.1 * top, min(float(bars.max()), 2.0 * top)))  # a lone bar is cut off
    axes.set_xlabel("distance from the cut, in sds of the projections")
    axes.set_ylabel("density")
    for side, align in ((split.left, "left"), (split.right, "right")):
        axes.set_title(f"node {side.node}: {count(side.rows)}, {side.clusters()}", loc=align, fontsize=8)
    strength = "valley" if split.significant else "weak valley"
    title = f"Node {split.node}: {count(split.rows)}, {strength} {split.depth:.2f}"
    if sample is not None:
        _sample(figure.add_subplot(grid[0, 0], sharex=axes), sample)
    figure.suptitle(title, x=0.02, ha="left", fontsize=10, weight="bold")
    _loadings(figure.add_subplot(grid[:, 1]), summary, split)
    return figure


def _sample(axes: Any, sample: Scatter) -> None:
    left = sample.across < 0.0
    for here, colour in ((left, LEFT), (~left, RIGHT)):
        axes.scatter(sample.across[here], sample.up[here], s=7, color=colour, alpha=0.6, lw=0)
    axes.axvline(0.0, color=INK, lw=1.4)
    axes.set_ylabel("along the cut")
    axes.set_title(f"{count(len(sample.across))} of {sample.rows:,}", loc="left", fontsize=8)
    axes.tick_params(labelbottom=False)


def _loadings(axes: Any, summary: Summary, split: Split) -> None:
    order = np.argsort(-split.weights, kind="stable")[:LOADINGS]
    values = split.loadings[order]
    y = np.arange(len(order))
    axes.barh(y, values, height=0.6, color=[RIGHT if value > 0 else LEFT for value in values])
    axes.axvline(0.0, color=MUTED, lw=0.8)
    axes.set_yticks(y, [_name(summary.features[j].name) for j in order])
    axes.set_ylim(max(len(order), 6) - 0.5, -0.5)
    reach = 1.08 * float(np.abs(values).max())
    axes.set_xlim(-reach, reach)
    axes.tick_params(axis="y", length=0)
    axes.spines["left"].set_visible(False)
    axes.set_xlabel("loading (larger on the right: +)")


# --- the choice of K --------------------------------------------------------------------------------


def _curve(figure_class: Any, summary: Summary) -> Any:
    choice = summary.choice
    values, meaning = curve_of(summary)
    n = curve_length(choice, len(values))
    figure = figure_class(figsize=(6.2, 3.1), layout="constrained")
    axes = figure.add_subplot()
    k = np.arange(1, n + 1)
    axes.plot(k, 100.0 * values[:n], color=INK, lw=1.4, marker="o" if n <= 64 else "", ms=3)
    for other in {a.clusters for a in choice.alternatives} | {choice.runner_up}:
        if other and other <= n:
            axes.plot([other], [100.0 * values[other - 1]], "o", ms=8, mfc="white", mec=RIGHT, mew=1.8)
            place = (other, 100.0 * values[other - 1])
            axes.annotate(str(other), place, xytext=(6, 5), textcoords="offset points")
    if choice.clusters <= n:
        height = 100.0 * values[choice.clusters - 1]
        axes.plot([choice.clusters], [height], "o", ms=9, color=LEFT)
        axes.annotate(
            f"{choice.clusters} chosen",
            (choice.clusters, height),
            xytext=(0, 36),
            textcoords="offset points",
            ha="right" if choice.clusters > 0.8 * n else "left",
            weight="bold",
            arrowprops={"arrowstyle": "-", "color": LEFT, "lw": 1.0, "relpos": (0.0, 0.0)},
        )
    axes.set_xticks(nice_numbers(n))
    axes.set_ylim(-4.0, 104.0)
    axes.grid(axis="y", color=RULE)
    axes.set_xlabel("number of clusters")
    axes.set_ylabel("variance left, %" if meaning.startswith("Variance") else "separation given up, %")
    axes.set_title(choice.headline, loc="left", fontsize=10, weight="bold")
    return figure


# --- profiles ---------------------------------------------------------------------------------------


def _profiles(figure_class: Any, summary: Summary) -> Any:
    from matplotlib.colors import LinearSegmentedColormap

    rows_of = {c.label: c.rows for c in summary.clusters}
    largest = set(sorted(rows_of, key=lambda k: -rows_of[k])[:CLUSTERS])
    order = [k for k in cluster_order(summary) if k in largest]
    z = np.array([summary.clusters[k - 1].z for k in order])
    features = feature_order(z, telling_features(summary, FEATURES))
    cells = z[:, features].T
    few = len(order) <= 24
    figure = figure_class(
        figsize=(2.6 + (0.42 if few else 0.15) * len(order), 1.0 + 0.24 * len(features)),
        layout="constrained",
    )
    axes = figure.add_subplot()
    colours = LinearSegmentedColormap.from_list("profiles", SCALE, N=255)
    image = axes.imshow(cells, cmap=colours, vmin=-2.5, vmax=2.5, aspect="auto", interpolation="nearest")
    axes.set_xticks(range(len(order)), [str(k) for k in order], rotation=0 if few else 90)
    axes.set_yticks(
        range(len(features)),
        [_name(summary.features[j].name, 32) for j in features],
    )
    axes.tick_params(length=0)
    axes.tick_params(top=True, labeltop=True, bottom=False, labelbottom=False)
    axes.set_xlabel("cluster", loc="left")
    axes.xaxis.set_label_position("top")
    for spine in axes.spines.values():
        spine.set_visible(False)
    if few:
        for (i, j), value in np.ndenumerate(cells):
            dark = value < -1.75 or value > 2.1
            text = signed(float(value)).replace("-", "\u2212")
            axes.text(j, i, text, ha="center", va="center", fontsize=6.5, color="white" if dark else INK)
    bar = figure.colorbar(image, ax=axes, shrink=min(1.0, 8.0 / len(features)), aspect=18, extend="both")
    bar.set_label("effect, in sds of all rows")
    bar.outline.set_visible(False)
    return figure
