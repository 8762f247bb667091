"""s3:// gs:// hdfs:// https:// -> files that the readers of each format can open.

The first three go through pyarrow's own file systems, with keys and regions from the usual places (AWS_*
variables and files, Google's default credentials, Hadoop's configuration). `https://` goes through fsspec,
which the extra `remote` brings. A folder or a pattern is expanded as on this machine; https has neither.

Nothing waits for ever: a connection has CONNECT seconds, a silent one is given up after SILENT seconds,
and the libraries try three times.
"""

from __future__ import annotations

import fnmatch
import io
import os
import re
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, BinaryIO, cast
from urllib.parse import parse_qsl, urlsplit

import pyarrow as pa
from pyarrow import fs

from imdh_cli.errors import DataError, UsageError
from imdh_cli.sources.base import nearest
from imdh_cli.sources.discover import hidden, hive_keys, natural_key, sift
from imdh_cli.sources.file import HEAD, Stored

CONNECT = 5.0  # seconds to be connected in
SILENT = 15.0  # seconds without a byte
AT_ONCE = 16  # files whose first bytes are fetched at the same time
MAGIC = re.compile(r"[*?[]")


@dataclass(frozen=True)
class Place:
    """A file system and where in it the URI points.

    path : within the file system; for S3 and GCS the bucket is its first step.
    prefix : a path within the file system with this before it is the file's URI.
    about : what errors say of the place: bucket, region, endpoint.
    """

    uri: str
    system: fs.FileSystem
    path: str
    prefix: str
    about: str

    def explain(self, error: BaseException) -> DataError | None:
        """An error of the network or the store, in words; None for one of the file's content."""
        said = str(error).strip().splitlines() or [type(error).__name__]
        reason = re.sub(r"^When .*?: (?=AWS Error)", "", said[0])
        if not isinstance(error, OSError) or not _ELSEWHERE.search(reason):
            return None
        hint = next((hint for sign, hint in _HINTS if re.search(sign, reason, re.IGNORECASE)), None)
        return DataError(f"{self.uri}: cannot be read ({self.about}): {reason}", hint or "try again")

    def failed(self, error: BaseException) -> DataError:
        """As `explain`, for an error that cannot be one of the content."""
        said = str(error).strip().splitlines() or [type(error).__name__]
        return self.explain(error) or DataError(
            f"{self.uri}: cannot be read ({self.about}): {said[0]}", "check the address"
        )


_ELSEWHERE = re.compile(r"AWS Error|curl|google::cloud|HTTP|HDFS|timed? ?out|[Cc]onnect", re.IGNORECASE)
_HINTS = (
    ("NO_SUCH_BUCKET|NoSuchBucket|bucket.*(not found|does not exist)", "check the bucket's name"),
    (
        "PermanentRedirect|HTTP status 301|AuthorizationHeaderMalformed",
        "set AWS_REGION to the bucket's region, or add ?region=... to the address",
    ),
    (
        "ACCESS_DENIED|AccessDenied|InvalidAccessKeyId|SignatureDoesNotMatch|status 40[13]|credential",
        "check the keys (for S3 AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY), or add ?anonymous=true",
    ),
    ("NETWORK_CONNECTION|curl|timed? ?out|connect", "check the network, the region and the endpoint"),
)


def stored_there(uri: str, format: str | None, notes: list[str]) -> list[Stored]:
    """The file that a URI names, or the tables of a folder or pattern, in natural order.

    Raises
    ------
    DataError
        For what is not there or cannot be reached; it names the bucket and the region.
    UsageError
        For an address that makes no sense, or when a library is missing.
    """
    scheme = urlsplit(uri).scheme.lower()
    if scheme in ("http", "https"):
        return [_web_file(uri)]
    place = {"s3": _s3, "gs": _gcs, "gcs": _gcs, "hdfs": _hdfs}[scheme](uri)
    try:
        found = _files(place, format)
    except OSError as error:
        raise place.failed(error) from error
    notes += found.notes
    with ThreadPoolExecutor(min(AT_ONCE, max(1, len(found.infos)))) as pool:
        return list(pool.map(lambda info: _stored(place, info), found.infos))


