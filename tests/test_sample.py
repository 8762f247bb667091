"""`--sample`: a uniform sample in one reading, and what is learned from it."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.metrics import adjusted_rand_score

import imdh_cli
from imdh_cli.pipeline.feature_rows import _some
from imdh_cli.rows.sample import UniformSample
from imdh_cli.sources.base import Fragment
from tests.cli import imdh


@given(
    n=st.integers(0, 300),
    size=st.integers(1, 320),
    cuts=st.lists(st.integers(0, 300), max_size=6).map(sorted),
)
def test_a_sample_is_rows_in_their_order_however_they_come(n, size, cuts):
    X = np.arange(2.0 * n).reshape(n, 2)
    found = []
    for parts in ([X], np.split(X, cuts)):
        sample = UniformSample(size, 2, [3])
        for part in parts:
            sample.add(part)
        found.append(sample.rows())
    np.testing.assert_array_equal(*found)
    assert len(found[0]) == min(n, size)
    assert (np.diff(found[0][:, 0]) > 0).all()
    assert set(found[0][:, 0]) <= set(X[:, 0])


@given(cut=st.integers(0, 300), size=st.integers(1, 320))
def test_a_sample_goes_on_from_its_state(cut, size):
    X = np.arange(600.0).reshape(300, 2)
    whole, first, second = (UniformSample(size, 2, [3]) for _ in range(3))
    whole.add(X)
    first.add(X[:cut])
    second.restore(first.state())
    second.add(X[cut:])
    np.testing.assert_array_equal(second.rows(), whole.rows())


@given(n=st.integers(0, 300), size=st.integers(1, 320), said=st.integers(0, 1000))
def test_a_bound_for_the_keys_changes_nothing_or_the_sample_says_so(n, size, said):
    X = np.arange(2.0 * n).reshape(n, 2)
    sample, bounded = UniformSample(size, 2, [3]), UniformSample(size, 2, [3], bound=size / max(said, 1))
    for part in np.array_split(X, 5):
        sample.add(part)
        bounded.add(part)
    assert np.array_equal(bounded.rows(), sample.rows()) == bounded.complete
    assert sample.complete


@given(n=st.integers(0, 300), size=st.integers(1, 60), said=st.integers(0, 600), after=st.integers(0, 4))
def test_an_expectation_changes_nothing_or_the_sample_says_so(n, size, said, after):
    X = np.arange(2.0 * n).reshape(n, 2)
    sample, expecting = UniformSample(size, 2, [3]), UniformSample(size, 2, [3])
    for k, part in enumerate(np.array_split(X, 5)):
        sample.add(part)
        expecting.add(part)
        if k == after:
            expecting.expect(20 * said)
    assert np.array_equal(expecting.rows(), sample.rows()) == expecting.complete


def test_a_sample_of_a_file_of_which_most_rows_cannot_be_used(tmp_path):
    """More rows were expected below the bound than come: all are read once more."""
    X = np.random.default_rng(0).standard_normal((20_000, 2)) + 9.0 * np.repeat(
        [[0.0], [1.0]], 10_000, axis=0
    )
    used = np.arange(20_000) % 5 == 0
    pq.write_table(pa.table({"x": np.where(used, X[:, 0], np.nan), "y": X[:, 1]}), tmp_path / "gaps.parquet")
    pq.write_table(pa.table({"x": X[used, 0], "y": X[used, 1]}), tmp_path / "none.parquet")
    models = []
    for name in ("gaps", "none"):
        done = imdh("fit", tmp_path / f"{name}.parquet", "--sample", 1000, "-o", tmp_path / "m.npz", "-f")
        assert "learned from 1,000 of these rows" in done.err
        models.append(imdh_cli.load(tmp_path / "m.npz"))
    for name in ("directions", "thresholds", "counts", "center", "scale"):
        np.testing.assert_array_equal(getattr(models[0], name), getattr(models[1], name))


def test_every_row_is_as_likely():
    drawn = np.zeros(1000)
    for seed in range(300):
        sample = UniformSample(50, 1, [seed])
        for part in np.split(np.arange(1000.0)[:, None], 10):
            sample.add(part)
        drawn[sample.rows()[:, 0].astype(int)] += 1
    tenths = drawn.reshape(10, -1).sum(axis=1)
    np.testing.assert_allclose(tenths, 1500, atol=5 * np.sqrt(1500 * 0.95))


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    """Planted clusters in a file that is sorted by them."""
    folder = tmp_path_factory.mktemp("sample")
    rng = np.random.default_rng(0)
    truth = np.sort(rng.integers(0, 5, 30_000))
    X = rng.standard_normal((30_000, 4)) + 7.0 * rng.standard_normal((5, 4))[truth]
    pq.write_table(pa.table({f"x{f}": X[:, f] for f in range(4)}), folder / "t.parquet")
    return folder, X, truth


def test_a_sample_of_a_sorted_file_finds_its_clusters(world):
    folder, X, truth = world
    done = imdh("fit", folder / "t.parquet", "--sample", 3000, "-o", folder / "m.npz", "-f")
    assert "learned from 3,000 of these rows" in done.err
    model = imdh_cli.load(folder / "m.npz")
    assert model.metadata["learned_rows"] == model.counts[0] == 3000
    assert model.metadata["rows"]["used"] == 30_000
    np.testing.assert_allclose(model.center, X.mean(axis=0), rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(model.scale, X.std(axis=0), rtol=1e-12)
    imdh("assign", folder / "m.npz", folder / "t.parquet", "-o", folder / "l.parquet", "-f")
    labels = pq.read_table(folder / "l.parquet").column("cluster").to_numpy()
    assert adjusted_rand_score(truth, labels) > 0.98
    assert "learned from 3,000 of them" in " ".join(imdh("report", folder / "m.npz").text.split())


@pytest.fixture(scope="module")
def in_many_groups(world):
    """The same rows, 50 in a row group."""
    folder, _, _ = world
    path = folder / "groups.parquet"
    pq.write_table(pq.read_table(folder / "t.parquet"), path, row_group_size=50)
    return path


def test_of_hundreds_of_row_groups_some_are_read_and_their_clusters_found(world, in_many_groups):
    folder, _, truth = world
    models = [folder / f"some{threads}.npz" for threads in (1, 2)]
    for threads, path in zip((1, 2), models, strict=True):
        words = ("fit", in_many_groups, "--sample", 3000, "--threads", threads, "-o", path, "-f")
        done = imdh(*words, "--json")
    assert models[0].read_bytes() == models[1].read_bytes()
    read, there = done.json["parts_read"]
    assert there == 600
    assert 240 <= read <= 256
    assert done.json["rows"]["read"] == 50 * read
    assert "parts of the input" in imdh(*words).err
    imdh("assign", models[0], folder / "t.parquet", "-o", folder / "l.parquet", "-f")
    labels = pq.read_table(folder / "l.parquet").column("cluster").to_numpy()
    assert adjusted_rand_score(truth, labels) > 0.98
    shares = np.sort(imdh_cli.load(models[0]).cluster_sizes()) / 3000
    drawn = 4 * np.sqrt(0.2 * 0.8 / 3000)
    np.testing.assert_allclose(shares, np.sort(np.bincount(truth)) / 30_000, atol=drawn + 2 / 256)


def test_all_row_groups_are_read_where_all_rows_are_counted(world, in_many_groups):
    folder, _, _ = world
    words = ("fit", in_many_groups, "--sample", 3000, "--recount", "yes", "-o", folder / "r.npz", "-f")
    assert imdh(*words, "--json").json["parts_read"] is None
    assert imdh_cli.load(folder / "r.npz").counts[0] == 30_000


def test_each_part_of_the_input_is_as_likely():
    fragments = [Fragment(10, k, lambda: iter(())) for k in range(900)]
    times = np.zeros(900)
    for seed in range(400):
        chosen = [fragment.size for fragment in _some(fragments, 100, np.random.default_rng(seed))]
        assert chosen == sorted({*chosen})
        assert max(np.diff(chosen)) < 2 * 900 / 256 + 1  # from all over
        times[chosen] += 1
    share = 256 / 900
    np.testing.assert_allclose(times / 400, share, atol=5 * np.sqrt(share / 400))
    np.testing.assert_allclose(times.reshape(90, 10).mean(axis=1) / 400, share, atol=0.02)


@pytest.mark.parametrize(
    ("fragments", "rows"),
    [
        ([Fragment(10, 1, lambda: iter(()))] * 511, 10),  # few
        ([Fragment(10, 1, lambda: iter(()))] * 600, 2000),  # of which more than half would be read
        ([Fragment(None, 1, lambda: iter(()))] * 600, 10),  # of unknown lengths
    ],
    ids=["few", "half", "unknown"],
)
def test_all_parts_are_read_where_little_would_be_saved(fragments, rows):
    assert _some(fragments, rows, np.random.default_rng(0)) == fragments


def test_all_rows_are_counted_where_asked(world):
    folder, _, _ = world
    words = ("fit", folder / "t.parquet", "--sample", 3000, "--recount", "yes", "-f")
    done = imdh(*words, "-o", folder / "all.npz")
    assert "learned from 3,000 of these rows, all counted" in done.err
    imdh("fit", folder / "t.parquet", "--sample", 3000, "-o", folder / "m.npz", "-f")
    imdh("prune", folder / "m.npz", folder / "t.parquet", "-o", folder / "pruned.npz", "-f")
    one, other = imdh_cli.load(folder / "all.npz"), imdh_cli.load(folder / "pruned.npz")
    np.testing.assert_array_equal(one.counts, other.counts)
    np.testing.assert_array_equal(one.histograms, other.histograms)
    assert one.counts[0] == 30_000


def test_a_sample_of_more_rows_than_there_are_is_a_fit_of_all(world):
    folder, _, _ = world
    imdh("fit", folder / "t.parquet", "--sample", 10**6, "-o", folder / "s.npz", "-f")
    imdh("fit", folder / "t.parquet", "-o", folder / "w.npz", "-f")
    one, other = imdh_cli.load(folder / "s.npz"), imdh_cli.load(folder / "w.npz")
    for name, array in other.arrays().items():
        if name != "metadata":
            np.testing.assert_array_equal(one.arrays()[name], array, err_msg=name)
    assert "learned_rows" not in one.metadata


def test_a_stream_is_sampled_in_one_reading(world):
    folder, _, _ = world
    text = "a,b\n" + "".join(f"{i % 97},{i * i % 89}\n" for i in range(5000))
    words = ("fit", "-", "--sample", 500, "-o", folder / "c.npz", "-f")
    done = imdh(*words, stdin=text.encode())
    assert "learned from 500 of these rows" in done.err
    refused = imdh(*words, "--recount", "yes", stdin=text.encode(), status=2)
    assert "a stream can be read once" in refused.err


@pytest.mark.parametrize("more", [("--checkpoint", 1), ("--update", "m.npz")])
def test_a_sample_does_not_go_on(world, more):
    folder, _, _ = world
    imdh("fit", folder / "t.parquet", "-o", folder / "m.npz", "-f")
    more = tuple(folder / w if w == "m.npz" else w for w in more)
    done = imdh("fit", folder / "t.parquet", "--sample", 99, "-o", folder / "n.npz", "-f", *more, status=2)
    assert "leave --sample out" in done.err
