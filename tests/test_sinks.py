"""Outputs are read back by others: the csv module, pandas, DuckDB, pyarrow."""

from __future__ import annotations

import bz2
import csv
import datetime
import decimal
import gc
import gzip
import io
import math
import os
import resource
import shutil
import signal
import stat
import subprocess
import sys
import threading
import time
from pathlib import Path

import duckdb
import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.csv
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from imdh_cli.errors import DataError, OutputError, UsageError
from imdh_cli.sinks import open_partitions, open_sink
from imdh_cli.sinks.text import encode
from tests.needs import missing

FORMATS = ["csv", "tsv", "csv.gz", "parquet", "arrow", "feather"]


def labels(n: int, seed: int = 0) -> pa.RecordBatch:
    found = np.random.default_rng(seed).integers(-1, 7, n).astype(np.int32)
    return pa.record_batch({"cluster": found})


def mixed(n: int = 50, seed: int = 0) -> pa.RecordBatch:
    rng = np.random.default_rng(seed)
    words = ["plain", "a,b", 'say "hi"', "two\nlines", "cr\r\nlf", "", " edge ", "größe 🌊", "00501", "1.10"]
    return pa.record_batch(
        {
            "text": pa.array(rng.choice(words, n).tolist(), pa.string()),
            "number": pa.array(rng.normal(size=n) * 10.0 ** rng.integers(-20, 20, n)),
            "id": pa.array(rng.integers(-(2**62), 2**62, n)),
            "cluster": pa.array(rng.integers(-1, 5, n).astype(np.int32)),
        }
    )


def written(batches: list[pa.RecordBatch], path: Path, **options: object) -> Path:
    with open_sink(path, batches[0].schema, **options) as sink:
        for batch in batches:
            sink.write(batch)
    return path


def rows_of(path: Path, delimiter: str = ",") -> list[list[str]]:
    with open(path, newline="", encoding="utf-8") as file:
        return list(csv.reader(file, delimiter=delimiter))


# -- CSV


def test_csv_text_comes_back_byte_for_byte_by_the_csv_module(tmp_path):
    batch = mixed()
    header, *rows = rows_of(written([batch], tmp_path / "out.csv"))
    assert header == batch.schema.names
    assert [row[0] for row in rows] == batch["text"].to_pylist()
    assert [int(row[2]) for row in rows] == batch["id"].to_pylist()
    assert [int(row[3]) for row in rows] == batch["cluster"].to_pylist()


def test_csv_is_what_the_csv_module_writes_where_both_quote_as_little_as_possible(tmp_path):
    batch = mixed().select(["text", "id", "cluster"])
    expected = io.StringIO(newline="")
    writer = csv.writer(expected, lineterminator="\n")
    writer.writerow(batch.schema.names)
    writer.writerows(zip(*(column.to_pylist() for column in batch.columns), strict=True))
    path = written([batch], tmp_path / "out.csv")
    assert path.read_bytes().decode() == expected.getvalue()


def test_csv_is_read_by_pandas_duckdb_and_pyarrow(tmp_path):
    batch = mixed()
    path = str(written([batch], tmp_path / "out.csv"))
    by_pandas = pd.read_csv(path, dtype={"text": str}, keep_default_na=False)
    by_duckdb = duckdb.sql(
        f"select * from read_csv('{path}', types={{'text': 'varchar'}}, header=true,"
        " quote='\"', escape='\"', delim=',', allow_quoted_nulls=false)"
    ).fetchall()
    convert = pa.csv.ConvertOptions(column_types={"text": pa.string()})
    parse = pa.csv.ParseOptions(newlines_in_values=True)
    by_pyarrow = pa.csv.read_csv(path, convert_options=convert, parse_options=parse)
    for i, row in enumerate(batch.to_pylist()):
        found = by_pandas.iloc[i].to_dict()
        assert found.pop("number") == pytest.approx(row["number"], rel=1e-14)  # its parser rounds
        assert found.items() <= row.items()
        assert [v if v is not None else "" for v in by_duckdb[i]] == list(row.values())
        assert by_pyarrow.slice(i, 1).to_pylist() == [row]