# -- places


def _s3(uri: str) -> Place:
    bucket, key, options = _parts(uri, ("region", "endpoint_override", "scheme", "anonymous"))
    address = os.environ.get("AWS_ENDPOINT_URL_S3") or os.environ.get("AWS_ENDPOINT_URL") or ""
    scheme, _, host = address.rpartition("://")
    endpoint = options.get("endpoint_override") or host.rstrip("/")
    region = (
        options.get("region")
        or os.environ.get("AWS_REGION")
        or os.environ.get("AWS_DEFAULT_REGION")
        or ("us-east-1" if endpoint else _bucket_region(uri, bucket))
    )
    about = f'bucket "{bucket}", region {region}' + (f", endpoint {endpoint}" if endpoint else "")
    try:
        system = fs.S3FileSystem(
            region=region,
            endpoint_override=endpoint or None,
            scheme=options.get("scheme") or scheme or "https",
            anonymous=options.get("anonymous", "").lower() in ("1", "true", "yes"),
            connect_timeout=CONNECT,
            request_timeout=SILENT,
        )
    except (OSError, ValueError) as error:
        raise DataError(f"{uri}: cannot be read ({about}): {error}", "check the address") from error
    return Place(_bare(uri), system, f"{bucket}/{key}", "s3://", about)


def _bucket_region(uri: str, bucket: str) -> str:
    try:
        return str(fs.resolve_s3_region(bucket))
    except OSError as error:
        said = str(error).splitlines()[0]
        raise DataError(
            f'{_bare(uri)}: cannot be read (bucket "{bucket}", region unknown): {said}',
            "check the bucket's name and the network, or set AWS_REGION",
        ) from error


def _gcs(uri: str) -> Place:
    bucket, key, options = _parts(uri, ("endpoint_override", "scheme", "anonymous"))
    endpoint = options.get("endpoint_override")
    system = fs.GcsFileSystem(
        anonymous=options.get("anonymous", "").lower() in ("1", "true", "yes"),
        endpoint_override=endpoint,
        scheme=options.get("scheme", "https"),
        retry_time_limit=timedelta(seconds=2 * SILENT),
    )
    about = f'bucket "{bucket}"' + (f", endpoint {endpoint}" if endpoint else "")
    return Place(_bare(uri), system, f"{bucket}/{key}", "gs://", about)


def _hdfs(uri: str) -> Place:
    parts = urlsplit(uri)
    try:
        system = fs.HadoopFileSystem(parts.hostname or "default", port=parts.port or 8020)
    except (OSError, ValueError) as error:
        raise DataError(
            f"{uri}: cannot be read (name node {parts.netloc or 'default'}): "
            f"{str(error).strip().splitlines()[0]}",
            "hdfs:// needs Hadoop's client: set JAVA_HOME, HADOOP_HOME and ARROW_LIBHDFS_DIR",
        ) from error
    prefix = f"hdfs://{parts.netloc}"
    return Place(uri, system, parts.path, prefix, f"name node {parts.netloc or 'default'}")


def _parts(uri: str, known: tuple[str, ...]) -> tuple[str, str, dict[str, str]]:
    """Bucket, key and options of `scheme://bucket/key?option=value`."""
    rest = uri.partition("://")[2]
    path, mark, query = rest.rpartition("?")
    options = dict(parse_qsl(query)) if mark else {}
    if not options:  # the question mark of a pattern, or none
        path = rest
    unknown = next((name for name in options if name not in known), None)
    if unknown is not None:
        raise UsageError(f"{_bare(uri)}: no option {unknown}", "known are " + ", ".join(known))
    bucket, _, key = path.partition("/")
    if not bucket or "@" in bucket:
        raise UsageError(f"{_bare(uri)}: no bucket's name", "write s3://bucket/key, and no keys in it")
    return bucket, key, options


