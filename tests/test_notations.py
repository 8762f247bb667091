"""Columns whose numbers are a notation, as dates or sines and cosines, are named, and clusters that they tell
apart are not called clear."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import date, datetime, timedelta
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

import imdh_cli
from imdh_cli.core.notations import Notation, _days, _months, notations
from imdh_cli.core.sentinels import Sentinels
from imdh_cli.features import select_features
from imdh_cli.model.metadata import doubted
from imdh_cli.model.model import load
from imdh_cli.params import FeatureParams, FitParams
from imdh_cli.pipeline.feature_rows import FeatureRows
from tests.cli import imdh, metadata
from tests.tables import opened, parquet

ROWS = 3000
RNG = np.random.default_rng


def found(*columns: np.ndarray) -> list[Notation]:
    X = np.column_stack(columns).astype(float)
    return notations(X, np.zeros(X.shape[1], dtype=bool))


def is_written(number: int, form: str) -> bool:
    try:
        return 1900 <= datetime.strptime(str(number), form).year <= 2100
    except ValueError:
        return False


@pytest.mark.parametrize(
    ("form", "digits", "valid", "numbers"),
    [
        ("%Y%m%d", 8, _days, [*range(18991225, 19000401), *range(19991201, 20010401, 3)]),
        ("%Y%m%d", 8, _days, [*range(20991201, 21010301, 3), 20240229, 20230229, 20240431, 20241131]),
        ("%Y%m", 6, _months, range(189900, 210200)),
    ],
)
def test_dates_are_those_that_python_reads(form, digits, valid, numbers) -> None:
    numbers = [n for n in numbers if len(str(n)) == digits]
    assert valid(np.array(numbers, dtype=float)).tolist() == [is_written(n, form) for n in numbers]


def days(rng: np.random.Generator) -> np.ndarray:
    first = date(2019, 1, 1)
    return np.array([int(f"{first + timedelta(int(k)):%Y%m%d}") for k in rng.integers(0, 2190, ROWS)])


def months(rng: np.random.Generator) -> np.ndarray:
    return rng.integers(2019, 2025, ROWS) * 100 + rng.integers(1, 13, ROWS)


def times(rng: np.random.Generator) -> np.ndarray:
    minutes = rng.integers(0, 1440, ROWS)
    return (minutes // 60 * 100 + minutes % 60) * 100 + rng.integers(0, 60, ROWS)


NUMBERED = {
    "day": days,
    "month": months,
    "year": lambda r: r.integers(2019, 2025, ROWS) * 1_000_000 + r.integers(0, 30_000, ROWS),
    "clock": lambda r: times(r) // 100,
}
ORDINARY = {
    "normal": lambda r: r.normal(size=ROWS),
    "years": lambda r: r.integers(1950, 2025, ROWS),
    "six digits": lambda r: r.integers(190_001, 210_013, ROWS),
    "eight digits": lambda r: r.integers(19_900_101, 20_351_231, ROWS),
    "eight digits, one crowd": lambda r: np.rint(r.normal(20_200_000, 4000, ROWS)),
    "ten digits": lambda r: r.integers(1_990_000_000, 2_036_000_000, ROWS),
    "seconds": lambda r: np.floor(1_990_000_000 + 86_400 * r.integers(0, 500, ROWS)),
    "days of one month": lambda r: 20_240_100 + r.integers(1, 32, ROWS),
    "months of one year": lambda r: 202_400 + r.integers(1, 13, ROWS),
    "few days": lambda r: r.choice([20240131, 20240229, 20240331], ROWS),
    "prices": lambda r: np.rint(r.lognormal(12.2, 0.1, ROWS)),
    "fractions": lambda r: months(r) + 0.5,
    "four digits": lambda r: r.integers(0, 2360, ROWS),
    "six digits of a day": lambda r: r.integers(0, 86_400, ROWS),
    "whole hours": lambda r: r.integers(0, 24, ROWS) * 100,
    "small counts": lambda r: np.rint(r.lognormal(2.2, 0.8, ROWS)),
    "all missing": lambda r: np.full(ROWS, np.nan),
}


@pytest.mark.parametrize("kind", NUMBERED)
def test_dates_are_found_among_missing_cells_and_a_few_others(kind: str) -> None:
    x = NUMBERED[kind](RNG(0)).astype(float)
    assert found(RNG(1).normal(size=ROWS), x) == [Notation(kind, (1,))]
    x[::3] = np.nan
    x[1:10:3] = 99999999
    assert found(x) == [Notation(kind, (0,))]
    x[1::30] = 77
    assert found(x) == []
    assert notations(NUMBERED[kind](RNG(0))[:, None].astype(float), np.array([True])) == []


@pytest.mark.parametrize("name", ORDINARY)
def test_ordinary_numbers_are_none(name: str) -> None:
    for seed in range(5):
        assert found(ORDINARY[name](RNG(seed))) == []


def test_times_with_seconds_and_hours_with_minutes_behind_the_point_are_found() -> None:
    assert found(times(RNG(0)).astype(float)) == [Notation("clock", (0,))]
    minutes = np.rint(RNG(1).normal(450, 60, ROWS))
    assert found(minutes // 60 + minutes % 60 / 100) == [Notation("clock", (0,))]
    assert found(np.round(minutes / 60, 2)) == []


def orders(rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Amount, price, pieces."""
    price, pieces = np.round(rng.lognormal(2.5, 0.4, ROWS), 2), 1.0 + rng.poisson(1.2, ROWS)
    return np.round(price * pieces, 2), price, pieces