@given(
    st.lists(
        st.tuples(
            st.text(alphabet=st.characters(codec="utf-8", exclude_characters="\0")), st.text("\"',\r\n ")
        ),
        min_size=1,
    )
)
def test_any_text_comes_back(cells):
    batch = pa.record_batch({"a": [a for a, _ in cells], "b": [b for _, b in cells]})
    text = encode(batch).to_pybytes().decode()
    assert list(csv.reader(io.StringIO(text, newline=""))) == [list(row) for row in cells]


@given(st.lists(st.floats(width=64), min_size=1))
def test_any_float_comes_back_in_its_shortest_digits(values):
    text = encode(pa.record_batch({"x": pa.array(values, pa.float64())})).to_pybytes().decode()
    for line, value in zip(text.splitlines(), values, strict=True):
        if math.isnan(value):
            assert line == "nan"
            continue
        assert float(line) == value
        assert math.copysign(1, float(line)) == math.copysign(1, value)
        assert math.isinf(value) or digits(line) == digits(repr(value))


def digits(text: str) -> str:
    """The digits that matter: no sign, point, exponent, or zeros at either end."""
    return text.lower().split("e")[0].replace(".", "").strip("-+0")


def test_whole_floats_are_written_without_an_exponent_as_far_as_they_are_exact():
    values = [1.7e12, -1e15, 2.0**53 - 1, 0.0, -0.0, 1.0, 1.5, None, 1e16]
    text = encode(pa.record_batch({"x": pa.array(values), "y": [1] * 9})).to_pybytes().decode()
    cells = [line.split(",")[0] for line in text.splitlines()]
    expected = "1700000000000 -1000000000000000 9007199254740991 0 -0 1 1.5  1e+16"
    assert cells == expected.split(" ")


@pytest.mark.parametrize("type_", [pa.int8(), pa.int16(), pa.int32(), pa.int64(), pa.uint8(), pa.uint64()])
@pytest.mark.parametrize("wide", [False, True])
def test_whole_numbers_are_plain_however_wide_their_range(type_, wide):
    bits = type_.bit_width
    signed = pa.types.is_signed_integer(type_)
    low, high = (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1) if signed else (0, 2**bits - 1)
    for values in ([low, high, 0, 1], [high, high - 1], [low, low + 1], [7]) if wide else ([1, 2, 1],):
        text = encode(pa.record_batch({"x": pa.array(values, type_)})).to_pybytes().decode()
        assert text == "".join(f"{v}\n" for v in values)


def test_a_missing_cell_is_empty_in_any_column(tmp_path):
    batch = pa.record_batch(
        {
            "a": pa.array([None, 1, 2], pa.int32()),
            "b": pa.array(["x", None, ""]),
            "c": pa.array([1.5, 2.5, None]),
        }
    )
    path = written([batch], tmp_path / "out.csv")
    assert path.read_text() == "a,b,c\n,x,1.5\n1,,2.5\n2,,\n"


def test_an_empty_cell_alone_on_its_line_is_quoted_so_that_no_reader_skips_the_line(tmp_path):
    batch = pa.record_batch({"only": pa.array(["x", "", None, "y"])})
    path = written([batch], tmp_path / "out.csv")
    assert path.read_text() == 'only\nx\n""\n""\ny\n'
    assert len(pd.read_csv(path)) == 4


def test_headers_are_quoted_where_they_must_be(tmp_path):
    batch = pa.record_batch({'a "b"': ["1"], "c,d": ["2"], "e\nf": ["3"], " g": ["4"]})
    path = written([batch], tmp_path / "out.csv")
    assert rows_of(path) == [['a "b"', "c,d", "e\nf", " g"], ["1", "2", "3", "4"]]


def test_other_types_have_a_text_that_says_the_same(tmp_path):
    moment = datetime.datetime(2024, 2, 29, 12, 30, 15, 250000)
    batch = pa.record_batch(
        {
            "decimal": pa.array([decimal.Decimal("1.20")]),
            "date": pa.array([moment.date()]),
            "moment": pa.array([moment], pa.timestamp("ms")),
            "zone": pa.array([moment], pa.timestamp("us", "UTC")),
            "time": pa.array([moment.time()], pa.time64("us")),
            "span": pa.array([90], pa.duration("s")),
            "bool": pa.array([True]),
            "half": pa.array([np.float16(0.5)]),
            "float": pa.array([0.1], pa.float32()),
            "words": pa.array(["a,b"]).dictionary_encode(),
            "bytes": pa.array([b"x,y"]),
            "large": pa.array(["l"], pa.large_string()),
            "null": pa.nulls(1),
        }
    )
    _, row = rows_of(written([batch], tmp_path / "out.csv"))
    assert row == [
        "1.20", "2024-02-29", "2024-02-29 12:30:15.250", "2024-02-29 12:30:15.250000Z",
        "12:30:15.250000", "90", "true", "0.5", "0.1", "a,b", "x,y", "l", "",
    ]  # fmt: skip