def _bare(uri: str) -> str:
    """Without options: they may be secrets, and a suffix is told from what is before them."""
    path, _, query = uri.rpartition("?")
    return path if path and "=" in query else uri


# -- files


@dataclass
class _Found:
    infos: list[fs.FileInfo]
    notes: list[str]


def _files(place: Place, format: str | None) -> _Found:
    """What the path names: a file, a folder's tables, or what a pattern matches."""
    path = place.path
    if MAGIC.search(path) and place.system.get_file_info(path).type == fs.FileType.NotFound:
        fixed = path[: MAGIC.search(path).start()].rpartition("/")[0]  # type: ignore[union-attr]
        matches = _matcher(path)
        infos = [i for i in _below(place, fixed) if matches.fullmatch(i.path)]
        return _sifted(place, infos, path, format)
    info = place.system.get_file_info(path.rstrip("/") if path.count("/") > 1 else path)
    if info.type == fs.FileType.NotFound:
        raise _missing(place)
    if info.type == fs.FileType.File:
        return _Found([info], [])
    return _sifted(place, list(_below(place, path.rstrip("/"))), path, format)


def _below(place: Place, folder: str) -> Iterator[fs.FileInfo]:
    selector = fs.FileSelector(folder, allow_not_found=True, recursive=True)
    for info in place.system.get_file_info(selector):
        steps = info.path[len(folder) :].split("/")
        if info.type == fs.FileType.File and not any(hidden(step) for step in steps):
            yield info


def _sifted(place: Place, infos: list[fs.FileInfo], where: str, format: str | None) -> _Found:
    by_path = {info.path: info for info in infos}
    if not by_path and MAGIC.search(where):
        raise DataError(f"{place.uri}: no file matches ({place.about})", "check the pattern")
    notes: list[str] = []
    paths, pattern = sorted(by_path, key=natural_key), MAGIC.search(where) is not None
    tables = sift(paths, place.uri, format, notes, pattern=pattern)
    return _Found([by_path[path] for path in tables], notes)


def _matcher(pattern: str) -> re.Pattern[str]:
    """A pattern whose `*` stays within a step and whose `**` is any number of steps."""
    steps = []
    for step in pattern.split("/"):
        one = fnmatch.translate(step).removeprefix("(?s:").removesuffix(")\\Z").removesuffix(")\\z")
        steps.append("(?:[^/]+/)*" if step == "**" else one.replace(".*", "[^/]*") + "/")
    return re.compile("(?s:" + "".join(steps).removesuffix("/") + ")")


def _missing(place: Place) -> DataError:
    bucket = place.path.partition("/")[0]
    if bucket and place.system.get_file_info(bucket).type == fs.FileType.NotFound:
        return DataError(f"{place.uri}: no such bucket ({place.about})", "check the bucket's name")
    folder, _, name = place.path.rstrip("/").rpartition("/")
    selector = fs.FileSelector(folder or place.path, allow_not_found=True)
    names = [info.base_name for info in place.system.get_file_info(selector)][:10_000]
    near = nearest(name, names)
    hint = f"did you mean {', '.join(near)}?" if near else "check the name"
    return DataError(f"{place.uri}: no such file ({place.about})", hint)


def _stored(place: Place, info: fs.FileInfo) -> Stored:
    system = place.system
    here = Place(place.prefix + info.path, system, info.path, place.prefix, place.about)

    def stream() -> BinaryIO:
        # No compression by the name: what is compressed is told by content.
        return _guarded(lambda: system.open_input_stream(info.path, compression=None), here.failed)

    try:
        with system.open_input_file(info.path) as file:
            head = file.read_at(min(HEAD, info.size), 0) if info.size else b""
    except OSError as error:
        raise here.failed(error) from error
    return Stored(
        here.uri,
        head,
        info.size,
        stream,
        lambda: system.open_input_file(info.path),
        keys=hive_keys(info.path.split("/")[1:-1]),
        remote=True,
        explain=here.explain,
    )


