"""A model file damaged or forged in thousands of ways: refused in one line, or a model that works.

Never another exception, never more memory than a multiple of the file, never a hang. Seeds are fixed.
"""

from __future__ import annotations

import copy
import io
import json
import resource
import time
import tracemalloc
import zipfile
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import settings

from imdh_cli.errors import ModelError
from imdh_cli.model import Model, load, save
from tests.test_model import plain_model

ROUNDS = settings().max_examples * 3 // 2  # 30 damages a kind; 300 with --hypothesis-profile long
SECONDS = 2.0  # for a single file; usual are two thousandths
MEGABYTES = 300
Mutation = Callable[[bytes, np.random.Generator], bytes]


@pytest.fixture(scope="module")
def whole(tmp_path_factory) -> bytes:
    path = tmp_path_factory.mktemp("fuzz") / "model.npz"
    save(plain_model(), path)
    return path.read_bytes()


def unpack(content: bytes) -> dict[str, bytes]:
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def pack(entries: dict[str, bytes], method: int = zipfile.ZIP_STORED) -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", method) as archive:
        for name, data in entries.items():
            archive.writestr(name, data)
    return out.getvalue()


def npy(array: np.ndarray) -> bytes:
    out = io.BytesIO()
    np.lib.format.write_array(out, array)
    return out.getvalue()


# -- the ways to damage a file


def flip_bytes(content: bytes, rng: np.random.Generator) -> bytes:
    """Some bytes anywhere in the file."""
    changed = bytearray(content)
    for at in rng.integers(0, len(content), rng.integers(1, 9)):
        changed[at] = rng.integers(256)
    return bytes(changed)


def flip_table_of_contents(content: bytes, rng: np.random.Generator) -> bytes:
    """Bytes of the zip's own records: sizes, offsets, methods, counts."""
    changed = bytearray(content)
    start = content.index(b"PK\x01\x02")
    for at in rng.integers(start, len(content), rng.integers(1, 5)):
        changed[at] = rng.choice([0, 1, 8, 0x7F, 0xFF, rng.integers(256)])
    return bytes(changed)


def cut(content: bytes, rng: np.random.Generator) -> bytes:
    """The end is missing, or the start, or a fragment."""
    low, high = np.sort(rng.integers(0, len(content), 2))
    return [content[:high], content[low:], content[:low] + content[high:]][rng.integers(3)]


def splice(content: bytes, rng: np.random.Generator) -> bytes:
    """A fragment is there twice, or something was put in."""
    at, low, high = (int(i) for i in np.sort(rng.integers(0, len(content), 3)))
    fragment = content[low:high] if rng.random() < 0.5 else rng.bytes(int(rng.integers(1, 2000)))
    return content[:at] + fragment + content[at:]


def flip_inside(content: bytes, rng: np.random.Generator) -> bytes:
    """Bytes of an array or its header, the checksum made to fit."""
    entries = unpack(content)
    name = rng.choice(list(entries))
    data = bytearray(entries[name])
    end = 128 if rng.random() < 0.5 else len(data)
    for at in rng.integers(0, min(end, len(data)), rng.integers(1, 5)):
        data[at] = rng.integers(256) if rng.random() < 0.5 else rng.choice(list(b"0123456789,()'<>fiUO"))
    entries[name] = bytes(data)
    return pack(entries, int(rng.choice([zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED])))


NUMBERS = [
    0,
    1,
    -1,
    0.5,
    1e-300,
    -1e300,
    1.7e308,
    9e139,
    -9e139,
    1e-159,
    np.nan,
    np.inf,
    -np.inf,
    2**31,
    2**62,
    -(2**63),
]


def change_numbers(content: bytes, rng: np.random.Generator) -> bytes:
    """Some numbers of an array, the array otherwise in order."""
    entries = unpack(content)
    name = rng.choice([n for n in entries if n not in ("metadata.npy", "feature_names.npy")])
    array = np.load(io.BytesIO(entries[name]))
    flat = array.reshape(-1)
    for at in rng.integers(0, flat.size, rng.integers(1, 4)):
        value = NUMBERS[rng.integers(len(NUMBERS))]
        with np.errstate(all="ignore"):
            if flat.dtype.kind == "f":
                flat[at] = value if rng.random() < 0.7 else flat[at] * (1 + 10.0 ** rng.uniform(-16, 0))
            elif np.isfinite(value) and abs(value) < 2 ** (8 * flat.itemsize - 1):
                flat[at] = int(value)
    entries[name] = npy(array)
    return pack(entries)


def replace_array(content: bytes, rng: np.random.Generator) -> bytes:
    """Another array in the place of one, or one array in another's place."""
    entries = unpack(content)
    name, other = rng.choice(list(entries), 2)
    size = tuple(int(n) for n in rng.integers(0, 20, rng.integers(0, 4)))
    kinds = ["<f8", "<f4", ">f8", "<i8", "<i4", "|u1", "|b1", "<c16", "<U5", "|S5", "<M8[s]", "|V8"]
    made = np.zeros(size, rng.choice(kinds))
    entries[name] = entries[other] if rng.random() < 0.3 else npy(made)
    if rng.random() < 0.2:
        del entries[other]
    return pack(entries)