@pytest.mark.parametrize(
    "type_", [pa.list_(pa.string()), pa.struct({"a": pa.int8()}), pa.map_("string", "string")]
)
def test_a_type_without_a_text_is_refused_before_anything_is_read(tmp_path, type_):
    with pytest.raises(DataError, match='column "tags"') as caught:
        open_sink(tmp_path / "out.csv", pa.schema({"tags": type_}))
    assert ".parquet" in caught.value.hint
    assert os.listdir(tmp_path) == []


def test_tabs_separate_a_tsv_and_only_they_are_quoted(tmp_path):
    batch = pa.record_batch({"a": ["x\ty", "p,q"], "b": ["1", "2"]})
    path = written([batch], tmp_path / "out.tsv")
    assert path.read_text() == 'a\tb\n"x\ty"\t1\np,q\t2\n'
    assert rows_of(path, "\t")[1:] == [["x\ty", "1"], ["p,q", "2"]]


def test_many_batches_are_one_table(tmp_path):
    batches = [labels(n, seed=n) for n in (1, 1000, 0, 65_536, 3)]
    path = written(batches, tmp_path / "out.csv")
    expected = np.concatenate([b["cluster"].to_numpy() for b in batches])
    assert np.array_equal(np.loadtxt(path, np.int64, skiprows=1), expected)


def test_slices_of_a_batch_are_written_as_slices(tmp_path):
    batch = mixed(60)
    path = written([batch.slice(0, 0), batch.slice(10, 20), batch.slice(59)], tmp_path / "out.csv")
    expected = batch["text"].to_pylist()[10:30] + batch["text"].to_pylist()[59:]
    assert [row[0] for row in rows_of(path)[1:]] == expected


@pytest.mark.parametrize(
    ("suffix", "unpack"),
    [
        (".gz", gzip.decompress),
        (".bz2", bz2.decompress),
        (".zst", lambda b: pa.CompressedInputStream(pa.BufferReader(b), "zstd").read()),
    ],
)
def test_packed_csv_unpacks_to_the_plain_one(tmp_path, suffix, unpack):
    plain = written([mixed(), mixed(seed=1)], tmp_path / "out.csv").read_bytes()
    packed = written([mixed(), mixed(seed=1)], tmp_path / f"out.csv{suffix}").read_bytes()
    assert unpack(packed) == plain


# -- Parquet and Arrow


@pytest.mark.parametrize("suffix", ["parquet", "pq"])
def test_parquet_comes_back_with_its_types(tmp_path, suffix):
    batch = mixed()
    path = written([batch, batch.slice(3, 9)], tmp_path / f"out.{suffix}")
    expected = pa.Table.from_batches([batch, batch.slice(3, 9)])
    assert pq.read_table(path).equals(expected)
    assert pd.read_parquet(path).equals(expected.to_pandas())
    assert duckdb.sql(f"select cluster from read_parquet('{path}')").fetchall() == [
        (c.as_py(),) for c in expected["cluster"]
    ]


@pytest.mark.parametrize("suffix", ["arrow", "feather", "ipc"])
def test_arrow_comes_back_with_its_types(tmp_path, suffix):
    batch = mixed()
    path = written([batch, batch.slice(3, 9)], tmp_path / f"out.{suffix}")
    expected = pa.Table.from_batches([batch, batch.slice(3, 9)])
    with pa.memory_map(str(path)) as file:
        assert pa.ipc.open_file(file).read_all().equals(expected)
    assert pd.read_feather(path).equals(expected.to_pandas())


