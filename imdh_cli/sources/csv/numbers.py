"""Text cells -> numbers: what counts as one, what counts as missing, and what is neither."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa

from imdh_cli.arrow_compute import pc

# The spellings that pandas, Arrow and DuckDB agree on, and pandas' own. "n/a", "-", "?" and the like are
# words: whether they mean a missing value is for the person to say (--null-value).
USUAL_NULLS = (
    *("", "NA", "N/A", "#N/A", "#NA", "#N/A N/A", "<NA>", "null", "Null", "NULL", "None"),
    *("NaN", "nan", "NAN", "-NaN", "-nan", "1.#QNAN", "-1.#QNAN", "1.#IND", "-1.#IND"),
)

_DIGITS = r"([0-9]+[.]?[0-9]*|[.][0-9]+)(e[+-]?[0-9]+)?"
_NUMBER = rf"(?i)^[+-]?({_DIGITS}|inf|infinity|nan)$"
_COMMA_GROUP = r"^[+-]?[0-9]{1,3},[0-9]{3}$"
_DECIMAL_COMMA = r"^[+-]?[0-9]+,[0-9]+$"

_MINUS = "\u2212\u2012\u2013\ufe63\uff0d"  # signs and dashes that stand for one
_BLANKS = " \u00a0\u2007\u2009\u202f'\u2019"

_SIGN = r"[^\w\s+.,:;'\"()\[\]{}-]"  # %, $ and the like, but no quote, bracket, minus or mark
_BEFORE, _BEHIND = rf"{_SIGN}\s*|[A-Z]{{3}}\s+", rf"\s*(?:{_SIGN}|[^\W\d_]){{1,6}}"
_QUANTITY = re.compile(rf"[+-]?({_BEFORE})?[+-]?[0-9][0-9.,'\s]*?({_BEHIND})?")

MOSTLY = 0.9
FEW = 3


def to_numbers(
    cells: pa.Array, nulls: pa.Array, decimal: str = ".", *, truths: bool = False
) -> tuple[pa.DoubleArray, np.ndarray | None]:
    """Numbers, and which cells are none.

    Parameters
    ----------
    cells : string array of shape (n,)
        Null where missing.
    nulls : string array
        Spellings of a missing value; blanks around a cell do not matter, and a blank cell is missing.
    decimal : "." or ","
    truths : true is 1 and false is 0, in any case of the letters.

    Returns
    -------
    numbers : float64 array of shape (n,)
        Null where missing and where the cell is no number.
    wrong : ndarray of shape (n,), bool, or None
        The cells that are neither number nor missing; None when there are none.
    """
    text = pc.utf8_trim_whitespace(cells)
    text = pc.if_else(pc.equal(text, ""), None, text)
    if truths:
        low = pc.utf8_lower(text)
        text = pc.if_else(pc.equal(low, "true"), "1", pc.if_else(pc.equal(low, "false"), "0", text))
    if decimal != ".":
        # "1.5" is no number where the comma is the decimal point: the point becomes something else.
        plain = pc.replace_substring(pc.replace_substring(text, ".", "!"), decimal, ".")
    else:
        plain = text
    try:
        return pc.cast(plain, pa.float64()), None
    except pa.ArrowInvalid:
        pass
    # Numbers first, spellings of a missing value among the rest, as in Arrow's parser of CSV.
    is_number = pc.fill_null(pc.match_substring_regex(plain, _NUMBER), True)
    numbers = pc.cast(pc.utf8_ltrim(pc.if_else(is_number, plain, None), "+"), pa.float64())
    wrong = ~pc.or_(is_number, pc.is_in(text, value_set=nulls)).to_numpy(zero_copy_only=False)
    return numbers, wrong if wrong.any() else None


def spelled_plainly(cells: pa.Array, decimal: str = ".") -> pa.Array:
    """Numbers as people write them, as programs read them; other text unchanged.

    A minus that is not ASCII becomes one that is; blanks (also those that do not break), apostrophes and,
    where they are not the decimal point, commas or points go from between groups of three digits.
    """
    text = pc.replace_substring_regex(pc.utf8_trim_whitespace(cells), f"^[{_MINUS}]", "-")
    marks = _BLANKS + ("," if decimal == "." else ".")
    groups = f"^[+-]?[0-9]{{1,3}}([{marks}][0-9]{{3}})+([{decimal}][0-9]*)?$"
    grouped = pc.match_substring_regex(text, groups)
    return pc.if_else(grouped, pc.replace_substring_regex(text, f"[{marks}]", ""), text)


def null_numbers(nulls: Iterable[str], decimal: str = ".") -> pa.DoubleArray:
    """The numbers among spellings of a missing value: -999 then also is missing when it is -999.0."""
    cells = pa.array([n for n in nulls if n.strip()], pa.string())
    numbers, _ = to_numbers(cells, pa.array([], pa.string()), decimal)
    return numbers.filter(pc.fill_null(pc.is_finite(numbers), False))


@dataclass
class Evidence:
    """What the sampled cells of one column are."""

    numbers: int = 0
    words: int = 0
    truths: int = 0  # words that are true or false, in any case of the letters
    some_words: list[str] = field(default_factory=list)  # distinct, at most FEW + 1
    commas: int = 0  # words that are numbers with a decimal comma,
    groups: int = 0  # and those of them in which it may as well set thousands apart

    def see(self, cells: pa.Array, nulls: pa.Array, decimal: str) -> None:
        """Add string cells."""
        numbers, wrong = to_numbers(cells, nulls, decimal)
        self.numbers += len(numbers) - numbers.null_count
        if wrong is None:
            return
        words = cells.filter(pa.array(wrong))
        self.words += len(words)
        truths = pc.match_substring_regex(words, r"(?i)^\s*(true|false)\s*$")
        self.truths += pc.sum(truths).as_py() or 0
        self.commas += pc.sum(pc.match_substring_regex(words, _DECIMAL_COMMA)).as_py() or 0
        self.groups += pc.sum(pc.match_substring_regex(words, _COMMA_GROUP)).as_py() or 0
        if len(self.some_words) <= FEW:
            new = words.slice(0, 1000).unique().to_pylist()
            self.some_words = list(dict.fromkeys([*self.some_words, *new]))[: FEW + 1]

    @property
    def truth(self) -> bool:
        """Whether this is a column of true and false, and of nothing else."""
        return 0 < self.words == self.truths and not self.numbers

    @property
    def numeric(self) -> bool:
        """Whether this is a column of numbers.

        Without any word it is, also when it is empty so far, and true and false are 1 and 0. A word here and
        there does not make a column of numbers a text column, which would then silently be no feature: it is
        an error, or a spelling of a missing value that the person has to name. So a column is one of numbers
        when nine cells in ten are, or half of them and the rest are at most three different words.
        """
        if not self.words or self.truth:
            return True
        share = self.numbers / (self.numbers + self.words)
        return share >= MOSTLY or (share >= 0.5 and len(self.some_words) <= FEW)


@dataclass(frozen=True, order=True)
class Unit:
    """What stands beside a number, before it or behind it, with the blanks between."""

    text: str
    before: bool

    @classmethod
    def of(cls, cell: str) -> Unit | None:
        """The unit of `12%`, `$5` or `1.2 EUR`; None for anything else."""
        found = _QUANTITY.fullmatch(cell.strip())
        before, behind = found.groups() if found else (None, None)
        if (before is None) == (behind is None):
            return None
        return cls(before or behind or "", before is not None)

    @property
    def _script(self) -> str:
        """Of letters only where no other letter or digit is beside them: `3kg4` is a code."""
        text = re.sub(r"([][\\.*^$()+?{}|/])", r"\\\1", self.text)
        if self.before:
            return (
                rf"s/(^|[^[:alnum:]]){text}([0-9])/\1\2/g"
                if self.text[0].isalpha()
                else rf"s/{text}([0-9])/\1/g"
            )
        return (
            rf"s/([0-9]){text}([^[:alnum:]]|$)/\1\2/g"
            if self.text[-1].isalpha()
            else rf"s/([0-9]){text}/\1/g"
        )


def without_units(units: Iterable[Unit]) -> str:
    """The command for a file of text that takes units away."""
    return f"sed -E {shlex.quote('; '.join(unit._script for unit in units))}"


def all_numbers(cells: Sequence[str], decimal: str = ".") -> bool:
    """Whether every cell is a number, and none is missing."""
    numbers, wrong = to_numbers(pa.array(cells, pa.string()), pa.array([""]), decimal)
    return wrong is None and numbers.null_count == 0
