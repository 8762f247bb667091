"""Figures -> pieces of SVG for the page. Only numbers and escaped text ever become markup.

Colours are classes of the page's style sheet, so that one picture serves light, dark and print.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from markupsafe import Markup, escape

from imdh_cli.report.choice import Choice
from imdh_cli.report.draw import nice_numbers
from imdh_cli.report.figures import Split, Summary
from imdh_cli.report.layout import Frame, Place, places
from imdh_cli.report.words import percent
from imdh_cli.words import cells, count, short

ROW, STEP = 34, 116  # of the tree: height of a cluster's line, width of a level
THUMB = (90, 34)  # of the density at a split of the tree
CARD = (460, 130)  # of the density at a split on its own
SHORT = 14  # columns of a name inside a picture


def tag(name: str, text: str = "", **attributes: object) -> Markup:
    """One element; `class_` and `view_box` style names become the attributes of SVG."""
    parts = [name]
    for key, value in attributes.items():
        key = key.rstrip("_").replace("__", ":").replace("_", "-")
        parts.append(f'{key}="{escape(_number(value))}"')
    inside = text if isinstance(text, Markup) else escape(text)
    head = " ".join(parts)
    return Markup(f"<{head}>{inside}</{name}>") if inside else Markup(f"<{head}/>")


def _number(value: object) -> object:
    return f"{value:.1f}".removesuffix(".0") if isinstance(value, float) else value


# --- densities --------------------------------------------------------------------------------------


def density(split: Split, frame: Frame, height: float, points: int) -> Markup:
    """The two sides of the density as filled shapes and the cut as a line; the ground is at `height`."""
    at, f = frame.sampled(split, points)
    here = float(f[at == 0.0][0])
    top = float(f.max()) or 1.0

    def shape(x: np.ndarray, y: np.ndarray, side: str) -> Markup:
        xs = [frame.x(float(value)) for value in x]
        path = "".join(
            f"{'L' if i else 'M'}{_number(a)} {_number(height * (1.0 - float(b) / top))}"
            for i, (a, b) in enumerate(zip(xs, y, strict=True))
        )
        ends = f"L{_number(xs[-1])} {_number(float(height))}L{_number(xs[0])} {_number(float(height))}Z"
        return tag("path", class_=side, d=path + ends)

    left, right = at < 0.0, at > 0.0
    cut = frame.x(0.0)
    return Markup("").join(
        [
            shape(np.append(at[left], 0.0), np.append(f[left], here), "l"),
            shape(np.insert(at[right], 0, 0.0), np.insert(f[right], 0, here), "r"),
            tag("path", class_="cut", d=f"M{_number(cut)} 0V{_number(float(height))}"),
        ]
    )


def card(split: Split, image: str | None = None, image_height: float = 0.0) -> Markup:
    """The density of one split with an axis; above it, where given, the picture of a sample."""
    width, height = CARD
    frame = Frame.of(split, float(width))
    parts = []
    if image is not None:
        parts.append(
            tag(
                "image",
                href=image,
                x=0,
                y=0,
                width=width,
                height=image_height,
                preserveAspectRatio="none",
            )
        )
        parts.append(tag("path", class_="cut", d=f"M{_number(frame.x(0.0))} 0v{_number(image_height + 8.0)}"))
    ground = image_height + 8.0
    parts.append(tag("g", density(split, frame, height, 96), transform=f"translate(0 {_number(ground)})"))
    base = ground + height
    parts.append(tag("path", class_="axis", d=f"M0 {_number(base)}H{width}"))
    step = 1 if frame.high - frame.low < 6.0 else 2
    for value in range(-4, 5):
        if frame.low <= value <= frame.high:
            x = frame.x(value)
            parts.append(tag("path", class_="axis", d=f"M{_number(x)} {_number(base)}v4"))
            if value % step == 0 and 14.0 <= x <= width - 14.0:
                name = "cut" if value == 0 else f"{value:+d} sd".replace("-", "\u2212")
                parts.append(tag("text", name, class_="tick", x=x, y=base + 17.0))
    label = (
        f"Density of the rows across the cut of node {split.node}: valley of depth {split.depth:.2f} "
        f"between {count(split.left.rows)} on the left and {count(split.right.rows)} on the right"
        + (", with a sample of rows as dots above" if image is not None else "")
    )
    return tag(
        "svg",
        Markup("").join(parts),
        class_="density",
        role="img",
        aria_label=label,
        viewBox=f"0 0 {width} {_number(base + 22.0)}",
    )


# --- the tree ---------------------------------------------------------------------------------------


def tree(summary: Summary, limit: int, marks: Callable[[int], str]) -> Markup:
    """The tree from left to right: a small density at every split, a line for every cluster.

    Parameters
    ----------
    limit : splits that only matter to more clusters than this are not drawn; their clusters share a line
    marks : what to say of a cluster beside its size, by label
    """
    at = {place.side.node: place for place in places(summary, limit)}
    splits = [p for p in at.values() if p.split is not None]
    ends = [p for p in at.values() if p.split is None]
    deepest = max((p.level for p in splits), default=0)
    label_x = float((deepest + 1) * STEP + 8)
    parts: list[Markup] = []
    for p in splits:
        assert p.split is not None
        for side, name in ((p.split.left, "l"), (p.split.right, "r")):
            child = at[side.node]
            x0, x1 = p.level * STEP + THUMB[0] + 4.0, float(child.level * STEP)
            x1 = label_x - 6.0 if child.split is None else x1
            turn = p.level * STEP + THUMB[0] + 14.0
            d = f"M{_number(x0)} {_number(_y(p))}H{_number(turn)}V{_number(_y(child))}H{_number(x1)}"
            parts.append(tag("path", class_=f"edge {name}", d=d))
    largest = max((p.side.rows for p in ends), default=1)
    for p in at.values():
        parts.append(_split_mark(summary, p) if p.split else _end_mark(summary, p, label_x, largest, marks))
    height = ROW * max(1, len(ends)) + 12
    told = max((cells(marks(p.side.first)) for p in ends if p.side.n_clusters == 1), default=0)
    width = label_x + 172.0 + 6.6 * max(told, 12)
    return tag(
        "svg",
        Markup("").join(parts),
        class_="tree",
        role="group",
        aria_label="The tree of splits, from the whole on the left to the clusters on the right",
        viewBox=f"0 0 {_number(width)} {height}",
        width=width,
        height=height,
        style=f"--w:{_number(width)}px",
    )


def _y(place: Place) -> float:
    return 6.0 + ROW * place.line


def _split_mark(summary: Summary, place: Place) -> Markup:
    split = place.split
    assert split is not None
    width, height = THUMB
    carried = [short(summary.features[j].name, SHORT) for j in split.carriers(1)]
    weak = "" if split.significant else " weak"
    strength = f"valley {split.depth:.2f}" + (" (weak)" if weak else "")
    inside = [
        tag("title", f"Node {split.node}: {count(split.rows)}, {strength}, carried by {', '.join(carried)}"),
        tag("rect", class_="hit", x=-3, y=-13, width=width + 6, height=height + 26, rx=4),
        density(split, Frame.of(split, float(width)), height - 4.0, 36),
        tag("path", class_="axis", d=f"M0 {height - 4}H{width}"),
        tag("text", str(split.node), class_="node", x=0, y=-3),
        tag("text", f"{split.depth:.2f}", class_="depth", x=width, y=-3),
        tag("text", carried[0] if carried else "", class_="by", x=width / 2, y=height + 8),
    ]
    link = tag("a", Markup("").join(inside), href=f"#node-{split.node}")
    x, y = place.level * STEP, _y(place) - height / 2 - 2.0
    return tag("g", link, class_=f"split{weak}", transform=f"translate({x} {_number(y)})")


def _end_mark(summary: Summary, place: Place, x: float, largest: int, marks: Callable[[int], str]) -> Markup:
    side, y = place.side, _y(place)
    one, name = side.n_clusters == 1, side.labels()
    wide = 12.0 + 8.0 * len(name)
    share = side.rows / max(1, summary.rows.counted)
    told = marks(side.first) if one else count(side.n_clusters, "cluster")
    pill = [
        tag("title", f"Cluster {name}: {count(side.rows)}, {percent(share)}"),
        tag("rect", class_="pill", x=x, y=y - 9.0, width=wide, height=18, rx=9),
        tag("text", name, class_="label", x=x + wide / 2, y=y + 4.0),
    ]
    bar = 70.0 * side.rows / max(1, largest)
    start = x + max(wide + 8.0, 40.0)
    return Markup("").join(
        [
            tag("a", Markup("").join(pill), href=f"#cluster-{side.first}"),
            tag("rect", class_="bar", x=start, y=y - 5.0, width=max(1.0, bar), height=10),
            tag("text", percent(share), class_="share", x=start + 76.0, y=y + 4.0),
            tag("text", told, class_="marks", x=start + 124.0, y=y + 4.0),
        ]
    )


# --- the choice of K --------------------------------------------------------------------------------


def curve(choice: Choice, values: np.ndarray, length: int) -> Markup:
    """The curve that K is read from, with the number chosen and the others with something to say."""
    width, height, left, top = 640.0, 230.0, 46.0, 22.0
    n = min(length, len(values))
    ks = np.unique(np.round(np.linspace(1, n, min(n, 256))).astype(int))

    def place(k: int) -> tuple[float, float]:
        x = left + (k - 1) / max(1, n - 1) * (width - left - 16.0)
        return float(x), float(top + (1.0 - values[k - 1]) * height)

    parts = []
    for share in (0.0, 0.5, 1.0):
        y = top + (1.0 - share) * height
        parts.append(tag("path", class_="grid", d=f"M{_number(left)} {_number(y)}H{_number(width - 8)}"))
        parts.append(tag("text", f"{100 * share:.0f} %", class_="tick end", x=left - 8.0, y=y + 4.0))
    for k in nice_numbers(n):
        x, _ = place(k)
        parts.append(tag("text", str(k), class_="tick", x=x, y=top + height + 18.0))
    line = "".join(
        f"{'L' if i else 'M'}{_number(x)} {_number(y)}" for i, (x, y) in enumerate(map(place, map(int, ks)))
    )
    parts.append(tag("path", class_="line", d=line))
    if n <= 64:
        parts += [tag("circle", class_="dot", cx=x, cy=y, r=2.5) for x, y in map(place, map(int, ks))]
    others = {a.clusters for a in choice.alternatives} | ({choice.runner_up} if choice.runner_up else set())
    for k in sorted(k for k in others if k and k <= n):
        x, y = place(k)
        parts.append(tag("circle", class_="other", cx=x, cy=y, r=5.5))
        parts.append(tag("text", str(k), class_="other", x=x + 8.0, y=y - 6.0))
    if choice.clusters <= n:
        x, y = place(choice.clusters)
        up = max(14.0, y - 34.0)
        parts.append(
            tag("path", class_="drop", d=f"M{_number(x)} {_number(up + 4.0)}V{_number(top + height)}")
        )
        parts.append(tag("circle", class_="chosen", cx=x, cy=y, r=6.5))
        late = x > 0.8 * width
        label = f"{choice.clusters} chosen"
        side = "chosen end" if late else "chosen"
        parts.append(tag("text", label, class_=side, x=x - 5.0 if late else x + 5.0, y=up))
    parts.append(
        tag("text", "number of clusters", class_="tick", x=left + (width - left) / 2, y=top + height + 36.0)
    )
    return tag(
        "svg",
        Markup("").join(parts),
        class_="curve",
        role="img",
        aria_label=f"Curve over the number of clusters: {choice.headline}; its figures stand below",
        viewBox=f"0 0 {_number(width)} {_number(top + height + 44.0)}",
    )