def test_nested_and_other_types_pass_through_parquet_and_arrow(tmp_path):
    batch = pa.record_batch(
        {
            "list": pa.array([[1], None, [2, 3]]),
            "struct": pa.array([{"a": 1}, None, {"a": 2}]),
            "when": pa.array([1, None, 3], pa.timestamp("ns", "Europe/Paris")),
            "decimal": pa.array([decimal.Decimal("1.20"), None, decimal.Decimal("-3.10")]),
            "bytes": pa.array([b"\xff", None, b""]),
        }
    )
    assert pq.read_table(written([batch], tmp_path / "o.parquet")).to_pylist() == batch.to_pylist()
    path = written([batch], tmp_path / "o.arrow")
    assert pa.ipc.open_file(path.read_bytes()).read_all().to_pylist() == batch.to_pylist()


@pytest.mark.parametrize("suffix", ["parquet", "arrow", "csv"])
def test_dictionaries_may_change_from_batch_to_batch(tmp_path, suffix):
    batches = [
        pa.record_batch(
            {"kind": pa.array(kinds).dictionary_encode(), "cluster": pa.array([1, 2], pa.int32())}
        )
        for kinds in (["a", "b"], ["c", "a"], ["b", "b"])
    ]
    path = written(batches, tmp_path / f"out.{suffix}")
    table = {"parquet": pd.read_parquet, "arrow": pd.read_feather, "csv": pd.read_csv}[suffix](path)
    assert table["kind"].tolist() == ["a", "b", "c", "a", "b", "b"]


def test_parquet_row_groups_are_large_however_small_the_batches(tmp_path):
    path = written([labels(5000, seed) for seed in range(300)], tmp_path / "out.parquet")
    sizes = [pq.ParquetFile(path).metadata.row_group(i).num_rows for i in range(2)]
    assert sizes == [1_050_000, 450_000]


def test_wide_rows_make_smaller_row_groups_so_that_memory_stays_bounded(tmp_path):
    wide = pa.record_batch({"text": ["x" * 1000] * 10_000})
    path = written([wide] * 15, tmp_path / "out.parquet")
    assert pq.ParquetFile(path).metadata.num_row_groups == 3


def test_a_type_parquet_does_not_have_is_refused_before_anything_is_read(tmp_path):
    union = pa.sparse_union([pa.field("a", pa.int8()), pa.field("b", pa.string())])
    with pytest.raises(DataError, match=r'column "odd" is .*Parquet does not have'):
        open_sink(tmp_path / "out.parquet", pa.schema({"odd": union}))
    assert os.listdir(tmp_path) == []


# -- any format


@pytest.mark.parametrize("suffix", FORMATS)
def test_without_rows_there_is_still_a_header_or_a_schema(tmp_path, suffix):
    path = tmp_path / f"out.{suffix}"
    open_sink(path, mixed().schema).close()
    read = {
        "csv": pd.read_csv, "tsv": lambda p: pd.read_csv(p, sep="\t"), "csv.gz": pd.read_csv,
        "parquet": pd.read_parquet, "arrow": pd.read_feather, "feather": pd.read_feather,
    }[suffix]  # fmt: skip
    table = read(path)
    assert list(table) == mixed().schema.names
    assert len(table) == 0


@pytest.mark.parametrize("suffix", FORMATS)
def test_the_same_rows_give_the_same_bytes(tmp_path, suffix):
    a = written([mixed()], tmp_path / f"a.{suffix}").read_bytes()
    assert written([mixed()], tmp_path / f"b.{suffix}").read_bytes() == a


@pytest.mark.parametrize("suffix", FORMATS)
@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt, SystemExit])
def test_an_interrupted_output_leaves_the_old_file_and_no_temporary(tmp_path, suffix, error):
    path = tmp_path / f"out.{suffix}"
    path.write_bytes(b"old")

    def fail():
        with open_sink(path, mixed().schema, force=True) as sink:
            sink.write(mixed(20_000))
            raise error

    with pytest.raises(error):
        fail()
    assert path.read_bytes() == b"old"
    assert os.listdir(tmp_path) == [path.name]


@pytest.mark.parametrize("suffix", FORMATS)
def test_a_full_disk_leaves_the_old_file_and_no_temporary(tmp_path, suffix):
    path = tmp_path / f"out.{suffix}"
    path.write_bytes(b"old")
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 15, hard))
    try:
        with pytest.raises(OutputError, match=r"cannot write .*: file too large") as caught:
            written([mixed(60_000, seed) for seed in range(3)], path, force=True)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert caught.value.status == 1
    assert path.read_bytes() == b"old"
    assert os.listdir(tmp_path) == [path.name]


