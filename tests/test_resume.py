"""Going on: from a checkpoint after a kill, and from a model with new rows."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from itertools import pairwise

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner

from imdh_cli.cli.main import cli
from imdh_cli.model import load

D = 4


def blobs(n: int, seed: int = 0, k: int = 5) -> np.ndarray:
    rng = np.random.default_rng(seed)
    centres = 4 * np.random.default_rng(99).standard_normal((k, D))
    X = centres[rng.integers(0, k, n)] + rng.standard_normal((n, D))
    X[:, 0] = np.round(X[:, 0])  # whole numbers are learned from with noise
    return X


def write(path, X: np.ndarray, groups: int = 1) -> str:
    table = pa.table({f"x{j}": X[:, j] for j in range(X.shape[1])})
    pq.write_table(table, path, row_group_size=-(-len(X) // groups))
    return str(path)


def run(*words: object) -> str:
    result = CliRunner().invoke(cli, [str(w) for w in words], catch_exceptions=False, standalone_mode=False)
    if result.exception is not None:
        raise result.exception
    return result.output


def arrays(path) -> dict[str, np.ndarray]:
    return dict(np.load(path))


# --- checkpoint and resume ------------------------------------------------------------------------

WAYS = {
    "memory": ["--recount", "yes", "--n-init", "1"],
    "trees": ["--recount", "yes", "--n-init", "6", "--depth", "4"],
    "trees, last pass": ["--recount", "no", "--n-init", "6", "--depth", "4"],
    "shuffled": ["--buffer-rows", "3000", "--passes", "2", "--recount", "yes"],
    "buffer": ["--buffer-rows", "3000", "--shuffle", "buffer", "--passes", "2", "--recount", "no"],
    "order": ["--shuffle", "none", "--passes", "1", "--recount", "yes"],
}


class Killed(Exception):
    """Stands for kill -9: nothing of the program runs after it."""


@pytest.mark.parametrize("way", WAYS)
def test_a_killed_run_ends_with_the_bytes_of_one_that_was_not(tmp_path, monkeypatch, way):
    from imdh_cli.pipeline import checkpoint

    rows = 2000 if "trees" in way else 13_000
    files = [write(tmp_path / f"{i}.parquet", blobs(rows, i), 7) for i in range(3)]
    whole = tmp_path / "whole.npz"
    run("fit", *files, "-o", whole, *WAYS[way], "-q")
    out = tmp_path / "out.npz"
    command = ["fit", *files, "-o", out, *WAYS[way], "-q", "--checkpoint", 1e-9, "--resume"]
    save = checkpoint.Checkpoint.save
    rng = np.random.default_rng(5)
    lives = 0
    while not out.exists():
        left = int(rng.integers(1, 3))

        def dying(self, leg, *rest, room=left):
            nonlocal left
            save(self, leg, *rest)
            left -= 1
            if left <= 0:
                raise Killed

        monkeypatch.setattr(checkpoint.Checkpoint, "save", dying)
        try:
            run(*command)
        except Killed:
            lives += 1
    assert lives >= 3
    assert out.read_bytes() == whole.read_bytes()
    assert not os.path.exists(f"{out}.checkpoint")


def test_kill_9_at_random_moments_loses_nothing(tmp_path):
    X = blobs(60_000)
    data = write(tmp_path / "data.parquet", X, 12)
    options = ["--buffer-rows", "5000", "--passes", "2", "-q"]
    program = [sys.executable, "-m", "imdh_cli", "fit", data]
    whole, out = tmp_path / "whole.npz", tmp_path / "out.npz"
    subprocess.run([*program, "-o", whole, *options], check=True)
    rng = np.random.default_rng(1)
    command = [*program, "-o", out, *options, "--checkpoint", "0.02", "--resume"]
    for _ in range(10):
        running = subprocess.Popen(command)
        try:
            running.wait(float(rng.uniform(0.3, 1.6)))
        except subprocess.TimeoutExpired:
            running.kill()
            running.wait()
        if out.exists():
            break
    if not out.exists():
        subprocess.run(command, check=True)
    assert out.read_bytes() == whole.read_bytes()


def test_a_checkpoint_is_for_its_owner_only_and_goes_with_the_run(tmp_path):
    data = write(tmp_path / "data.parquet", blobs(400_000), 20)
    out = tmp_path / "m.npz"
    running = subprocess.Popen(
        [sys.executable, "-m", "imdh_cli", "fit", data, "-o", out, "--checkpoint", "0.01"],
        stderr=subprocess.PIPE,
        text=True,
    )
    checkpoint = tmp_path / "m.npz.checkpoint"
    until = time.monotonic() + 60
    while not checkpoint.exists() and running.poll() is None and time.monotonic() < until:
        time.sleep(0.01)
    assert checkpoint.exists()
    assert checkpoint.stat().st_mode & 0o777 == 0o600
    running.send_signal(signal.SIGINT)
    _, told = running.communicate(timeout=60)
    assert running.returncode == 130
    assert "--resume" in told
    assert not out.exists()
    run("fit", data, "-o", out, "--resume", "-q")
    assert not checkpoint.exists()
    assert load(out).metadata["rows"]["used"] == 400_000


@pytest.mark.parametrize(
    ("change", "what"),
    [
        (["--alpha", "0.3"], "alpha 0.5 there, 0.3 here"),
        (["-x", "x1"], "features: columns x0, x1, x2 and x3 there, x0, x2 and x3 here"),
        (["--max-rows", "100"], "max_rows"),
    ],
)
def test_a_checkpoint_of_another_run_is_refused_with_what_differs(tmp_path, monkeypatch, change, what):
    from imdh_cli.errors import ImdhError
    from imdh_cli.pipeline import checkpoint

    data = write(tmp_path / "d.parquet", blobs(2000))
    out = tmp_path / "m.npz"
    save = checkpoint.Checkpoint.save

    def dying(self, *rest):
        save(self, *rest)
        raise Killed

    monkeypatch.setattr(checkpoint.Checkpoint, "save", dying)
    with pytest.raises(Killed):
        run("fit", data, "-o", out, "--checkpoint", 1e-9, "-q")
    with pytest.raises(ImdhError, match="checkpoint is of other") as caught:
        run("fit", data, "-o", out, "--resume", "-q", *change)
    assert what in caught.value.message
    pq.write_table(pq.read_table(data).slice(0, 1000), data)
    with pytest.raises(ImdhError, match="of other inputs"):
        run("fit", data, "-o", out, "--resume", "-q")


def test_a_damaged_checkpoint_is_refused(tmp_path):
    from imdh_cli.errors import DataError

    data = write(tmp_path / "d.parquet", blobs(200))
    (tmp_path / "m.npz.checkpoint").write_bytes(b"PK\x03\x04 nonsense")
    with pytest.raises(DataError, match="damaged"):
        run("fit", data, "-o", tmp_path / "m.npz", "--resume", "-q")


# --- update ---------------------------------------------------------------------------------------

IN_ORDER = ["--shuffle", "none", "--passes", "1", "--recount", "no", "-q"]


@pytest.mark.parametrize("cuts", [(1500,), (9000,), (5000, 20_000), (8192, 16_384)])
@pytest.mark.parametrize("scale", ["standard", "none"])
def test_an_update_in_order_equals_having_streamed_both(tmp_path, cuts, scale):
    X = blobs(26_000) * [1, 10, 100, 0.1]
    whole = tmp_path / "whole.npz"
    run("fit", write(tmp_path / "all.parquet", X), "-o", whole, *IN_ORDER, "--scale", scale)
    bounds = [0, *cuts, len(X)]
    model = tmp_path / "model.npz"
    for i, (low, high) in enumerate(pairwise(bounds)):
        part = write(tmp_path / f"{i}.parquet", X[low:high])
        if i == 0:
            run("fit", part, "-o", model, *IN_ORDER, "--scale", scale)
        else:
            run("fit", part, "--update", model, "-o", model, "-f", *IN_ORDER)
    expected, got = arrays(whole), arrays(model)
    assert set(expected) == set(got)
    for name, array in expected.items():
        if name != "metadata":
            np.testing.assert_array_equal(got[name], array, err_msg=name)
    rows = json.loads(str(got["metadata"]))["rows"]
    assert rows["used"] == len(X)


def test_an_update_learns_from_new_rows_and_keeps_the_old_statistics(tmp_path):
    old, new = blobs(8000, 1), blobs(4000, 2)
    model, updated = tmp_path / "m.npz", tmp_path / "u.npz"
    run("fit", write(tmp_path / "a.parquet", old), "-o", model, "-q")
    told = run("fit", write(tmp_path / "b.parquet", new), "--update", model, "-o", updated)
    a, b = load(model), load(updated)
    assert "rows in each, counted while cuts still moved: " in told  # all 12,000 of them
    assert b.counts[0] == 12_000
    assert (b.extras["learned_counts"] >= a.extras["learned_counts"]).all()
    both = np.concatenate([old, new])
    np.testing.assert_allclose(b.center, both.mean(axis=0), rtol=1e-9)
    np.testing.assert_allclose(b.scale, both.std(axis=0), rtol=1e-9)
    assert "cluster" in told


def test_an_update_of_other_features_or_depth_is_refused_by_name(tmp_path):
    from imdh_cli.errors import ImdhError

    data = write(tmp_path / "a.parquet", blobs(500))
    model = tmp_path / "m.npz"
    run("fit", data, "-o", model, "-q")
    for words, what in (
        (["--depth", "5"], "--depth 5"),
        (["-c", "x0,x1"], '"x2"'),
        (["--passes", "2"], "one pass"),
        (["--alpha", "0.1"], "--alpha 0.1: the model was fitted with --alpha 0.5"),
        (["--categorical", "onehot"], "--categorical onehot: the model was fitted with --categorical ignore"),
        (["--onehot", "x1"], '--onehot: the model was fitted without it for "x1"'),
        (["--parse", "x1"], '--parse: the model was fitted without it for "x1"'),
        (["--id", "x1"], '--id: "x1" is a feature of the model'),
        (["--id", "y"], '"y"'),
    ):
        with pytest.raises(ImdhError) as caught:
            run("fit", data, "--update", model, "-o", tmp_path / "n.npz", "-q", *words)
        assert what in caught.value.message
    other = tmp_path / "b.parquet"
    pq.write_table(pq.read_table(data).rename_columns(["x0", "x1", "x2", "y"]), other)
    with pytest.raises(ImdhError, match='"x3"'):
        run("fit", other, "--update", model, "-o", tmp_path / "n.npz", "-q")


def test_a_model_that_lacks_an_array_is_learned_on_or_refused_in_words(tmp_path):
    from imdh_cli.errors import ImdhError

    data, model, lacking = write(tmp_path / "a.parquet", blobs(500)), tmp_path / "m.npz", tmp_path / "l.npz"
    run("fit", data, "-o", model, "-q")
    refused = {}
    for name in load(model).extras:
        if name.startswith(("dither_", "far_")):  # all or none: test_model.py
            continue
        np.savez(lacking, **{key: array for key, array in arrays(model).items() if key != name})
        try:
            run("fit", data, "--update", lacking, "-o", tmp_path / "n.npz", "-q", "-f")
        except ImdhError as error:
            refused[name] = error.message
    sums = {"column_counts", "column_shifts", "column_sums", "column_squares"}
    assert set(refused.values()) == {"the model does not hold what learning goes on from"}
    assert refused.keys() == sums | {"learned_counts", "mean_squares", "learned_offsets", "variances"}


def test_an_update_may_carry_another_id(tmp_path):
    X = blobs(500)
    table = {f"x{j}": X[:, j] for j in range(4)} | {"key": [f"k{i}" for i in range(500)]}
    data, model, updated = tmp_path / "a.parquet", tmp_path / "m.npz", tmp_path / "u.npz"
    pq.write_table(pa.table(table), data)
    run("fit", data, "-o", model, "-q")
    run("fit", data, "--update", model, "--id", "key", "--alpha", "0.5", "-o", updated, "-q")
    assert load(updated).metadata["id_columns"] == ["key"]
    run("fit", data, "--update", updated, "-o", tmp_path / "v.npz", "-q")
    assert load(tmp_path / "v.npz").metadata["id_columns"] == ["key"]


def test_an_update_with_text_in_a_feature_is_refused_by_name(tmp_path):
    from imdh_cli.errors import DataError

    X = blobs(500)
    model, other = tmp_path / "m.npz", tmp_path / "b.parquet"
    run("fit", write(tmp_path / "a.parquet", X), "-o", model, "-q")
    pq.write_table(pa.table({**{f"x{j}": X[:, j] for j in range(3)}, "x3": ["word"] * 500}), other)
    with pytest.raises(DataError, match='"x3" is text'):
        run("fit", other, "--update", model, "-o", tmp_path / "n.npz", "-q")


def test_the_fate_of_old_clusters_is_told(tmp_path):
    from imdh_cli.pipeline.prune import cluster_changes, reprune

    data = write(tmp_path / "a.parquet", blobs(3000))
    run("fit", data, "-o", tmp_path / "m.npz", "-q", "-k", "4")
    old = load(tmp_path / "m.npz")
    assert [f["how"] for f in cluster_changes(old, old)] == ["kept"] * 4
    fewer, _ = reprune(old, old.params.prune.__class__(clusters=3))
    how = sorted(f["how"] for f in cluster_changes(old, fewer))
    assert how == ["kept", "kept", "merged", "merged"]
    assert sorted(f["how"] for f in cluster_changes(fewer, old)) == ["kept", "kept", "split"]