def claim_more(content: bytes, rng: np.random.Generator) -> bytes:
    """A header that claims a huge array, or text in its place."""
    entries = unpack(content)
    name = rng.choice(list(entries))
    shape = rng.choice(["(%d,)", "(%d, 3)", "(7, %d)", "()", "(%d, %d, %d)", "%d", "(-%d,)"])
    digits = [int(10.0 ** rng.uniform(0, 25)) for _ in range(shape.count("%d"))]
    dtype = rng.choice(["'<f8'", "'<i8'", f"'<U{int(10.0 ** rng.uniform(0, 12))}'", "'|O'", "object", "[]"])
    order = rng.choice(["False", "True", "0"])
    header = f"{{'descr': {dtype}, 'fortran_order': {order}, 'shape': {shape % tuple(digits)}, }}"
    text = header.encode().ljust(117) + b"\n"
    start = b"\x93NUMPY" + bytes([rng.choice([1, 1, 1, 2, 3, 9]), 0])
    entries[name] = start + len(text).to_bytes(2, "little") + text + entries[name][128:]
    return pack(entries)


def inflate(content: bytes, rng: np.random.Generator) -> bytes:
    """A zip bomb: megabytes of one byte, compressed; with a header that fits or without."""
    entries = unpack(content)
    name = rng.choice(list(entries))
    size = int(rng.integers(1, 24)) << 20
    data = b"\0" * size
    if rng.random() < 0.7:
        data = npy(np.zeros(rng.choice([size // 8, 7, 3]), rng.choice(["<f8", "<i8"])))[:128] + data
    entries[name if rng.random() < 0.5 else "more.npy"] = data
    return pack(entries, zipfile.ZIP_DEFLATED)


ODD = [None, True, -1, 0, 1e308, 10**40, "", "x" * 5000, [], {}, [[]], {"a": {}}, "auto", "\u202e", ["x0"]]


def change_metadata(content: bytes, rng: np.random.Generator) -> bytes:
    """Keys lost, doubled, renamed, and values of every wrong kind, at any depth."""
    entries = unpack(content)
    metadata = json.loads(str(np.load(io.BytesIO(entries["metadata.npy"]))))
    for _ in range(rng.integers(1, 3)):
        holder: Any = metadata
        while True:
            keys = list(holder) if isinstance(holder, dict) else list(range(len(holder)))
            if not keys:
                break
            key = keys[rng.integers(len(keys))]
            if isinstance(holder[key], (dict, list)) and rng.random() < 0.7:
                holder = holder[key]
                continue
            action = rng.random()
            if action < 0.25:
                del holder[key]
            elif action < 0.35 and isinstance(holder, dict):
                holder[str(key) + "_"] = holder.pop(key)
            else:
                holder[key] = copy.deepcopy(ODD[rng.integers(len(ODD))])
            break
    entries["metadata.npy"] = npy(np.array(json.dumps(metadata)))
    return pack(entries)


def change_json(content: bytes, rng: np.random.Generator) -> bytes:
    """Characters of the metadata's text, or deep nesting."""
    entries = unpack(content)
    text = list(str(np.load(io.BytesIO(entries["metadata.npy"]))))
    for at in rng.integers(0, len(text), rng.integers(1, 4)):
        text[at] = str(
            rng.choice(list('{}[]",:0-9eE.\\u\x00\x1fx') + ["[" * 3000, '{"a":' * 3000, "9" * 6000])
        )
    entries["metadata.npy"] = npy(np.array("".join(text)))
    return pack(entries)


MUTATIONS: list[Mutation] = [
    flip_bytes,
    flip_table_of_contents,
    cut,
    splice,
    flip_inside,
    change_numbers,
    replace_array,
    claim_more,
    change_metadata,
    change_json,
]


def use(model: Model) -> None:
    """What commands do with a model: the labels of some rows, the specification, the parameters."""
    Z = np.random.default_rng(0).normal(size=(50, model.n_features))
    node = np.ones(50, np.int64)
    for _ in range(model.depth):
        v = model.directions[node - 1]
        node = 2 * node + ((v * Z).sum(axis=1) >= model.thresholds[node - 1])
    labels = model.cluster_of_leaf[node - 2**model.depth]
    assert labels.min() >= 1
    assert labels.max() <= model.n_clusters <= 2**model.depth
    assert list(model.spec.names) == model.feature_names
    assert model.params.learn.depth == model.depth


def survives(content: bytes) -> bool:
    """Is `content` a model that works? Anything but yes and a ModelError fails the test."""
    started = time.perf_counter()
    message = None
    try:
        use(load(io.BytesIO(content)))
    except ModelError as error:
        message = error.message
    assert time.perf_counter() - started < SECONDS
    assert message is None or ("\n" not in message and len(message) < 500)
    return message is None


@pytest.mark.parametrize("mutate", MUTATIONS, ids=lambda m: m.__name__)
def test_a_damaged_model_is_refused_or_works(whole, mutate):
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    seeds = np.random.SeedSequence([7, MUTATIONS.index(mutate)]).spawn(ROUNDS)
    refused = sum(not survives(mutate(whole, np.random.default_rng(seed))) for seed in seeds)
    assert refused > ROUNDS // 10
    grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    assert grown < MEGABYTES << 10


@pytest.mark.parametrize("mutate", [inflate, claim_more], ids=["inflate", "claim_more"])
def test_what_claims_to_be_large_is_refused_within_bounded_memory(whole, mutate):
    tracemalloc.start()
    try:
        for seed in range(12):
            content = mutate(whole, np.random.default_rng(seed))
            tracemalloc.reset_peak()
            assert not survives(content)
            assert tracemalloc.get_traced_memory()[1] < 100 << 20
    finally:
        tracemalloc.stop()


def test_an_undamaged_model_works(whole):
    assert survives(whole)
    assert survives(pack(unpack(whole), zipfile.ZIP_DEFLATED))