@pytest.mark.parametrize("suffix", FORMATS)
def test_an_existing_output_is_refused_without_force(tmp_path, suffix):
    path = tmp_path / f"out.{suffix}"
    path.write_bytes(b"old")
    with pytest.raises(UsageError, match="exists"):
        open_sink(path, labels(1).schema)
    assert path.read_bytes() == b"old"


@pytest.mark.parametrize("suffix", FORMATS)
def test_an_output_that_is_an_input_is_refused_even_with_force(tmp_path, suffix):
    path = tmp_path / f"out.{suffix}"
    path.write_bytes(b"old")
    with pytest.raises(UsageError, match="is also an input"):
        open_sink(path, labels(1).schema, force=True, inputs=[str(path)])


def test_a_name_that_says_no_format_is_refused_with_those_there_are(tmp_path):
    with pytest.raises(UsageError, match="does not say what to write") as caught:
        open_sink(tmp_path / "labels.xlsx", labels(1).schema)
    assert ".parquet" in caught.value.hint


def test_numbers_of_a_wider_type_are_taken_where_nothing_is_lost(tmp_path):
    schema = pa.schema({"x": pa.float64()})
    with open_sink(tmp_path / "out.parquet", schema) as sink:
        sink.write(pa.record_batch({"x": pa.array([1, 2], pa.int32())}))
        sink.write(pa.record_batch({"x": pa.array([0.5], pa.float64())}))
        assert sink.rows == 3
    assert pq.read_table(tmp_path / "out.parquet")["x"].to_pylist() == [1.0, 2.0, 0.5]


@pytest.mark.parametrize("cells", [[0.5], [[1]]])  # no such value, and nothing that leads from type to type
def test_a_value_that_does_not_fit_names_the_column(tmp_path, cells):
    with (
        pytest.raises(DataError, match=r'column "x" changes from int32 to (double|list)'),
        open_sink(tmp_path / "out.csv", pa.schema({"x": pa.int32()})) as sink,
    ):
        sink.write(pa.record_batch({"x": cells}))
    assert os.listdir(tmp_path) == []


# -- standard output, pipes and devices

TO_STDOUT = """
import sys, numpy as np, pyarrow as pa
from imdh_cli.sinks import open_sink
batch = pa.record_batch({"cluster": np.ones(65536, np.int32)})
try:
    with open_sink(sys.argv[1], batch.schema) as sink:
        for _ in range(int(sys.argv[2])):
            sink.write(batch)
except Exception as error:
    print(type(error).__name__, error, file=sys.stderr)
    sys.stdout = None
    import os; os._exit(1)
"""


def run(target: str, times: int, **options: object) -> subprocess.CompletedProcess[bytes]:
    command = [sys.executable, "-c", TO_STDOUT, target, str(times)]
    return subprocess.run(command, stderr=subprocess.PIPE, **options)


@pytest.mark.parametrize("target", ["-", "/dev/stdout", "/dev/fd/1"])
def test_a_dash_is_csv_on_standard_output(target):
    done = run(target, 2, stdout=subprocess.PIPE)
    assert done.stdout == b"cluster\n" + b"1\n" * 131_072
    assert done.stderr == b""


def test_a_full_standard_output_is_an_output_error():
    with open("/dev/full", "wb") as full:
        done = run("-", 2, stdout=full)
    assert done.stderr == b"OutputError cannot write standard output: no space left on device\n"


def test_a_closed_standard_output_is_a_broken_pipe():
    read, write = os.pipe()
    os.close(read)
    done = run("-", 2, stdout=write)
    os.close(write)
    assert done.stderr.startswith(b"BrokenPipeError")


@pytest.mark.parametrize("target", ["/dev/full"])
def test_a_full_device_is_an_output_error(target):
    with pytest.raises(OutputError, match="cannot write /dev/full: no space left on device"):
        written([labels(10)], Path(target))


@pytest.mark.parametrize("name", ["pipe", "pipe.parquet", "pipe.arrow"])
def test_a_fifo_gets_what_a_file_would(tmp_path, name):
    pipe = tmp_path / name
    os.mkfifo(pipe)
    got: list[bytes] = []
    reader = threading.Thread(target=lambda: got.append(pipe.read_bytes()))
    reader.start()
    written([labels(100_000)], pipe)
    reader.join()
    suffix = pipe.suffix or ".csv"
    assert got[0] == written([labels(100_000)], tmp_path / f"file{suffix}").read_bytes()
    assert stat.S_ISFIFO(pipe.stat().st_mode)


