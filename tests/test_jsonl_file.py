"""JSON lines: a record a line, typed like CSV, faults named by line and field."""

from __future__ import annotations

import gzip
import io
import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from imdh_cli.errors import DataError
from imdh_cli.features import Tally, extract, select_features
from imdh_cli.params import FeatureParams, SourceParams
from imdh_cli.sources import open_source
from imdh_cli.sources.csv.numbers import USUAL_NULLS
from imdh_cli.sources.file import Stored
from imdh_cli.sources.jsonl import file as jsonl_file
from tests.cli import PROGRAM, imdh, labels, shell
from tests.tables import features_of, kept_of, opened


def saved(path: Path, *records: Any, end: str = "\n") -> str:
    """Records, or lines that are given as text, in a file."""
    lines = [r if isinstance(r, str) else json.dumps(r, allow_nan=True) for r in records]
    path.write_text("\n".join(lines) + end, newline="")
    return str(path)


def values(path: str, names: list[str], **reading: Any) -> dict[str, list[Any]]:
    return features_of(opened(path, **reading).chunks(names)).to_pydict()


RECORDS = [
    {"id": 10**17 + 7 * i * (-1) ** i, "x": i + 0.5, "s": f"w{i % 3}", "b": i % 2 == 0} for i in range(900)
]


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("batch_rows", [7, 65536])
@pytest.mark.parametrize("end", ["\n", "", "\r\n", "\n\n\n"])
def test_records_come_back_in_their_order(threads: int, batch_rows: int, end: str, tmp_path: Path) -> None:
    path = saved(tmp_path / "t.jsonl", *RECORDS, end=end)
    source = opened(path, threads=threads, batch_rows=batch_rows)
    assert source.parts[0].format == "jsonl"
    assert source.schema.types == [pa.float64(), pa.float64(), pa.string(), pa.float64()]
    chunks = list(source.chunks(["x", "b", "s"], ["id", "x", "b", "s"]))
    assert features_of(chunks).to_pydict() == {
        "x": [r["x"] for r in RECORDS], "b": [float(r["b"]) for r in RECORDS], "s": [r["s"] for r in RECORDS]
    }  # fmt: skip
    assert kept_of(chunks).to_pydict() == {
        "id": [str(r["id"]) for r in RECORDS],  # all digits, though a double has not so many
        "x": [str(r["x"]) for r in RECORDS],
        "b": [str(r["b"]).lower() for r in RECORDS],
        "s": [r["s"] for r in RECORDS],
    }


