"""Figures -> the numerals people read, the same in the terminal, the page and the plots."""

from __future__ import annotations

import math


def quantity(value: float | None, sd: float, *, share: bool = False) -> str:
    """A value in the user's units, to a hundredth of `sd`; a one-hot level as a percentage.

    >>> quantity(5.84333, 0.825), quantity(1234567.8, 20000.0), quantity(0.25, 0.4, share=True)
    ('5.843', '1,234,568', '25.0 %')
    """
    if value is None:
        return "-"
    if share:
        return percent(value)
    step = sd if sd > 0.0 else abs(value)
    if step == 0.0:
        return "0"
    size = max(abs(value), step)
    decimals = 2 - math.floor(math.log10(step))
    if size < 1e12 and decimals <= 6:
        text = f"{value:,.{max(0, decimals)}f}"
    else:
        digits = math.ceil(math.log10(size / step)) + 3
        text = f"{value:.{min(15, max(3, digits))}g}"
    return text.removeprefix("-") if _is_zero(text) else text


def spread(sd: float | None, *, share: bool = False) -> str:
    """A standard deviation to three digits; in percentage points for a one-hot level."""
    if sd is None:
        return "-"
    return f"{100.0 * sd:.1f} %" if share else quantity(sd, sd)


def similarity(value: float | None) -> str:
    """A similarity from 0 to 1 to a hundredth, rounded down: what shows as 0.75 is no less."""
    return "-" if value is None else f"{math.floor(100.0 * value + 1e-9) / 100.0:.2f}"


def signed(value: float | None, decimals: int = 1) -> str:
    """An effect in sds with its sign: +1.3, -0.4, 0.0."""
    if value is None:
        return "-"
    text = f"{value:+.{decimals}f}" if abs(value) < 1e4 else f"{value:+.2g}"
    return text[1:] if _is_zero(text) else text


def percent(share: float | None) -> str:
    """A share of one as a percentage; small ones are never shown as nothing."""
    if share is None:
        return "-"
    if 0.0 < share < 0.0005:
        return "<0.1 %"
    if 0.9995 <= share < 1.0:
        return ">99.9 %"
    return f"{100.0 * share:.1f} %"


def _is_zero(text: str) -> bool:
    return not any("1" <= c <= "9" for c in text.partition("e")[0])