def test_an_amount_beside_its_price_and_pieces_is_found() -> None:
    amount, price, pieces = orders(RNG(0))
    assert found(pieces, amount, RNG(1).normal(size=ROWS), price) == [Notation("product", (1, 3, 0))]
    assert found(1.19 * amount, price, pieces) == []
    assert found(price, price, np.ones(ROWS)) == []
    equal = [Notation("cut", (0, 1))]  # where there is one piece
    assert found(amount, price, pieces + RNG(1).normal(0, 0.1, ROWS)) == equal
    assert found(amount, price, np.where(np.arange(ROWS) % 30 == 0, pieces + 1, pieces)) == equal


def test_an_amount_is_warned_of_and_clusters_of_pieces_are_not_called_clear(tmp_path: Path) -> None:
    amount, price, pieces = orders(RNG(0))
    table = pa.table({"amount": amount, "price": price, "pieces": pieces})
    ran = imdh("fit", parquet(tmp_path / "t.parquet", table), "-o", tmp_path / "m.npz", "--n-init", "1")
    assert (
        'warning: "amount" ("price" times "pieces"): gaps between its multiples are no groups; leave it out '
        "(-x amount)"
    ) in ran.err
    assert "clear choice" not in ran.err
    without = imdh("fit", tmp_path / "t.parquet", "-x", "amount", "-o", tmp_path / "m.npz", "-f")
    assert "warning" not in without.err
    assert metadata(tmp_path / "m.npz")["choice"]["clusters"] == 1


