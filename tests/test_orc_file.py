"""ORC files: the asked columns in row order, a stripe at a time."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.orc
import pytest

from imdh_cli.errors import DataError
from tests.cli import imdh, labels
from tests.tables import features_of, kept_of, opened, orc, table


@pytest.mark.parametrize("threads", [1, 2])
def test_a_file_comes_back_as_it_was_written(tmp_path: Path, threads: int) -> None:
    path = orc(tmp_path / "t.orc", table(2500))
    source = opened(path, threads=threads, batch_rows=300)
    assert pyarrow.orc.ORCFile(path).nstripes == 3
    assert source.parts == [(path, "orc", 2500, source.size)]
    chunks = list(source.chunks(["y", "x"], ["word", "id", "x"]))
    assert features_of(chunks) == table(2500).select(["y", "x"])
    assert kept_of(chunks) == table(2500).select(["word", "id", "x"])
    assert max(c.features.num_rows for c in chunks) <= 300
    assert source.bytes_read == source.size


def test_stripes_are_fragments_that_know_their_place(tmp_path: Path) -> None:
    path = orc(tmp_path / "t.orc", table(2500))
    fragments = opened(path, batch_rows=400).fragments(["id", "word"]) or []
    assert [p.rows for p in fragments] == [1000, 1000, 500]
    chunks = [c for p in reversed(fragments) for c in p.chunks()]
    assert chunks[0].origin == (path, 2000)
    assert sorted(features_of(chunks)["id"].to_pylist()) == list(range(2500))


def test_columns_whose_names_look_nested_are_told_apart(tmp_path: Path) -> None:
    """ORC columns are asked for by name, where `a` may bring along what lies within it."""
    content = pa.table({"a": [1.0, 2.0], "a.b": [3.0, 4.0], "s": [{"a": 5.0}] * 2})
    source = opened(orc(tmp_path / "t.orc", content))
    assert features_of(source.chunks(["a.b", "a"])) == content.select(["a.b", "a"])
    assert source.sample(1, ["a"]) == content.select(["a"]).slice(0, 1)


def test_a_file_that_is_cut_is_named(tmp_path: Path) -> None:
    path = Path(orc(tmp_path / "t.orc", table(2500)))
    path.write_bytes(path.read_bytes()[:-30])
    with pytest.raises(DataError, match=r"t\.orc: not a readable ORC file"):
        opened(path)


def test_damage_within_a_stripe_is_named(tmp_path: Path) -> None:
    path = Path(orc(tmp_path / "t.orc", table(2500)))
    data = path.read_bytes()
    path.write_bytes(data[:40] + b"\xff" * 4000 + data[4040:])
    with pytest.raises(DataError, match=r"t\.orc: not a readable ORC file"):
        list(opened(path).chunks(["id", "x", "y", "word"]))


def test_a_model_is_the_same_from_orc_and_from_parquet(tmp_path: Path) -> None:
    import pyarrow.parquet as pq

    rng = np.random.default_rng(1)
    content = pa.table({"x": rng.normal(size=900) + 8 * (np.arange(900) % 3), "name": ["a"] * 900})
    orc(tmp_path / "t.orc", content, 100)
    pq.write_table(content, tmp_path / "t.parquet")
    for suffix in ("orc", "parquet"):
        imdh("fit", tmp_path / f"t.{suffix}", "-o", tmp_path / f"{suffix}.npz")
        imdh("assign", tmp_path / f"{suffix}.npz", tmp_path / f"t.{suffix}", "-o", tmp_path / f"{suffix}.csv")
    assert labels(tmp_path / "orc.csv").tolist() == labels(tmp_path / "parquet.csv").tolist()
    assert len(set(labels(tmp_path / "orc.csv"))) == 3
