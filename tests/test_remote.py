"""s3:// against a real S3 server on loopback, https:// against a web server: no network is used."""

from __future__ import annotations

import gzip
import socket
import threading
import time
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pyarrow as pa
import pytest
from pyarrow import fs

from imdh_cli.errors import DataError, UsageError
from imdh_cli.sources import remote_file
from tests.tables import arrow, arrow_stream, features_of, kept_of, opened, parquet, table

Put = Callable[[str, bytes], str]


@pytest.fixture(scope="module")
def s3_address() -> Iterator[str]:
    """An S3 server, moto's, with an empty bucket called `data`."""
    server_module = pytest.importorskip("moto.server")
    server = server_module.ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    yield f"{host}:{port}"
    server.stop()


@pytest.fixture
def put(s3_address: str, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> Put:
    """Write an object below a prefix of the test's own; gives its URI."""
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "test")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "test")
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://{s3_address}")
    system = fs.S3FileSystem(
        endpoint_override=s3_address, scheme="http", region="us-east-1", allow_bucket_creation=True
    )
    system.create_dir("data")
    prefix = f"data/{abs(hash(request.node.name))}"

    def write(key: str, content: bytes) -> str:
        with system.open_output_stream(f"{prefix}/{key}", compression=None) as stream:
            stream.write(content)
        return f"s3://{prefix}/{key}"

    return write


def parquet_bytes(folder: Path, content: pa.Table, groups: list[int] | None = None) -> bytes:
    return Path(parquet(folder / "made.parquet", content, groups)).read_bytes()


# -- S3


@pytest.mark.parametrize("threads", [1, 2])
def test_a_parquet_object_is_read_as_the_file(tmp_path: Path, put: Put, threads: int) -> None:
    content = table(1000)
    uri = put("t.parquet", parquet_bytes(tmp_path, content, [300, 1, 699]))
    source = opened(uri, threads=threads, batch_rows=128)
    assert (source.rows, source.rereadable) == (1000, True)
    assert source.parts[0].name == uri
    for _ in range(2):
        chunks = list(source.chunks(["y", "x"], ["id", "word"]))
        assert features_of(chunks) == content.select(["y", "x"])
        assert kept_of(chunks) == content.select(["id", "word"])
    fragments = source.fragments(["id"]) or []
    assert [p.rows for p in fragments] == [300, 1, 699]
    ids = [i for p in reversed(fragments) for c in p.chunks() for i in c.features["id"].to_pylist()]
    assert sorted(ids) == list(range(1000))