@pytest.mark.parametrize("suffix", ["csv", "parquet"])
def test_a_terminated_run_leaves_the_old_file(tmp_path, suffix):
    code = TO_STDOUT.replace(
        "import sys,", "import signal; signal.signal(15, lambda *_: exit(130))\nimport sys,"
    ).replace("open_sink(sys.argv[1], batch.schema)", "open_sink(sys.argv[1], batch.schema, force=True)")
    code = code.replace(
        "            sink.write(batch)", "            sink.write(batch); print(1, flush=True)"
    )
    path = tmp_path / f"out.{suffix}"
    path.write_bytes(b"old")
    command = [sys.executable, "-c", code, path, "1000000"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        for _ in range(20):
            process.stdout.readline()
        process.send_signal(signal.SIGTERM)
        process.stdout.close()
        assert process.stderr.read() == b""
        assert process.wait(10) == 130
    assert path.read_bytes() == b"old"
    assert os.listdir(tmp_path) == [path.name]


# -- a folder per cluster


def test_partitions_hold_every_row_in_order_under_its_cluster(tmp_path):
    batches = [mixed(500, seed) for seed in range(4)]
    with open_partitions(tmp_path / "out", batches[0].schema, "cluster") as sink:
        for batch in batches:
            sink.write(batch)
    table = pa.Table.from_batches(batches).to_pandas()
    assert sorted(os.listdir(tmp_path / "out")) == sorted(f"cluster={k}" for k in table["cluster"].unique())
    for cluster, rows in table.groupby("cluster"):
        part = pq.ParquetFile(tmp_path / f"out/cluster={cluster}/part-0.parquet").read().to_pandas()
        assert part.equals(rows.drop(columns="cluster").reset_index(drop=True))


def test_partitions_are_hive_folders_to_duckdb_and_pyarrow(tmp_path):
    batch = mixed(500)
    with open_partitions(tmp_path / "out", batch.schema, "cluster") as sink:
        sink.write(batch)
    expected = sorted((r["id"], r["cluster"]) for r in batch.to_pylist())
    found = duckdb.sql(
        f"select id, cluster::int from read_parquet('{tmp_path}/out/**/*.parquet', hive_partitioning=true)"
    ).fetchall()
    assert sorted(found) == expected
    table = ds.dataset(tmp_path / "out", partitioning="hive").to_table(["id", "cluster"])
    assert sorted(zip(table["id"].to_pylist(), table["cluster"].to_pylist(), strict=True)) == expected


def test_partitions_take_more_clusters_than_open_files(tmp_path):
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (80, hard))
    try:
        batch = pa.record_batch({"x": np.arange(600), "cluster": np.arange(600) % 300})
        with open_partitions(tmp_path / "out", batch.schema, "cluster") as sink:
            sink.write(batch)
            sink.write(batch)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    part = pq.ParquetFile(tmp_path / "out/cluster=7/part-0.parquet").read()
    assert part["x"].to_pylist() == [7, 307, 7, 307]


def test_partitions_pass_every_type_through(tmp_path):
    batch = pa.record_batch(
        {
            "text": pa.array(["a", "b", None]),
            "kind": pa.array(["x", "y", "x"]).dictionary_encode(),
            "list": pa.array([[1], None, [2, 3]]),
            "cluster": pa.array([2, 1, 2], pa.int32()),
        }
    )
    with open_partitions(tmp_path / "out", batch.schema, "cluster") as sink:
        sink.write(batch)
    part = pq.ParquetFile(tmp_path / "out/cluster=2/part-0.parquet").read()
    assert part.to_pylist() == [
        {"text": "a", "kind": "x", "list": [1]},
        {"text": None, "kind": "x", "list": [2, 3]},
    ]


def test_partitions_refuse_a_type_parquet_does_not_have_before_anything_is_read(tmp_path):
    union = pa.sparse_union([pa.field("a", pa.int8()), pa.field("b", pa.string())])
    schema = pa.schema({"odd": union, "cluster": pa.int32()})
    with pytest.raises(DataError, match='column "odd"'):
        open_partitions(tmp_path / "out", schema, "cluster")
    assert os.listdir(tmp_path) == []