# -- the web


def _web_file(uri: str) -> Stored:
    try:
        import aiohttp
        from fsspec.asyn import sync
        from fsspec.implementations.http import HTTPFileSystem
    except ImportError as error:
        raise UsageError(
            f"{_bare(uri)}: https:// needs fsspec and aiohttp", "pip install 'imdh[remote]'"
        ) from error
    timeout = aiohttp.ClientTimeout(total=None, sock_connect=CONNECT, sock_read=SILENT)
    system = HTTPFileSystem(
        client_kwargs={"timeout": timeout},
        headers={"Accept-Encoding": "identity"},
        skip_instance_cache=True,
        use_listings_cache=False,
    )
    name = _bare(uri)

    def failed(error: BaseException) -> DataError:
        if isinstance(error, FileNotFoundError) and error.__cause__ is not None:
            error = error.__cause__  # what fsspec calls not found may be anything
        status = getattr(error, "status", None)
        if status == 404:
            return DataError(f"{name}: no such file on the server", "check the address")
        if isinstance(error, TimeoutError):
            said = "the server does not answer"
        else:
            said = f"HTTP status {status}" if status else str(error) or type(error).__name__
        return DataError(
            f"{name}: cannot be read: {said.splitlines()[0].replace(uri, name)}",
            "check the address and the network",
        )

    async def probe() -> tuple[bytes, int | None, bool]:
        session = await system.set_session()
        headers = {"Range": f"bytes=0-{HEAD - 1}", "Accept-Encoding": "identity"}
        async with session.get(system.encode_url(uri), headers=headers) as answer:
            if answer.status == 416:  # no byte to give a range of
                return b"", 0, False
            answer.raise_for_status()
            head = b""
            while len(head) < HEAD and (more := await answer.content.read(HEAD - len(head))):
                head += more
            if answer.status == 206:
                total = answer.headers.get("Content-Range", "").rpartition("/")[2]
                return head, int(total) if total.isdecimal() else None, total.isdecimal()
            return head, answer.content_length, False

    try:
        head, size, ranges = sync(system.loop, probe)
    except Exception as error:
        raise failed(error) from error

    def stream() -> BinaryIO:
        block = BLOCK if ranges else 0
        return _guarded(lambda: system.open(uri, "rb", block_size=block, size=size), failed)

    def random() -> pa.NativeFile:
        return pa.PythonFile(stream(), mode="r")

    return Stored(name, head, size, stream, random if ranges else None, remote=True)


BLOCK = 4 << 20  # bytes fetched at a time


# -- files that say what went wrong


def _guarded(opener: Callable[[], Any], failed: Callable[[BaseException], DataError]) -> BinaryIO:
    try:
        file = opener()
    except Exception as error:
        raise failed(error) from error
    return cast(BinaryIO, io.BufferedReader(_Guarded(file, failed), 1 << 20))


class _Guarded(io.RawIOBase):
    """A file elsewhere, whose errors name it."""

    def __init__(self, file: Any, failed: Callable[[BaseException], DataError]) -> None:
        self._file = file
        self._failed = failed

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return bool(self._file.seekable())

    def readinto(self, buffer) -> int:  # type: ignore[no-untyped-def]
        try:
            data = self._file.read(len(buffer))
        except Exception as error:
            raise self._failed(error) from error
        buffer[: len(data)] = data
        return len(data)

    def seek(self, offset: int, whence: int = 0) -> int:
        try:
            return int(self._file.seek(offset, whence))
        except DataError:
            raise
        except Exception as error:
            raise self._failed(error) from error

    def tell(self) -> int:
        return int(self._file.tell())

    def close(self) -> None:
        if not self.closed:
            self._file.close()
        super().close()
