"""A model -> SQL that gives the labels of `imdh assign`: as a query, or as one CASE expression.

A row is told by the same steps: each cell is standardised and clipped to z, and cuts compare sums of z with
thresholds, all in doubles. The sums may be taken in another order, so that rows within rounding of a cut may
fall on its other side; `export.check` counts them.

The query takes each z once, in an inner query; a plain expression has to repeat it at every cut, and is about
four times as long. A long one has a query within it for that, or what the dialect has instead.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from imdh_cli.errors import UsageError
from imdh_cli.export.dialects import DIALECTS, Dialect, check_names, check_text, number
from imdh_cli.features import Column
from imdh_cli.features.matrix import LARGEST
from imdh_cli.model import Cut, Model, walk
from imdh_cli.sources.csv.numbers import null_numbers
from imdh_cli.sources.nulls import Nulls
from imdh_cli.version import __version__
from imdh_cli.words import count, printable

# In one sum or conjunction: engines limit the depth of an expression (DuckDB 1,000), and a chain is as deep
# as it is long.
CHAIN = 64
LONG = 100_000  # characters of an expression that is no longer written plainly
SMALL_SCALE = 1e-200  # below, 1e100 / scale may overflow, which PostgreSQL and BigQuery hold for an error
SMALL_Z = 1e-200  # below, a product with a coefficient may underflow, which PostgreSQL holds for an error


def query(
    model: Model,
    dialect: str = "duckdb",
    *,
    clusters: int | None = None,
    missing: str | None = None,
    table: str = "data",
    name: str = "cluster",
    origin: str = "",
) -> str:
    """A SELECT of all columns of a table and the label of each row.

    Parameters
    ----------
    model : Model
    dialect : one of `DIALECTS`
    clusters : cut at so many, instead of the model's own number
    missing : "skip" or "mean"; None as the model was fitted ("error" labels as "skip" does)
    table : what stands after FROM, as the engine writes it
    name : of the label's column
    origin : name of the model file, for the comment at the top

    Raises
    ------
    UsageError
        For a number of clusters that the tree cannot have, and for names that the dialect cannot write.
    """
    labels = _Labels(model, dialect, clusters, missing)
    if not name:
        raise UsageError("--name: the label column has an empty name")
    check_names([*model.spec.source_columns, name], dialect)
    if name in model.spec.source_columns:
        raise UsageError(
            f'the table has a column "{name}", too', f"name the label column otherwise: --name {name}_found"
        )
    return labels.header(origin) + labels.query(table, name)


def expression(
    model: Model, dialect: str = "duckdb", *, clusters: int | None = None, missing: str | None = None
) -> str:
    """The label as a CASE expression over the columns of a table. Parameters and errors as of `query`."""
    return _Labels(model, dialect, clusters, missing).expression()


class _Labels:
    """One model in one dialect: the label of a row as text."""

    def __init__(self, model: Model, dialect: str, clusters: int | None, missing: str | None) -> None:
        self.model = model
        self.dialect_name = dialect
        self.dialect: Dialect = DIALECTS[dialect]
        self.skips = (missing or model.spec.missing) != "mean"
        self.root = walk(model, clusters)
        check_names(model.spec.source_columns, dialect)
        for column in model.spec.columns:
            for level in column.levels or ():
                check_text(level, f'level of column "{column.name}"')
        if model.spec.parsed:
            raise UsageError(
                f'column "{model.spec.parsed[0]}" is text that was read with --parse: no cast of SQL knows '
                "marks between thousands, dashes for a minus and words for a missing cell",
                "imdh assign MODEL DATA --keep-all -o labelled.parquet labels it; or fit a table that holds "
                "the numbers, without --parse",
            )
        self.nulls = Nulls.of(model.spec.null_values, model.spec.source_columns)
        for text in model.spec.null_values:
            check_text(text, "value of --null-value")
        cuts = list(self.root) if isinstance(self.root, Cut) else []
        self.n_cuts = len(cuts)
        self.used = np.any([cut.direction != 0.0 for cut in cuts], axis=0) if cuts else np.zeros(0, bool)
        self.prefix = self._free("imdh_z")

    def _free(self, prefix: str) -> str:
        """A prefix that no column of the model has, which begins so."""
        while any(c.casefold().startswith(prefix) for c in self.model.spec.source_columns):
            prefix += "_"
        return prefix

    # --- the whole ------------------------------------------------------------------------------------

    def header(self, origin: str) -> str:
        """Two comments: what this is, and what made it."""
        k = _largest_label(self.root)
        from_ = f" of the model {printable(origin)}" if origin else ""
        broken = "-1 where a cell is missing" if self.skips else "a missing cell counts as the mean"
        return (
            f"-- {count(k, 'cluster')}{from_}, by {count(self.n_cuts, 'cut')}; {broken}.\n"
            f"-- Written for {self.dialect_name} by imdh {__version__}; labels are those of imdh assign.\n"
        )

    def query(self, table: str, name: str) -> str:
        """Standardised columns in an inner query, so that each is written and computed once."""
        as_name, columns = self.dialect.name(name), self._columns()
        at = [int(j) for j in np.flatnonzero(self.used)]
        if not at:
            return f"SELECT *,\n  {self._label({})} AS {as_name}\nFROM {table} AS imdh_rows\n"
        # Names of no column of the model: Spark knows an alias in the same SELECT, before outer columns.
        prefix = self.prefix if self.dialect.without else self._free("z")
        own = {j: f"{prefix}{j}" for j in at}
        inner = ",\n    ".join(f"{self._z(j, *columns[j], guarded=True)} AS {own[j]}" for j in at)
        if self.dialect.without:
            # The inner columns first: where the table has one of that name, too, DuckDB takes the first.
            return (
                f"SELECT * {self.dialect.without} ({', '.join(own.values())}),\n"
                f"  {self._label(own)} AS {as_name}\n"
                f"FROM (\n  SELECT\n    {inner},\n    *\n  FROM {table} AS imdh_rows\n) AS imdh\n"
            )
        label = self._label({j: f"imdh.{z}" for j, z in own.items()})
        return (
            f"SELECT imdh_rows.*,\n  {label} AS {as_name}\nFROM {table} AS imdh_rows\n"
            f"CROSS JOIN LATERAL (\n  SELECT\n    {inner}{self.dialect.fence}\n) AS imdh\n"
        )

    def expression(self) -> str:
        """All of it in one."""
        columns, at = self._columns(), [int(j) for j in np.flatnonzero(self.used)]
        plain = {j: self._z(j, *columns[j], guarded=not self.skips) for j in at}
        label = self._label(plain, raw=True)
        once = self.dialect.once
        if at and len(label) > LONG:
            prefix = self._free("z")
            own = {j: once.name.format(prefix=prefix, place=place) for place, j in enumerate(at)}
            cells = plain if once.lazy else {j: self._z(j, *columns[j], guarded=True) for j in at}
            values = ",\n    ".join(once.value.format(value=cells[j], name=own[j]) for j in at)
            inner = self._side(self.root, own, "  ") if once.lazy else self._label(own)
            label = once.whole.format(values=values, label=inner, prefix=prefix)
            label = self._guarded(label, {}) if once.lazy else label
        return label + "\n"

    # --- its parts ------------------------------------------------------------------------------------

    def _columns(self) -> list[tuple[Column, int]]:
        """For each column of the matrix: the table's column, and which of its levels or items."""
        found: list[tuple[Column, int]] = []
        for column in self.model.spec.columns:
            places = [(0, column.width)] if column.items is None else column.items.ranges
            found += [(column, place) for start, stop in places for place in range(start, stop)]
        return found

    def _label(self, z: dict[int, str], *, raw: bool = False) -> str:
        """The CASE over all. z : how each standardised column is written; raw: these fail on broken cells."""
        return self._guarded(self._side(self.root, z, "  "), {} if raw else z)

    def _guarded(self, tree: str, known: dict[int, str]) -> str:
        """-1 where a row cannot be labelled. known : standardised columns that are NULL then."""
        lists = [column for column in self.model.spec.columns if column.items is not None]
        if not self.skips:  # a list of another length is a row that cannot be read, whatever stands for cells
            other = [self._length(column, "<>") for column in lists]
            return f"CASE WHEN {_chain(other, ' OR ')} THEN -1\n  ELSE {tree} END" if other else tree
        usable = [self._length(column, "=") for column in lists]
        for j, (column, place) in enumerate(self._columns()):
            if column.levels is None or place == 0:
                usable.append(f"{known[j]} IS NOT NULL" if j in known else self._usable(column, place))
        return f"CASE WHEN {_chain(usable, ' AND ')} THEN\n  {tree}\n  ELSE -1 END"

    def _side(self, side: Cut | int, z: dict[int, str], indent: str) -> str:
        """A label, or a CASE of two sides; a right side that is a cut goes on in the same CASE."""
        if not isinstance(side, Cut):
            return str(side)
        arms = []
        deeper = indent + "  "
        while isinstance(side, Cut):
            arms.append(f"WHEN {self._goes_left(side, z)} THEN {self._side(side.left, z, deeper)}")
            side = side.right
        return f"CASE\n{indent}" + f"\n{indent}".join([*arms, f"ELSE {side} END"])

    def _goes_left(self, cut: Cut, z: dict[int, str]) -> str:
        terms = [(cut.direction[j], z[int(j)]) for j in np.flatnonzero(cut.direction)]
        return f"{self._sum(terms)} < {number(cut.threshold, self.dialect)}"

    def _sum(self, terms: Sequence[tuple[float, str]]) -> str:
        """coefficient * z + ... in groups that are not too deep."""
        if len(terms) > CHAIN:
            groups = [self._sum(terms[k : k + CHAIN]) for k in range(0, len(terms), CHAIN)]
            return _chain([f"({group})" for group in groups], " + ")
        text = ""
        for v, z in terms:
            sign = "" if not text else " - " if v < 0.0 else " + "
            text += f"{sign}{number(abs(v) if sign else v, self.dialect)} * {z}"
        return text

    def _z(self, j: int, column: Column, place: int, *, guarded: bool) -> str:
        """Column j of the matrix, standardised. guarded: NULL, or the mean, where the cell is missing."""
        arms = (self._of_number if column.levels is None else self._of_level)(j, column, place)
        if not guarded and len(arms) == 1:
            return arms[0][1]
        whens = " ".join(f"WHEN {condition} THEN {z}" for condition, z in arms)
        return f"CASE {whens}{'' if self.skips else f' ELSE {self._fill(j)}'} END"

    def _of_number(self, j: int, column: Column, place: int) -> list[tuple[str, str]]:
        """Conditions and the z where they hold: clip((x - center) / scale), but for what an engine cannot."""
        s, dialect = self.model.scaling, self.dialect
        z, guard = self._cell(column, place)
        center, scale = float(s.center[j]), float(s.scale[j])
        if column.log:
            one = number(1.0, dialect)
            z = f"(SIGN({z}) * LN({one} + ABS({z})))"
        if scale < SMALL_SCALE:
            z = self._clipped(z, center - 20.0 * scale, center + 20.0 * scale)
        if center != 0.0:
            z = f"({z} {'-' if center > 0.0 else '+'} {number(abs(center), dialect)})"
        if scale != 1.0:
            z = f"{z} / {number(scale, dialect)}"
        if np.isfinite(s.limit):
            z = self._clipped(z, -s.limit, s.limit)
        arms = [(self._usable(column, place), z)]
        tiny = SMALL_Z * scale
        if dialect.raises_underflow and center - tiny != center:
            low, high = number(center - tiny, dialect), number(center + tiny, dialect)
            near = f"{guard} BETWEEN {low} AND {high}{self._not_null_value(column, guard)}"
            arms.insert(0, (near, number(0.0, dialect)))
        return arms

    def _of_level(self, j: int, column: Column, place: int) -> list[tuple[str, str]]:
        """As `_of_number`: there are two values of z, computed here as `assign` computes them."""
        assert column.levels is not None
        one, other = (number(z, self.dialect) for z in self._standardised(j, (1.0, 0.0)))
        words, _ = self._cell(column, place)
        return [
            (f"{words} = {self.dialect.text(column.levels[place])}", one),
            (self._usable(column, place), other),
        ]

    def _fill(self, j: int) -> str:
        return number(self._standardised(j, (np.nan,))[0], self.dialect)

    def _standardised(self, j: int, values: Sequence[float]) -> list[float]:
        s = self.model.scaling
        one = replace(s, center=s.center[j], scale=s.scale[j], fill=s.fill[j])
        return [float(z) for z in one.apply(np.array(values))]

    def _cell(self, column: Column, place: int) -> tuple[str, str]:
        """What a column of the model is in the table: as a double or text, and for comparing.

        The one place that knows how a feature is found in a table.
        """
        name = self.dialect.name(column.name)
        if column.levels is not None:
            return self.dialect.words.format(name), name
        if column.items is not None:
            name = self.dialect.item(name, place)
        return self.dialect.cell.replace("{}", name), self.dialect.guard.replace("{}", name)

    def _length(self, column: Column, comparison: str) -> str:
        assert column.items is not None
        name = self.dialect.name(column.name)
        return f"{self.dialect.length.replace('{}', name)} {comparison} {column.items.length}"

    def _usable(self, column: Column, place: int) -> str:
        """A number up to 1e100 in size: NaN is more than all of them, or false; NULL is not true."""
        _, guard = self._cell(column, place)
        other = self._not_null_value(column, guard)
        if column.levels is not None:
            return f"{guard} IS NOT NULL{other}"
        return f"{guard} BETWEEN {number(-LARGEST, self.dialect)} AND {number(LARGEST, self.dialect)}{other}"

    def _not_null_value(self, column: Column, guard: str) -> str:
        """That a cell is none of what `--null-value` said; a number may be one of float32, too."""
        texts = self.nulls.texts(column.name)
        if not texts:
            return ""
        if column.levels is not None:
            values = [self.dialect.text(text) for text in texts]
        else:
            numbers = null_numbers(texts).to_numpy()
            both = dict.fromkeys([*numbers.tolist(), *numbers.astype(np.float32).astype(float).tolist()])
            values = [number(v, self.dialect) for v in both if np.isfinite(v)]
        return f" AND {guard} NOT IN ({', '.join(values)})" if values else ""

    def _clipped(self, z: str, low: float, high: float) -> str:
        return f"LEAST(GREATEST({z}, {number(low, self.dialect)}), {number(high, self.dialect)})"


def _chain(parts: Sequence[str], word: str) -> str:
    """Parts joined by a word, in groups that are not too deep."""
    if len(parts) <= CHAIN:
        return word.join(parts)
    groups = [f"({word.join(parts[k : k + CHAIN])})" for k in range(0, len(parts), CHAIN)]
    return _chain(groups, word)


def _largest_label(side: Cut | int) -> int:
    return max(_largest_label(side.left), _largest_label(side.right)) if isinstance(side, Cut) else side