def test_view_types_pass_through(tmp_path):
    if int(pa.__version__.split(".")[0]) < 18:
        missing("views", "Arrow 17 turns its view types into no others")
    cluster = pa.array([2, 1, 2], pa.int32())
    batch = pa.record_batch({"view": pa.array(["a,", "b", None], pa.string_view()), "cluster": cluster})
    with open_partitions(tmp_path / "out", batch.schema, "cluster") as sink:
        sink.write(batch)
    part = pq.ParquetFile(tmp_path / "out/cluster=2/part-0.parquet").read()
    assert part["view"].to_pylist() == ["a,", None]
    assert written([batch], tmp_path / "o.csv").read_text() == 'view,cluster\n"a,",2\nb,1\n,2\n'
    table = pa.ipc.open_file(written([batch], tmp_path / "o.arrow").read_bytes()).read_all()
    assert table.to_pylist() == batch.to_pylist()


def test_a_label_column_of_any_name_becomes_one_folder_each(tmp_path):
    batch = pa.record_batch({"x": [1], "a/b=c": pa.array([3], pa.int32())})
    with open_partitions(tmp_path / "out", batch.schema, "a/b=c") as sink:
        sink.write(batch)
    assert os.listdir(tmp_path / "out") == ["a%2Fb%3Dc=3"]


@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt])
def test_interrupted_partitions_leave_the_old_folder_and_no_temporary(tmp_path, error):
    batch = mixed(100)
    with open_partitions(tmp_path / "out", batch.schema, "cluster") as sink:
        sink.write(batch)
    before = sorted(tmp_path.rglob("*"))

    def fail():
        with open_partitions(tmp_path / "out", batch.schema, "cluster", force=True) as sink:
            sink.write(batch.slice(0, 5))
            raise error

    with pytest.raises(error):
        fail()
    assert sorted(tmp_path.rglob("*")) == before


@pytest.mark.parametrize("room", [2, 100, 5000, 1 << 15])
def test_a_full_disk_leaves_the_old_partitions(tmp_path, room):
    batch = mixed(50_000)
    with open_partitions(tmp_path / "out", batch.schema, "cluster") as sink:
        sink.write(batch.slice(0, 50))
    before = {p: p.stat().st_ino for p in tmp_path.rglob("*")}
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (room, hard))
    try:
        with (
            pytest.raises(OutputError, match="file too large"),
            open_partitions(tmp_path / "out", batch.schema, "cluster", force=True) as sink,
        ):
            sink.write(batch)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert {p: p.stat().st_ino for p in tmp_path.rglob("*")} == before
    gc.collect()  # what Arrow has not closed would write, and be told of, now


def test_partitions_replace_a_folder_of_partitions_only_with_force(tmp_path):
    batch = mixed(100)
    for force in (False, True):
        with open_partitions(tmp_path / "out", batch.schema, "cluster", force=force) as sink:
            sink.write(batch.slice(0, 100 if not force else 1))
        with pytest.raises(UsageError, match="exists"):
            open_partitions(tmp_path / "out", batch.schema, "cluster")
    assert len(os.listdir(tmp_path / "out")) == 1
    assert os.listdir(tmp_path) == ["out"]


REPLACE = """
import sys, pyarrow as pa
from imdh_cli.sinks import open_partitions
n = int(sys.argv[2])
while True:
    n += 1
    batch = pa.record_batch({"n": [n] * 40, "cluster": pa.array([1 + i % 8 for i in range(40)], pa.int32())})
    with open_partitions(sys.argv[1], batch.schema, "cluster", force=True) as sink:
        sink.write(batch)
    print(n, flush=True)
"""


def number_in(folder):
    """What the run wrote that the folder is of; all of it must be there."""
    found = [pq.ParquetFile(path).read() for path in sorted(folder.rglob("*.parquet"))]
    numbers = [n for table in found for n in table["n"].to_pylist()]
    assert len(found) == 8
    assert len(numbers) == 40
    assert len(set(numbers)) == 1
    return numbers[0]