def test_blocks_end_behind_lines(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = saved(tmp_path / "t.jsonl", *RECORDS)
    for size in (1, 10, 100, 4096):
        monkeypatch.setattr(jsonl_file, "BLOCK", size)
        assert values(path, ["x"])["x"] == [r["x"] for r in RECORDS]


def test_it_is_told_by_content(tmp_path: Path) -> None:
    for name in ("t.jsonl", "t.ndjson", "t.json", "t.txt", "t", "t.csv"):
        assert opened(saved(tmp_path / name, {"x": 1}, {"x": 2})).parts[0].format == "jsonl"
    for name in ("t.jsonl.gz", "t.gz"):
        (tmp_path / name).write_bytes(gzip.compress(b'{"x": 1}\n{"x": 2}\n'))
        assert opened(tmp_path / name).parts[0].format == "jsonl"
        assert values(str(tmp_path / name), ["x"]) == {"x": [1.0, 2.0]}
    for text in ("{a},b\n1,2\n", '"{""a"": 1}",b\n1,2\n', "{,}\n1,2\n"):
        (tmp_path / "t.csv").write_text(text)
        assert opened(tmp_path / "t.csv").parts[0].format == "csv"


# --- what a field holds ---------------------------------------------------------------------------


def test_numbers_are_doubles_whatever_comes_first(tmp_path: Path) -> None:
    lines = [f'{{"x": {i}}}' for i in range(300_000)]
    path = saved(tmp_path / "t.jsonl", *lines, '{"x": 0.25}')
    assert values(path, ["x"])["x"][-2:] == [299_999.0, 0.25]
    kept = kept_of(opened(path).chunks([], ["x"]))["x"].to_pylist()
    assert kept[-2:] == ["299999", "0.25"]


@pytest.mark.parametrize(
    ("written", "read"),
    [
        ('{"y": 1}', None), ('{"x": null}', None), ("{}", None), ('{"x": "NA"}', None), ('{"x": ""}', None),
        ('{"x": NaN}', "nan"), ('{"x": "1.5"}', 1.5), ('{"x": true}', 1.0), ('{"x": false}', 0.0),
        ('{"x": 1e400}', float("inf")), ('{"x": -Infinity}', float("-inf")), ("null", None),
        ('{"x": 12345678901234567890}', 1.2345678901234567e19),
        ('{"x": 3, "q": [{"deep": {}}]}', 3.0), (' {"x" : 4 } ', 4.0),
    ],
)  # fmt: skip
def test_an_odd_value_among_numbers(written: str, read: Any, tmp_path: Path) -> None:
    path = saved(tmp_path / "t.jsonl", *({"x": 0.5},) * 30, written, {"x": 1.5})
    found = values(path, ["x"])["x"]
    assert len(found) == 32
    assert found[31] == 1.5
    assert found[30] == read or (read == "nan" and np.isnan(found[30]))


@pytest.mark.parametrize(
    ("written", "said"),
    [
        ('{"x": "abc"}', r'line 42, column "x": "abc" is not a number'),
        ('{"x": [1]}', r'line 42, column "x": "\[1\]" is not a number'),
        ('{"x": {"y": 1}}', r'line 42, column "x": "{\\"y\\":1}" is not a number'),
        ('{"x": 1', "line 42: no JSON object"),
        ("[1, 2]", "line 42: no JSON object"),
        ("x,y", "line 42: no JSON object"),
        ('{"x": 01}', "line 42: no JSON object"),
    ],
)
def test_a_fault_is_named_by_its_line(written: str, said: str, tmp_path: Path) -> None:
    before = [{"x": 0.5}] * 20
    path = saved(tmp_path / "t.jsonl", *before, "", *before, written, *before)
    with pytest.raises(DataError, match=rf"t\.jsonl, {said}") as caught:
        values(path, ["x"])
    assert "--on-bad-row skip" in str(caught.value.hint)
    source = opened(path, on_bad_row="skip")
    chunks = list(source.chunks(["x"], ["x"]))
    assert source.bad_rows == 1
    assert np.flatnonzero(np.concatenate([c.bad for c in chunks if c.bad is not None])).tolist() == [40]
    assert features_of(chunks)["x"].to_pylist() == [0.5] * 40 + [None] + [0.5] * 20
    assert len(values(path, ["x"], max_rows=40)["x"]) == 40  # nobody asked for the row behind


def test_a_fault_in_a_fragment_has_its_line_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jsonl_file, "LEAST", 200)
    path = saved(
        tmp_path / "t.jsonl", *({"x": i} for i in range(500)), {"x": "?"}, *({"x": i} for i in range(99))
    )
    fragments = opened(path).fragments(["x"]) or []
    assert len(fragments) > 20
    with pytest.raises(DataError, match=r"t\.jsonl, line 501, column"):
        [list(f.chunks()) for f in fragments]


def test_null_values_and_words_as_a_person_says(tmp_path: Path) -> None:
    path = saved(tmp_path / "t.jsonl", *({"x": i, "s": "a"} for i in range(30)), {"x": "?", "s": "?"})
    found = values(path, ["x", "s"], null_values=("?",))
    assert found["x"][-1] is None
    assert found["s"][-1] is None
    assert kept_of(opened(path).chunks([], ["s"]))["s"].to_pylist()[-1] == "?"


