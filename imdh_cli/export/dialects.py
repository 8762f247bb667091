"""How the five dialects of SQL write numbers, texts, names and the cells of a table.

None of this can be asked of a standard. What a dialect is known to do stands beside what follows from it;
tests run DuckDB and PostgreSQL, and an independent parser reads all five.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from imdh_cli.errors import UsageError


def _doubled(quote: str) -> Callable[[str], str]:
    return lambda text: quote + text.replace(quote, quote + quote) + quote


def _escaped(quote: str, also: tuple[tuple[str, str], ...] = ()) -> Callable[[str], str]:
    r"""Backslash escapes; \n and \r, since a BigQuery text ends where its line does."""
    pairs = (("\\", "\\\\"), (quote, "\\" + quote), ("\n", "\\n"), ("\r", "\\r"), *also)

    def write(text: str) -> str:
        for plain, code in pairs:
            text = text.replace(plain, code)
        return quote + text + quote

    return write


def _postgres_text(text: str) -> str:
    """A backslash is an escape or not, as the server is set (standard_conforming_strings), but for E''."""
    quoted = _doubled("'")(text)
    return "E" + quoted.replace("\\", "\\\\") if "\\" in text else quoted


def _from_one(column: str, place: int) -> str:
    return f"{column}[{place + 1}]"


def _with_exponent(digits: str) -> str:
    """Without an exponent most engines read a DECIMAL."""
    return digits if "e" in digits else digits + "e0"


@dataclass(frozen=True)
class Once:
    """How an expression gives values names, since it has no FROM.

    value : a value and its name where they are listed; name : in the label, by prefix and place from 0.
    whole : of the values, the label and the prefix. lazy : it takes no NULL, and is reckoned only where cells
    were found to be usable.
    """

    value: str
    name: str
    whole: str
    lazy: bool = False


_SUBQUERY = "(SELECT {label}\n  FROM (\n  SELECT\n    {values}%s\n) AS imdh)"


@dataclass(frozen=True)
class Dialect:
    """The words of one engine.

    number : digits -> a double. name, text : quoted. cell : a column, by its quoted name, as a double;
    guard : the same for comparing it with doubles. words : a one-hot column as text. item : of a list, by
    its place from 0, NULL where it has no such; length : of a list, NULL where that is. key : names with the
    same key mean one column. refused : what no name may hold. without : the keyword of
    `SELECT * EXCLUDE (...)`, or None where an inner query is joined sideways (LATERAL) instead; fence : at
    the end of that. once : how an expression has each value once. raises_underflow : whether a product too
    small for a double is an error, not 0.
    """

    text: Callable[[str], str]
    name: Callable[[str], str]
    words: str
    item: Callable[[str, int], str]
    length: str
    cell: str = "{}"
    guard: str = "{}"
    number: Callable[[str], str] = _with_exponent
    key: Callable[[str], object] = str.casefold
    refused: str | None = None
    without: str | None = None
    fence: str = ""
    once: Once = Once("{value} AS {name}", "{prefix}{place}", _SUBQUERY % "")
    raises_underflow: bool = False


DIALECTS = {
    # Casts of cells: for columns of booleans, which neither DuckDB nor Spark compares with numbers.
    "duckdb": Dialect(
        text=_doubled("'"),
        name=_doubled('"'),
        words="CAST({} AS VARCHAR)",
        item=_from_one,
        length="len({})",
        cell="CAST({} AS DOUBLE)",
        guard="CAST({} AS DOUBLE)",
        without="EXCLUDE",
    ),
    # A number with an exponent is a NUMERIC here, and whole numbers would be reckoned with as such; beside
    # a double it becomes one, once. The guard goes without a cast, which would fail for 1e400.
    # Of a name, 63 bytes count. OFFSET 0 keeps the inner expressions from being put into every cut again:
    # 1.2 s instead of 2.6 for 100,000 rows of 20, 14 clusters.
    "postgres": Dialect(
        text=_postgres_text,
        name=_doubled('"'),
        words="CAST({} AS TEXT)",
        item=_from_one,
        length="cardinality({})",
        cell="CAST({} AS DOUBLE PRECISION)",
        key=lambda name: name.encode()[:63],
        fence="\n  OFFSET 0",
        once=Once("{value} AS {name}", "{prefix}{place}", _SUBQUERY % "\n  OFFSET 0"),
        raises_underflow=True,
    ),
    # "${...}" is replaced anywhere in a statement. A subquery that is correlated is not run by all that speak
    # this dialect; a function over a list of one list is.
    "spark": Dialect(
        text=_escaped("'", (("${", "\\u0024{"),)),
        name=_doubled("`"),
        words="CAST({} AS STRING)",
        item="get({}, {})".format,
        length="array_size({})",
        cell="CAST({} AS DOUBLE)",
        guard="CAST({} AS DOUBLE)",
        once=Once(
            "{value}", "{prefix}[{place}]", "transform(array(array(\n    {values})), {prefix} -> {label})[0]"
        ),
        refused="${",
    ),
    "bigquery": Dialect(
        text=_escaped("'"),
        name=_escaped("`"),
        words="CAST({} AS STRING)",
        item="{}[SAFE_OFFSET({})]".format,
        length="ARRAY_LENGTH({})",
        without="EXCEPT",
    ),
    # Whether a number with an exponent is a FLOAT is documented nowhere. As a NUMBER it would be cut at 37
    # decimal places; text that is cast is sure. Correlated subqueries are promised in WHERE alone. Of a typed
    # array a lambda takes typed elements; whether one made of NULLs and numbers can be typed is not said.
    "snowflake": Dialect(
        text=lambda text: _doubled("'")(text.replace("\\", "\\\\")),
        name=_doubled('"'),
        words="CAST({} AS VARCHAR)",
        item="{}[{}]::FLOAT".format,
        length="ARRAY_SIZE({})",
        number="'{}'::FLOAT".format,
        once=Once(
            "{value}",
            "{prefix}[{place}]",
            "TRANSFORM([[\n    {values}]]::ARRAY(ARRAY(FLOAT)), {prefix} -> {label})[0]",
            lazy=True,
        ),
        key=str,
        without="EXCLUDE",
    ),
}


def number(value: float, dialect: Dialect) -> str:
    """A double that reads back with the same bits: the fewest digits that do, 17 at most."""
    return dialect.number(repr(float(value)))


def check_names(columns: Sequence[str], dialect_name: str) -> None:
    """Refuse names that a dialect cannot write, or takes for one another.

    Raises
    ------
    UsageError
        With the name.
    """
    dialect = DIALECTS[dialect_name]
    seen: dict[object, str] = {}
    for name in columns:
        if not name:
            raise UsageError("a column has an empty name, which SQL does not have")
        check_text(name, "name of a column")
        if dialect.refused is not None and dialect.refused in name:
            raise UsageError(
                f'{dialect_name} does not leave "{dialect.refused}" as it is in a name: "{name}"'
            )
        other = seen.setdefault(dialect.key(name), name)
        if other != name:
            raise UsageError(
                f'columns "{other}" and "{name}" are one and the same to {dialect_name}',
                "rename one of them, and fit again",
            )


def check_text(text: str, what: str) -> None:
    """Refuse what no text in SQL may hold.

    Raises
    ------
    UsageError
        For a NUL character and for half a surrogate pair.
    """
    if "\0" in text or any("\ud800" <= c <= "\udfff" for c in text):
        raise UsageError(f"the {what} holds a character that SQL cannot write: {text!r}")