def test_a_folder_that_is_replaced_is_there_whenever_the_run_is_killed(tmp_path):
    folder, rng, n = tmp_path / "out", np.random.default_rng(0), 0
    for _ in range(6):
        run = subprocess.Popen(
            [sys.executable, "-c", REPLACE, folder, str(n)], stdout=subprocess.PIPE, env=os.environ
        )
        assert run.stdout is not None
        n = int(run.stdout.readline())
        start = time.monotonic()
        while time.monotonic() - start < rng.uniform(0.05, 0.3):
            assert folder.is_dir()  # at no moment is it away
        run.kill()
        done = [int(line) for line in run.stdout.read().splitlines()]
        run.wait()
        run.stdout.close()
        assert number_in(folder) >= max([n, *done])
        n = number_in(folder)
        for left in tmp_path.glob(".out.*"):  # the run that was killed
            assert left.name.endswith(".tmp")
            shutil.rmtree(left)


def test_without_an_exchange_a_kill_between_the_renames_is_mended_by_the_next_run(tmp_path, monkeypatch):
    batch = mixed(100)
    monkeypatch.setattr("imdh_cli.sinks.partitions.exchange", lambda a, b: False)
    with open_partitions(tmp_path / "out", batch.schema, "cluster") as sink:
        sink.write(batch)
    before = sorted(path.relative_to(tmp_path / "out") for path in tmp_path.glob("out/**/*"))
    os.rename(tmp_path / "out", tmp_path / ".out.0123456789ab.old")  # where such a run is killed
    with pytest.raises(UsageError, match="exists"):
        open_partitions(tmp_path / "out", batch.schema, "cluster")
    assert sorted(path.relative_to(tmp_path / "out") for path in tmp_path.glob("out/**/*")) == before
    with open_partitions(tmp_path / "out", batch.schema, "cluster", force=True) as sink:
        sink.write(batch.slice(0, 1))
    assert os.listdir(tmp_path) == ["out"]
    assert len(os.listdir(tmp_path / "out")) == 1


@pytest.mark.parametrize("stranger", ["notes.txt", "cluster=1/notes.txt", "year=2024/part.parquet"])
def test_a_folder_with_anything_else_in_it_is_never_replaced(tmp_path, stranger):
    path = tmp_path / "out" / stranger
    path.parent.mkdir(parents=True)
    path.write_text("precious")
    with pytest.raises(UsageError, match="is not replaced"):
        open_partitions(tmp_path / "out", mixed().schema, "cluster", force=True)
    assert path.read_text() == "precious"


def test_an_empty_folder_is_filled(tmp_path):
    (tmp_path / "out").mkdir()
    with open_partitions(tmp_path / "out", mixed().schema, "cluster") as sink:
        sink.write(mixed())
    assert "cluster=1" in os.listdir(tmp_path / "out")


def test_a_folder_that_holds_an_input_is_refused(tmp_path):
    (tmp_path / "data").mkdir()
    (tmp_path / "data/x.csv").write_text("x\n1\n")
    for inputs in ([tmp_path / "data/x.csv"], [tmp_path / "data"], [f"{tmp_path}/*/*.csv"]):
        with pytest.raises(UsageError, match="holds the input"):
            open_partitions(tmp_path / "data", mixed().schema, "cluster", force=True, inputs=inputs)


def test_partitions_refuse_a_file_and_a_missing_folder(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(UsageError, match="is a file"):
        open_partitions(tmp_path / "file", mixed().schema, "cluster", force=True)
    with pytest.raises(OutputError, match="no such folder"):
        open_partitions(tmp_path / "a/b", mixed().schema, "cluster")


def test_partitions_of_labels_alone_are_refused_with_what_to_add(tmp_path):
    with pytest.raises(UsageError, match="needs columns") as caught:
        open_partitions(tmp_path / "out", labels(1).schema, "cluster")
    assert "--keep" in caught.value.hint


def test_partitions_flush_the_largest_when_they_hold_too_much(tmp_path, monkeypatch):
    monkeypatch.setattr("imdh_cli.sinks.partitions._GATHER", 100_000)
    batches = [mixed(2000, seed) for seed in range(10)]
    with open_partitions(tmp_path / "out", batches[0].schema, "cluster") as sink:
        for batch in batches:
            sink.write(batch)
            assert sink._waiting_bytes <= 100_000
    files = sorted((tmp_path / "out").rglob("*.parquet"))
    assert sum(pq.ParquetFile(f).metadata.num_rows for f in files) == 20_000
    assert pq.ParquetFile(files[0]).metadata.num_row_groups > 1