def test_a_word_in_every_row_is_text(tmp_path: Path) -> None:
    path = saved(tmp_path / "t.jsonl", *({"x": i if i % 2 else "a", "y": i % 5} for i in range(60)))
    source = opened(path)
    assert source.schema.field("x").type == pa.string()
    assert features_of(source.chunks(["x"]))["x"].to_pylist()[:3] == ["a", "1", "a"]
    source.expect(numbers=["x"])
    with pytest.raises(DataError, match='line 1, column "x": "a" is not a number'):
        list(source.chunks(["x"]))


def test_a_field_that_begins_late_is_found_where_the_file_is_looked_at(tmp_path: Path) -> None:
    lines = ['{"x": 1.5, "pad": "%s"}' % ("p" * 90)] * 30_000
    path = saved(tmp_path / "t.jsonl", *lines, *['{"x": 1.5, "late": 2}'] * 5000)
    found = values(path, ["late"])["late"]
    assert found[:2] == [None, None]
    assert found[-1] == 2.0


def test_bytes_that_are_no_utf8_are_named_and_other_encodings_read(tmp_path: Path) -> None:
    text = '{"x": 1, "s": "ä"}\n{"x": 2, "s": "b"}\n'
    path = tmp_path / "t.jsonl"
    path.write_bytes(text.encode("latin-1"))
    with pytest.raises(DataError, match=r"t\.jsonl, line 1: byte 0xe4 is not utf-8"):
        values(str(path), ["x"])
    for data, reading in (
        (text.encode("latin-1"), {"encoding": "latin-1"}),
        (text.encode("utf-8-sig"), {}),
        (text.encode("utf-16"), {}),
    ):
        path.write_bytes(data)
        assert kept_of(opened(path, **reading, format="jsonl").chunks([], ["s", "x"])).to_pydict() == {
            "s": ["ä", "b"], "x": ["1", "2"],
        }  # fmt: skip


def test_lists_and_objects(tmp_path: Path) -> None:
    rows = [{"v": [i % 7, 0.5, i], "at": {"lat": i % 9, "name": "a"}, "tags": ["p", "q"]} for i in range(200)]
    path = saved(tmp_path / "t.jsonl", *rows)
    source = opened(path)
    selection = select_features(source, FeatureParams())
    assert selection.spec.names == ("v[0]", "v[1]", "v[2]")
    got, used = extract(next(source.chunks(["v"])), selection.spec, Tally())
    assert used.all()
    assert np.array_equal(got, [r["v"] for r in rows])
    source = opened(path)
    spec = select_features(source, FeatureParams(columns=("at.lat",))).spec
    got, _ = extract(next(source.chunks(spec.source_columns)), spec, Tally())
    assert got[:, 0].tolist() == [i % 9 for i in range(200)]
    kept = kept_of(source.chunks([], ["v", "at", "tags"])).to_pylist()
    assert [json.loads(row["v"]) for row in kept] == [r["v"] for r in rows]
    assert [json.loads(row["at"]) for row in kept] == [r["at"] for r in rows]
    assert [json.loads(row["tags"]) for row in kept] == [r["tags"] for r in rows]
    bad = saved(tmp_path / "b.jsonl", *rows, {"v": [1, "x", 2]})
    with pytest.raises(DataError, match='line 201, column "v"'):
        list(opened(bad).chunks(["v"]))


# --- what is no JSON lines ------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["t.json", "t.jsonl", "t.csv"])
@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('[\n{"x": 1},\n{"x": 2}\n]\n', "a JSON array"),
        ('[{"x": 1}, {"x": 2}]', "a JSON array"),
        ('{\n  "x": 1\n}\n', "JSON over several lines"),
    ],
)
def test_other_json_says_how_it_is_made_into_lines(text: str, said: str, name: str, tmp_path: Path) -> None:
    (tmp_path / name).write_text(text)
    with pytest.raises(DataError, match=said) as caught:
        opened(tmp_path / name)
    assert "jq -c" in str(caught.value.hint)