def asked(rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Age and year of birth of people who were asked in three years."""
    age = rng.integers(18, 80, ROWS)
    return age, rng.choice([1990, 2000, 2010], ROWS) - age - rng.integers(0, 2, ROWS)


def with_fee(rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    price = np.round(rng.gamma(4, 20, ROWS), 2)
    return price, price + rng.choice([1.99, 4.99, 14.99], ROWS)


def followed(rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Days to three events, of which those do not happen that end after the follow-up."""
    events = np.where(rng.random((3, ROWS)) < 0.4, rng.lognormal(3.2, 0.6, (3, ROWS)), np.inf)
    first, second, third = np.rint(np.minimum(events, rng.lognormal(6, 0.8, ROWS)))
    return first, second, third


def given_out(rng: np.random.Generator) -> np.ndarray:
    """Numbers of which each of four clinics has some."""
    ids = [1000 * clinic + rng.choice(600, ROWS // 12, replace=False) for clinic in range(1, 5)]
    return rng.permutation(np.concatenate(ids))


@pytest.mark.parametrize("seed", range(3))
def test_columns_of_few_sums_or_equal_in_many_rows_and_numbers_in_blocks_are_found(seed: int) -> None:
    other = RNG(seed).normal(size=ROWS)
    age, birth = asked(RNG(seed))
    assert found(age, other, birth) == [Notation("sum", (0, 2))]
    assert found(np.sort(age), other, birth[np.argsort(age)]) == [Notation("sum", (0, 2))]
    price, total = with_fee(RNG(seed))
    assert found(other, price, total, 1.2 * price) == [Notation("sum", (1, 2))]
    price[::3] = np.nan
    total[1:3] = 1000.0
    assert found(price, total) == [Notation("sum", (0, 1))]
    total[1::30] += RNG(seed).gamma(4, 20, ROWS // 30)
    assert found(price, total) == []
    first, second, third = followed(RNG(seed))
    assert found(first, other, second, third) == [Notation("cut", (0, 2, 3))]
    assert found(first, other, 1.1 * second) == []
    assert found(given_out(RNG(seed))) == [Notation("blocks", (0,))]
    assert found(np.repeat(given_out(RNG(seed)), 3)[1:]) == [Notation("blocks", (0,))]
    assert found(RNG(seed).choice(given_out(RNG(seed)), ROWS)) == []
    assert found(given_out(RNG(seed)) + 0.5) == []
    assert found(RNG(seed).permutation(ROWS)) == []


def zeros(rng: np.random.Generator, *more: np.ndarray) -> tuple[np.ndarray, ...]:
    return tuple(np.where(rng.random(ROWS) < 0.6, 0, x) for x in more)


def lattice(rng: np.random.Generator, spread: float) -> tuple[np.ndarray, np.ndarray]:
    """Whole numbers that go along with each other."""
    middle = rng.normal(50, 10, ROWS)
    return np.rint(middle), np.rint(middle + rng.normal(0, spread, ROWS))


PAIRS = {
    "small whole numbers": lambda r: r.integers(0, 26, (2, ROWS)),
    "more of them": lambda r: r.integers(0, 60, (2, ROWS)),
    "told in tens": lambda r: 10 * r.integers(0, 30, (2, ROWS)),
    "two groups of them": lambda r: 60 * r.integers(0, 2, (2, ROWS)) + r.integers(0, 15, (2, ROWS)),
    "some steps apart": lambda r: lattice(r, 2.0),
    "a step apart": lambda r: lattice(r, 0.5),
    "rounded": lambda r: (x := np.round(r.normal(50, 10, ROWS), 2), np.round(x, 1)),
    "a copy": lambda r: (x := r.normal(size=ROWS), x),
    "a copy but for a few": lambda r: (x := r.permutation(ROWS), np.where(np.arange(ROWS) % 50, x, x + 7)),
    "further on": lambda r: (x := np.rint(r.normal(50, 10, ROWS)), x + 100),
    "ages in following years": lambda r: (x := r.integers(18, 80, ROWS), r.integers(1990, 2000, ROWS) - x),
    "all missing": lambda r: np.where(r.random((2, ROWS)) < [[0.0], [1.1]], np.nan, r.normal(size=(2, ROWS))),
    "never in one row": lambda r: np.where(
        np.arange(ROWS) % 2 == [[0], [1]], np.nan, r.integers(0, 99, ROWS)
    ),
    "twenty values": lambda r: (x := r.integers(0, 20, ROWS), np.where(r.random(ROWS) < 0.8, x, 19 - x)),
    "zeros": lambda r: zeros(r, *r.gamma(2, 20, (2, ROWS))),
    "whole numbers and zeros": lambda r: zeros(r, *np.rint(r.gamma(2, 20, (2, ROWS)))),
    "cut at one value": lambda r: np.minimum(np.rint(r.gamma(4, 20, (2, ROWS))), 60),
}


@pytest.mark.parametrize("name", PAIRS)
def test_ordinary_pairs_of_columns_are_none(name: str) -> None:
    for seed in range(20):
        assert found(*PAIRS[name](RNG(seed))) == []


MEASURED = {
    "amounts": lambda r, unit: r.lognormal(0, 1, ROWS),
    "populations": lambda r, unit: r.pareto(1, ROWS),
    "two far crowds": lambda r, unit: r.normal(0, 1, ROWS) + r.choice([0, 50], ROWS),
    "two far boxes": lambda r, unit: r.uniform(0, 1, ROWS) + r.choice([0, 9], ROWS),
    "times of events, with a long pause": lambda r, unit: (
        np.cumsum(r.exponential(1, ROWS)) + 10 * ROWS * (np.arange(ROWS) > ROWS // 2)
    ),
    "told in hundreds": lambda r, unit: np.rint(unit * r.lognormal(0, 1, ROWS)) * 100 / unit,
    "few high ones": lambda r, unit: np.where(r.random(ROWS) < 0.1, 90, r.uniform(0, 1, ROWS)),
}


@pytest.mark.parametrize("name", MEASURED)
def test_measurements_in_whole_numbers_are_no_blocks(name: str) -> None:
    for seed in range(5):
        for unit in (30, 300, 1000, 3000, 30_000, 1_000_000):
            assert found(np.rint(unit * MEASURED[name](RNG(seed), unit))) == []


OF_SEVERAL = {
    "sum": (
        asked,
        '"a" and "b" (their sum or difference has few values): rows lie on lines, and gaps between these are '
        "no groups; keep one of them (-x b)",
    ),
    "cut": (
        followed,
        '"a", "b" and "c" (equal in many rows, as times cut at the end of follow-up): rows in which they are '
        "equal are no group of their own; keep one of them (-x b,c)",
    ),
    "blocks": (
        lambda r: (given_out(r),),
        '"a" (numbers given out in blocks, as ids): gaps between blocks are gaps of the '
        "numbering; leave it out (-x a)",
    ),
}


@pytest.mark.parametrize("kind", OF_SEVERAL)
def test_they_are_warned_of_and_clusters_of_them_are_not_called_clear(kind: str, tmp_path: Path) -> None:
    columns, said = OF_SEVERAL[kind]
    table = pa.table(dict(zip("abc", columns(RNG(0)), strict=False)))
    table = table.append_column("u", [RNG(1).normal(size=len(table))])
    data, model = parquet(tmp_path / "t.parquet", table), tmp_path / "m.npz"
    ran = imdh("fit", data, "-o", model, "--n-init", "1")
    assert f"warning: {said}" in ran.err
    assert "Not clear where how numbers are written or worked out" in ran.err
    assert kept(model) == "close"


def test_sine_and_cosine_are_found_and_what_is_near_them_is_not() -> None:
    rng = RNG(0)
    angle, other = rng.uniform(0, 2 * np.pi, (2, ROWS))
    sine, cosine = np.sin(angle), np.cos(angle)
    assert found(np.sin(other), cosine, rng.normal(size=ROWS), sine, np.cos(other)) == [
        Notation("circle", (0, 4)),
        Notation("circle", (1, 3)),
    ]
    hours = rng.integers(0, 24, ROWS) * np.pi / 12
    assert found(np.sin(hours), np.cos(hours)) == [Notation("circle", (0, 1))]
    assert found(sine, np.where(np.arange(ROWS) % 20 == 0, 0.9 * cosine, cosine)) == []
    assert found(sine, np.abs(cosine)) == []
    assert found(sine, np.cos(other)) == []
    assert found(3 * sine, 3 * cosine) == []
    steps = rng.choice([(-1, 0), (1, 0), (0, -1), (0, 1)], ROWS)
    assert found(*steps.T) == []
    unit = rng.normal(size=(ROWS, 3))
    assert found(*(unit / np.linalg.norm(unit, axis=1, keepdims=True)).T) == []


@pytest.mark.parametrize("block", [100, 100_000])
def test_they_are_found_however_rows_come_in_blocks(block: int) -> None:
    X = np.column_stack([RNG(1).normal(size=ROWS), days(RNG(0))]).astype(float)
    watch = Sentinels(2)
    for k in range(0, ROWS, block):
        watch.add(X[k : k + block])
    watch.found()
    assert watch.notations == [Notation("day", (1,))]


# --- the commands ---------------------------------------------------------------------------------


def fields(**columns: np.ndarray) -> pa.Table:
    rng = RNG(3)
    return pa.table({"u": rng.normal(size=ROWS), "v": rng.gamma(3, 1, ROWS), **columns})


SAID = {
    "month": 'warning: "when" (months written as numbers, YYYYMM): gaps between months and years are gaps '
    "of the notation; leave it out (-x when), or count days or months from a fixed one",
    "year": 'warning: "when" (numbers that begin with a year): gaps between years are gaps of the notation; '
    "leave it out (-x when)",
}


def test_times_are_warned_of(tmp_path: Path) -> None:
    data = parquet(tmp_path / "t.parquet", fields(when=NUMBERED["clock"](RNG(0))))
    assert (
        'warning: "when" (times written as numbers, as 1545 or 7.30): gaps between hours are gaps of the '
        "notation; leave it out (-x when), or count minutes"
    ) in imdh("fit", data, "-o", tmp_path / "m.npz", "--n-init", "1").err


@pytest.mark.parametrize("kind", SAID)
def test_a_model_keeps_what_was_warned_of_and_is_not_called_clear(kind: str, tmp_path: Path) -> None:
    data, model = parquet(tmp_path / "t.parquet", fields(when=NUMBERED[kind](RNG(0)))), tmp_path / "m.npz"
    ran = imdh("fit", data, "-o", model, "--n-init", "1")
    assert SAID[kind] in ran.err
    assert "clear choice" not in ran.err
    assert "Not clear where how numbers are written" in ran.err
    expected = [{"kind": kind, "columns": ["when"], "features": ["when"]}]
    assert metadata(model)["notations"] == expected
    assert metadata(model)["choice"]["clarity"] == "close"
    assert imdh("prune", model, "--json", "-o", tmp_path / "p.npz").json["clarity"] == "close"
    report = imdh("report", model, "--json").json
    assert (
        SAID[kind].removeprefix("warning: ")
        in {w["code"]: w["message"] for w in report["warnings"]}["notation"]
    )
    assert report["choice"]["natural_clarity"] == "close"
    assert (
        imdh("fit", data, "--update", model, "-o", tmp_path / "u.npz", "--json").json["notations"] == expected
    )
    assert "notation" not in imdh("fit", data, "-o", model, "-f", "--n-init", "1", "-x", "when").err


def test_a_circle_that_no_cut_leans_on_leaves_a_choice_clear(tmp_path: Path) -> None:
    angle = RNG(0).uniform(0, 2 * np.pi, ROWS)
    circle = {"s": np.sin(angle), "c": np.cos(angle)}
    apart = {"x": RNG(1).normal(size=ROWS) + 12.0 * (np.arange(ROWS) % 2)}
    words = "--n-init", "1", "-o", tmp_path / "m.npz", "-f"
    alone = imdh("fit", parquet(tmp_path / "a.parquet", fields(**circle)), *words)
    assert (
        'warning: "s" and "c" (sine and cosine of an angle): cuts along them divide the circle' in alone.err
    )
    assert "leave them out (-x s,c)" in alone.err
    assert "Not clear where how numbers" in alone.err
    assert kept(tmp_path / "m.npz") == "close"
    beside = imdh("fit", parquet(tmp_path / "b.parquet", fields(**circle, **apart)), *words, "-k", "2")
    assert "sine and cosine" in beside.err
    assert kept(tmp_path / "m.npz") == "clear"


def kept(path: Path) -> str:
    """What the clusters of a model would be called that were clear by their valleys."""
    model = load(path)
    clear = replace(model.pruned(replace(model.params.prune, clusters=model.n_clusters)), clarity="clear")
    return doubted(clear, model.metadata, model.feature_names, model.directions).clarity


def test_a_run_that_goes_on_later_knows_what_the_first_reading_found(tmp_path: Path) -> None:
    data = parquet(tmp_path / "t.parquet", fields(when=months(RNG(0))))

    def rows() -> FeatureRows:
        source = opened(data)
        return FeatureRows(source, select_features(source, FeatureParams()).spec, params=FitParams())

    first, later = rows(), rows()
    for _ in first.blocks(0):
        pass
    later.restore(json.loads(json.dumps(first.state())))
    assert later.notations == first.notations == [Notation("month", (2,))]


def test_they_are_told_of_in_python_and_survive_an_estimator() -> None:
    table = fields(when=months(RNG(0))).to_pandas()
    with pytest.warns(imdh_cli.ImdhWarning, match="months written as numbers.* leave it out, or count days"):
        fitted = imdh_cli.fit(table, n_init=1)
    with pytest.warns(imdh_cli.ImdhWarning, match="months written as numbers"):
        estimator = imdh_cli.IMDH(n_init=1, random_state=0).fit(table)
    assert estimator.to_model().metadata["notations"] == fitted.metadata["notations"]