def test_a_large_row_group_is_read_through_buffers(
    tmp_path: Path, put: Put, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("imdh_cli.sources.parquet_file.FETCH", 1000)
    monkeypatch.setattr("imdh_cli.sources.parquet_file.BUFFER", 4096)
    uri = put("t.parquet", parquet_bytes(tmp_path, table(5000), [2000, 3000]))
    assert features_of(opened(uri).chunks(["x", "id"])) == table(5000).select(["x", "id"])


def test_csv_arrow_and_compressed_objects_are_read(tmp_path: Path, put: Put) -> None:
    text = b"id,x\n" + b"".join(b"%d,%d.5\n" % (i, i) for i in range(500))
    file = Path(arrow(tmp_path / "t.arrow", table(500), 100)).read_bytes()
    for uri in (
        put("t.csv", text),
        put("t.csv.gz", gzip.compress(text)),
        put("t.arrow", file),
        put("t.arrows", arrow_stream(table(500), 100)),
    ):
        source = opened(uri)
        assert source.size is not None
        assert source.sample(3)["id"].to_pylist() == [0, 1, 2]
        for _ in range(2):
            assert features_of(source.chunks(["id"]))["id"].to_pylist() == list(range(500))


def test_a_prefix_is_a_folder_in_natural_order_with_strangers_named(tmp_path: Path, put: Put) -> None:
    for i in (10, 2, 1):
        uri = put(f"t/part-{i}.parquet", parquet_bytes(tmp_path, table(5, start=5 * i)))
    put("t/notes.txt", b"x")
    put("t/_SUCCESS", b"")
    put("t/_temporary/part-3.parquet", b"x")
    folder = uri.rpartition("/")[0]
    for location in (folder, folder + "/"):
        source = opened(location)
        ids = features_of(source.chunks(["id"]))["id"].to_pylist()
        assert ids == [*range(5, 15), *range(50, 55)]
        assert len(source.notes) == 1
        assert "notes.txt" in source.notes[0]


def test_patterns_and_hive_keys_work_as_on_this_machine(put: Put) -> None:
    for year, name in ((2023, "a.csv"), (2024, "a.csv"), (2024, "b.txt")):
        uri = put(f"h/y={year}/{name}", b"x\n%d\n" % year)
    root = uri.partition("/y=")[0]
    for pattern in ("", "/*/*.csv", "/**/*.csv", "/y=20??/a.*", "/y=202[34]/a.csv"):
        kept = kept_of(opened(root + pattern).chunks(["x"], ["y", "x"]))
        assert kept.to_pydict() == {"y": ["2023", "2024"], "x": ["2023", "2024"]}
    assert kept_of(opened(root + "/*/*.txt").chunks(["x"], ["y"]))["y"].to_pylist() == ["2024"]
    with pytest.raises(DataError, match="no file matches"):
        opened(root + "/*.parquet")


def test_a_missing_object_names_bucket_region_and_the_nearest(put: Put) -> None:
    uri = put("prices.csv", b"x\n1\n")
    with pytest.raises(DataError, match=r'no such file \(bucket "data", region us-east-1') as caught:
        opened(uri.replace("prices", "price"))
    assert "prices.csv" in str(caught.value.hint)


@pytest.mark.usefixtures("put")
def test_a_missing_bucket_is_named() -> None:
    with pytest.raises(DataError, match=r'no such bucket .*"nowhere"'):
        opened("s3://nowhere/t.csv")


def test_the_region_is_the_one_that_was_given(put: Put, monkeypatch: pytest.MonkeyPatch) -> None:
    uri = put("t.csv", b"x\n1\n")
    with pytest.raises(DataError, match="region eu-north-1"):
        opened(uri + "x?region=eu-north-1")
    monkeypatch.setenv("AWS_REGION", "ap-south-1")
    with pytest.raises(DataError, match="region ap-south-1"):
        opened(uri + "x")


def test_the_endpoint_can_stand_in_the_address(
    put: Put, s3_address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    uri = put("t.csv", b"x\n1\n")
    monkeypatch.delenv("AWS_ENDPOINT_URL")
    source = opened(f"{uri}?endpoint_override={s3_address}&scheme=http")
    assert source.parts[0].name == uri
    assert features_of(source.chunks(["x"]))["x"].to_pylist() == [1.0]


def test_a_damaged_object_is_a_damaged_file(put: Put) -> None:
    with pytest.raises(DataError, match=r"t\.parquet: not a readable Parquet file"):
        opened(put("t.parquet", b"PAR1" + bytes(1000)))
    with pytest.raises(DataError, match="the file is empty"):
        opened(put("e.parquet", b""))


@pytest.mark.usefixtures("put")
def test_an_address_that_makes_no_sense_is_a_usage_error() -> None:
    for uri in ("s3://", "s3:///key", "s3://id:secret@bucket/key", "s3://b/k?colour=red"):
        with pytest.raises(UsageError):
            opened(uri)


def test_an_error_never_shows_what_follows_the_question_mark() -> None:
    for uri in ("s3://b/k?secret=hunter2", "https://127.0.0.1:9/t.csv?token=hunter2"):
        with pytest.raises((UsageError, DataError)) as caught:
            opened(uri)
        assert "hunter2" not in f"{caught.value.message} {caught.value.hint}"


@pytest.fixture
def silent() -> Iterator[str]:
    """A server that takes connections and never says a word."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        taken: list[socket.socket] = []

        def accept() -> None:
            while True:
                try:
                    taken.append(listener.accept()[0])
                except OSError:
                    return

        threading.Thread(target=accept, daemon=True).start()
        yield f"127.0.0.1:{listener.getsockname()[1]}"
        listener.close()
        for connection in taken:
            connection.close()


@pytest.mark.usefixtures("put")
def test_an_s3_server_that_does_not_answer_is_given_up(silent: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(remote_file, "SILENT", 1.0)
    monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://{silent}")
    before = time.perf_counter()
    with pytest.raises(DataError, match=r'cannot be read \(bucket "b", region us-east-1') as caught:
        opened("s3://b/k.csv")
    assert time.perf_counter() - before < 20
    assert "network" in str(caught.value.hint)


@pytest.mark.usefixtures("put")
def test_an_s3_server_that_is_not_there_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:9")
    with pytest.raises(DataError, match=r"endpoint 127\.0\.0\.1:9") as caught:
        opened("s3://b/k.csv")
    assert "network" in str(caught.value.hint)


# -- Hadoop and Google


def test_hdfs_without_hadoop_says_what_it_needs(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("HADOOP_HOME", "ARROW_LIBHDFS_DIR", "JAVA_HOME"):
        monkeypatch.delenv(name, raising=False)
    with pytest.raises(DataError, match="name node node:8020") as caught:
        opened("hdfs://node:8020/t.parquet")
    assert "HADOOP_HOME" in str(caught.value.hint)


def test_a_google_bucket_that_cannot_be_reached_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(remote_file, "SILENT", 0.5)
    with pytest.raises(DataError, match=r'gs://b/k\.csv: cannot be read \(bucket "b"'):
        opened("gs://b/k.csv?endpoint_override=127.0.0.1:9&scheme=http&anonymous=true")


# -- the web


class Web(BaseHTTPRequestHandler):
    """Serves `files`, with or without byte ranges; a name with `cut` breaks off half way."""

    files: dict[str, bytes]
    ranges = True

    def do_HEAD(self) -> None:
        self.answer(head=True)

    def do_GET(self) -> None:
        self.answer(head=False)

    def answer(self, *, head: bool) -> None:
        name = self.path.lstrip("/").partition("?")[0]
        content = self.files.get(name)
        if content is None:
            self.send_error(404)
            return
        start, stop = 0, len(content)
        asked = self.headers.get("Range") if self.ranges else None
        if asked:
            first, _, last = asked.removeprefix("bytes=").partition("-")
            start, stop = int(first), min(int(last or stop) + 1, stop)
            self.send_response(206)
            self.send_header("Content-Range", f"bytes {start}-{stop - 1}/{len(content)}")
        else:
            self.send_response(200)
        if self.ranges:
            self.send_header("Accept-Ranges", "bytes")
        self.send_header("Content-Length", str(stop - start))
        self.end_headers()
        if not head:
            if "cut" in name and start > 0:
                self.wfile.write(content[start : (start + stop) // 2])
                self.close_connection = True
            else:
                self.wfile.write(content[start:stop])

    def log_message(self, *args: object) -> None:
        pass


@pytest.fixture
def web() -> Iterator[tuple[str, type[Web]]]:
    pytest.importorskip("aiohttp")
    handler = type("Handler", (Web,), {"files": {}})
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}", handler
    server.shutdown()
    server.server_close()


@pytest.mark.parametrize("ranges", [True, False])
def test_web_files_of_every_format_are_read(tmp_path: Path, web: tuple[str, type[Web]], ranges: bool) -> None:
    address, handler = web
    handler.ranges = ranges
    text = b"id,x\n" + b"".join(b"%d,%d.5\n" % (i, i) for i in range(500))
    handler.files = {
        "t.parquet": parquet_bytes(tmp_path, table(500), [200, 300]),
        "t.csv": text,
        "t.csv.gz": gzip.compress(text),
        "t.arrow": Path(arrow(tmp_path / "t.arrow", table(500), 100)).read_bytes(),
        "t.arrows": arrow_stream(table(500), 100),
    }
    for name in handler.files:
        source = opened(f"{address}/{name}?signature=secret")
        assert source.parts[0].name == f"{address}/{name}"
        assert source.sample(3)["id"].to_pylist() == [0, 1, 2]
        for _ in range(2):
            assert features_of(source.chunks(["id"]))["id"].to_pylist() == list(range(500))


def test_a_web_file_that_is_not_there_is_named(web: tuple[str, type[Web]]) -> None:
    with pytest.raises(DataError, match=r"nope\.csv: no such file on the server"):
        opened(f"{web[0]}/nope.csv")


def test_a_web_file_that_breaks_off_is_an_error(web: tuple[str, type[Web]]) -> None:
    address, handler = web
    handler.files = {"cut.csv": b"x\n" + b"1\n" * 5_000_000}
    with pytest.raises(DataError, match=r"cut\.csv: cannot be read"):
        list(opened(f"{address}/cut.csv").chunks(["x"]))


def test_a_web_server_that_does_not_answer_is_given_up(silent: str, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("aiohttp")
    monkeypatch.setattr(remote_file, "SILENT", 0.5)
    with pytest.raises(DataError, match=r"t\.csv: cannot be read: the server does not answer"):
        opened(f"http://{silent}/t.csv")


def test_without_the_extra_the_error_names_its_pip_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "aiohttp", None)
    with pytest.raises(UsageError) as caught:
        opened("https://127.0.0.1:9/t.csv")
    assert "pip install 'imdh[remote]'" in str(caught.value.hint)