def test_an_empty_file_has_no_data_rows(tmp_path: Path) -> None:
    for text in ("", "\n\n", "{}\n{}\n"):
        (tmp_path / "t.jsonl").write_text(text)
        with pytest.raises(DataError, match=r"no data rows|no column"):
            select_features(opened(tmp_path / "t.jsonl"), FeatureParams())


# --- the whole way --------------------------------------------------------------------------------


@given(
    st.lists(
        st.fixed_dictionaries(
            {},
            optional={
                "x": st.none() | st.floats() | st.integers(-(2**70), 2**70),
                "s": st.none() | st.text(max_size=5),
                "q": st.lists(st.booleans() | st.text(max_size=2), max_size=2),
            },
        ),
        min_size=1,
        max_size=40,
    ),
    st.integers(1, 300),
    st.booleans(),
)
@settings(max_examples=60, deadline=None)
def test_values_are_those_that_python_reads(records: list[dict[str, Any]], block: int, ascii_: bool) -> None:
    data = "".join(json.dumps(r, ensure_ascii=ascii_) + "\n" for r in records).encode()
    stored = Stored("t.jsonl", data[:1024], None, lambda: io.BytesIO(data), None, rereadable=True)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(jsonl_file, "BLOCK", block)
        part = jsonl_file.JsonPart(stored, SourceParams())
        names = [n for n in ("x", "s") if n in part.schema.names]
        got = features_of(part.chunks(names)).to_pydict() if names else {}
    for name in names:
        for value, record in zip(got[name], records, strict=True):
            told = record.get(name)
            told = float(told) if name == "x" and told is not None else told
            told = None if told in USUAL_NULLS and part.schema.field(name).type == pa.float64() else told
            assert value == told or (value != value and told != told)


def test_a_model_is_the_same_from_json_lines_and_from_parquet(tmp_path: Path) -> None:
    rng = np.random.default_rng(1)
    x = rng.normal(size=900) + 8 * (np.arange(900) % 3)
    pq.write_table(pa.table({"x": x, "name": [f"n{i}" for i in range(900)]}), tmp_path / "t.parquet")
    saved(tmp_path / "t.jsonl", *({"x": v, "name": f"n{i}"} for i, v in enumerate(x.tolist())))
    for suffix in ("jsonl", "parquet"):
        imdh("fit", tmp_path / f"t.{suffix}", "-o", tmp_path / f"{suffix}.npz")
        imdh(
            *("assign", tmp_path / f"{suffix}.npz", tmp_path / f"t.{suffix}", "--keep", "name"),
            *("-o", tmp_path / f"{suffix}.csv"),
        )
    assert (tmp_path / "jsonl.csv").read_bytes() == (tmp_path / "parquet.csv").read_bytes()
    assert len(set(labels(tmp_path / "jsonl.csv"))) == 3
    program = " ".join(PROGRAM)
    assert shell(f"cat t.jsonl | {program} assign jsonl.npz - -o piped.csv", tmp_path).status == 0
    assert labels(tmp_path / "piped.csv").tolist() == labels(tmp_path / "jsonl.csv").tolist()


@pytest.mark.parametrize("how", ["plain", "mixed"])
def test_fragments_hold_every_row_once(how: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jsonl_file, "LEAST", 500)
    data = "".join(json.dumps(r) + ("\r\n" if how == "mixed" else "\n") for r in RECORDS)
    (tmp_path / "t.jsonl").write_bytes(("\ufeff" if how == "mixed" else "").encode() + data.rstrip().encode())
    source = open_source([str(tmp_path / "t.jsonl")], SourceParams())
    fragments = source.fragments(["x"]) or []
    assert len(fragments) > 50
    rows = [v for f in fragments for c in f.chunks() for v in c.features.column(0).to_pylist()]
    assert rows == [r["x"] for r in RECORDS]
    assert sum(f.about or 0 for f in fragments) == pytest.approx(900, rel=0.1)
