"""The model file: what is written comes back, and what no fit can have written is refused."""

from __future__ import annotations

import hashlib
import io
import json
import os
import pickle
import subprocess
import sys
import threading
import zipfile
from dataclasses import fields
from pathlib import Path

import numpy as np
import pytest

from imdh_cli.core.dither import Dither
from imdh_cli.errors import ExitStatus, ModelError, OutputError, UsageError
from imdh_cli.model import Model, load, save
from imdh_cli.model.validation import ARRAYS, EXTRAS
from imdh_cli.params import FitParams, LearnParams


def plain_model(depth: int = 3, d: int = 3, seed: int = 0) -> Model:
    """A model of random numbers that agree with each other as a fit's do."""
    rng = np.random.default_rng(seed)
    m, leaves = 2**depth - 1, 2**depth
    n = m + leaves
    rows = [rng.normal(size=(int(k), d)) for k in rng.integers(0, 9, leaves)]
    below = [[] for _ in range(m)] + [[r] for r in rows]
    for i in range(m - 1, -1, -1):
        below[i] = below[2 * i + 1] + below[2 * i + 2]
    nodes = [np.vstack(parts) for parts in below]
    counts = np.array([len(z) for z in nodes], np.int64)
    histograms = np.zeros((m, 128), np.int64)
    histograms[np.arange(m), rng.integers(0, 128, m)] = counts[:m]
    directions = rng.normal(size=(m, d))
    directions /= np.sqrt((directions**2).sum(axis=1, keepdims=True))
    pivots = rng.normal(size=(n, d))
    offsets = rng.normal(size=m)
    names = [f"x{j}" for j in range(d)]
    sizes = {"n": n, "m": m, "d": d, "L": m + 1, "c": 2, "e": min(2, d), "q": min(1, d - 1), "p": 3, "w": 2}
    sizes["r"] = 1
    return Model(
        feature_names=names,
        center=rng.normal(size=d),
        scale=rng.uniform(0.5, 2, d),
        directions=directions,
        thresholds=offsets + (directions * pivots[:m]).sum(axis=1),
        offsets=offsets,
        pivots=pivots,
        projection_sd=rng.uniform(0, 2, m),
        histograms=histograms,
        means=np.array([mean(z) for z in nodes]),
        counts=counts,
        sums_of_squares=np.array([((z - mean(z)) ** 2).sum(axis=0) for z in nodes]),
        merge_order=np.arange(m, 0, -1),
        cluster_of_leaf=np.repeat([1, 2], leaves // 2).astype(np.int32),
        metadata={
            "program": "imdh",
            "version": "0.1.0",
            "parameters": FitParams(learn=LearnParams(depth=depth)).to_dict(),
            "preset": "default",
            "features": {"columns": [{"name": n, "levels": None} for n in names], "missing": "skip"},
            "left_out_columns": [["id", "unique whole numbers"]],
            "rows": {"read": 40, "used": 40, "skipped": 0, "bad": 0, "counted": 40},
            "missing": {"x0": 3},
            "infinite": {},
            "unseen": {},
            "statistics": "recounted",
            "passes": 2,
            "choice": {
                "requested": "auto",
                "clusters": 2,
                "clarity": "clear",
                "alternatives": [3],
                "largest": 7,
            },
            "inputs": ["größe.csv"],
            "versions": {"python": "3.11.7", "numpy": "2.4.6"},
            "notes": [],
        },
        extras={
            name: rng.integers(1, 9, [sizes.get(s, s) for s in symbols]).astype(dtype)
            for name, (dtype, symbols) in EXTRAS.items()
        }
        | {
            "learning_directions": np.eye(d)[np.arange(m) % d],
            "former_learning_directions": np.eye(d)[np.arange(m) % d],
            "dither_columns": np.array([0, d - 1]),
            "copies": np.array([0.01]),
            "hot_columns": np.array([0, d - 1])[: sizes["e"]],
            "hot_groups": np.array([0, 0])[: sizes["e"]],
            "hot_shares": np.array([0.25, 0.5])[: sizes["e"]],
            "coarse_columns": np.array([0])[: sizes["q"]],
            "coarse_finer": np.array([d - 1])[: sizes["q"]],
            "spike_columns": np.array([0, d - 1]),
            "spike_moved": np.array([0.5, 1.0]),
            "lookup_columns": np.array([0]),
            "lookup_things": np.array([20.5]),
            "pile_columns": np.array([0, 0, d - 1]),
            "histograms_on_piles": histograms // 2,
        },
    )  # fmt: skip


def mean(z: np.ndarray) -> np.ndarray:
    return z.mean(axis=0) if len(z) else np.zeros(z.shape[1])


@pytest.fixture
def model() -> Model:
    return plain_model()


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "model.npz"


def rewritten(path: Path, changes: dict[str, object], *, compress: bool = False) -> Path:
    """The model at `path` with some arrays replaced (None: left out), by NumPy's own writer."""
    arrays = dict(np.load(path)) | changes
    write = np.savez_compressed if compress else np.savez
    write(path, **{name: a for name, a in arrays.items() if a is not None})
    return path


def refusal(path: Path) -> str:
    with pytest.raises(ModelError) as caught:
        load(path)
    assert caught.value.status == ExitStatus.MODEL == 4
    assert "\n" not in caught.value.message
    assert caught.value.message.startswith(f"{path}: ")
    return caught.value.message.removeprefix(f"{path}: ")


# -- what is written comes back


@pytest.mark.parametrize(("depth", "d"), [(1, 1), (3, 3), (8, 20)])
def test_a_model_comes_back_as_it_was(path, depth, d):
    before = plain_model(depth, d)
    save(before, path)
    after = load(path)
    for field in fields(Model):
        old, new = getattr(before, field.name), getattr(after, field.name)
        if isinstance(old, np.ndarray):
            assert new.dtype == old.dtype
            assert np.array_equal(new, old)
        elif field.name == "extras":
            assert new.keys() == old.keys()
            assert all(np.array_equal(new[k], old[k]) for k in old)
        else:
            assert new == old


def test_sizes_follow_from_the_arrays():
    model = plain_model(depth=4, d=6)
    assert (model.depth, model.n_features, model.n_splits, model.n_nodes) == (4, 6, 15, 31)
    assert model.n_clusters == 2


def test_params_and_spec_come_from_the_metadata(model):
    assert model.params == FitParams(learn=LearnParams(depth=3))
    assert list(model.spec.names) == model.feature_names
    assert model.spec.missing == "skip"


def test_equal_models_give_equal_bytes(model, tmp_path):
    save(model, tmp_path / "a.npz")
    os.utime(tmp_path / "a.npz", (1, 1))
    model.metadata = json.loads(json.dumps(dict(reversed(model.metadata.items()))))
    model.directions = np.asfortranarray(model.directions)
    save(model, tmp_path / "b.npz")
    save(load(tmp_path / "b.npz"), tmp_path / "c.npz")
    found = {hashlib.sha256((tmp_path / f"{k}.npz").read_bytes()).hexdigest() for k in ("a", "b", "c")}
    assert len(found) == 1


def test_numpy_reads_the_file_without_pickle_and_finds_the_arrays_of_the_contract(model, path):
    save(model, path)
    with np.load(path, allow_pickle=False) as file:
        assert set(file) == set(ARRAYS) | set(EXTRAS)
        assert int(file["format_version"]) == 1
        assert json.loads(str(file["metadata"])) == model.metadata
        assert file["feature_names"].tolist() == model.feature_names
        m, n = 7, 15
        shapes = {
            "center": (3,), "scale": (3,), "directions": (m, 3), "thresholds": (m,),
            "offsets": (m,), "pivots": (n, 3), "projection_sd": (m,), "histograms": (m, 128),
            "means": (n, 3), "counts": (n,), "sums_of_squares": (n, 3), "merge_order": (m,),
            "cluster_of_leaf": (8,),
        }  # fmt: skip
        integers = {"histograms": "int64", "counts": "int64", "merge_order": "int64"}
        integers["cluster_of_leaf"] = "int32"
        for name, shape in shapes.items():
            assert file[name].shape == shape
            assert file[name].dtype == integers.get(name, "float64")


def test_the_zip_is_stored_dated_1980_and_whole(model, path):
    save(model, path)
    with zipfile.ZipFile(path) as archive:
        assert archive.testzip() is None
        for entry in archive.infolist():
            assert entry.date_time == (1980, 1, 1, 0, 0, 0)
            assert entry.compress_type == zipfile.ZIP_STORED
            assert entry.flag_bits == 0


def test_a_model_packed_again_by_numpy_is_still_a_model(model, path):
    save(model, path)
    size = path.stat().st_size
    rewritten(path, {}, compress=True)
    assert path.stat().st_size < size
    assert np.array_equal(load(path).directions, model.directions)


def test_a_model_without_extras_is_a_model(model, path):
    model.extras = {}
    save(model, path)
    assert load(path).extras == {}


def test_a_model_is_read_from_an_open_file(model, path):
    save(model, path)
    assert load(io.BytesIO(path.read_bytes())).n_clusters == 2


def test_a_model_is_read_from_a_pipe(model, path, tmp_path):
    save(model, path)
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    writer = threading.Thread(target=lambda: pipe.write_bytes(path.read_bytes()))
    writer.start()
    assert load(pipe).n_clusters == 2
    writer.join()


def test_names_in_any_script_and_one_hot_levels_come_back(model, path):
    model.feature_names = ["höhe", "colour=red", "colour=青 🌊"]
    model.metadata["features"]["columns"] = [
        {"name": "höhe", "levels": None},
        {"name": "colour", "levels": ["red", "青 🌊"]},
    ]
    save(model, path)
    assert load(path).feature_names == model.feature_names
    assert load(path).spec.source_columns == ("höhe", "colour")


def test_loading_imports_neither_numba_nor_pyarrow_nor_pandas(model, path):
    save(model, path)
    code = (
        "import sys; from imdh_cli.model import load; load(sys.argv[1]);"
        "print([m for m in ('numba', 'pyarrow', 'pandas', 'scipy') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code, path], capture_output=True, text=True)
    assert done.stdout.strip() == "[]", done.stderr


# -- saving


def test_an_existing_model_is_replaced_only_with_force(model, path):
    save(model, path)
    old = path.read_bytes()
    other = plain_model(seed=1)
    with pytest.raises(UsageError, match="exists"):
        save(other, path)
    assert path.read_bytes() == old
    save(other, path, force=True)
    assert np.array_equal(load(path).center, other.center)


def test_a_model_is_never_written_over_the_data(model, tmp_path):
    data = tmp_path / "data.csv"
    data.write_bytes(b"x\n1\n")
    with pytest.raises(UsageError, match="is also an input"):
        save(model, data, force=True, inputs=[data])
    assert data.read_bytes() == b"x\n1\n"


def test_a_model_that_could_not_be_loaded_is_not_saved(model, path):
    model.means[3, 1] = np.nan
    with pytest.raises(ModelError, match="means"):
        save(model, path)
    assert list(path.parent.iterdir()) == []


def test_metadata_with_nan_is_not_saved(model, path):
    model.metadata["share"] = float("nan")
    with pytest.raises(ModelError, match="metadata"):
        save(model, path)
    assert list(path.parent.iterdir()) == []


def test_saving_to_a_full_disk_fails_with_status_1(model):
    with pytest.raises(OutputError, match="no space left") as caught:
        save(model, "/dev/full")
    assert caught.value.status == 1


# -- what is refused: the file


def test_a_missing_file_is_named_with_a_hint(tmp_path):
    with pytest.raises(ModelError, match=r"none\.npz: no such file") as caught:
        load(tmp_path / "none.npz")
    assert "imdh fit" in caught.value.hint


def test_a_folder_is_refused(tmp_path):
    assert "folder" in refusal(tmp_path)


@pytest.mark.parametrize("content", [b"", b"x,y\n1,2\n", b"PK", b"PAR1" * 9, b"PK\x03\x04" * 99])
def test_another_kind_of_file_is_refused(path, content):
    path.write_bytes(content)
    assert refusal(path)


@pytest.mark.parametrize("device", ["/dev/zero", "/dev/null", "/dev/urandom"])
def test_an_endless_device_is_refused_at_once(device):
    with pytest.raises(ModelError):
        load(device)


def test_a_cut_file_is_damaged(model, path):
    save(model, path)
    content = path.read_bytes()
    for part in (0.1, 0.5, 0.9, 0.999):
        path.write_bytes(content[: int(len(content) * part)])
        assert "damaged" in refusal(path)


def test_a_changed_number_fails_its_checksum(model, path):
    save(model, path)
    content = bytearray(path.read_bytes())
    at = content.index(b"directions.npy") + 300
    content[at] ^= 1
    path.write_bytes(content)
    assert "damaged" in refusal(path)


def test_an_unknown_version_is_named_before_anything_else(model, path):
    save(model, path)
    rewritten(path, {"format_version": np.array(99), "directions": None, "news": np.ones(2)})
    assert refusal(path) == "format 99; this imdh reads 1"
    with pytest.raises(ModelError) as caught:
        load(path)
    assert caught.value.hint == "update imdh"


def test_an_object_array_is_refused_and_runs_no_code(model, path, tmp_path):
    class Trap:
        def __reduce__(self):
            return (os.mkdir, (str(tmp_path / "trapped"),))

    save(model, path)
    rewritten(path, {"thresholds": np.array([Trap()] * 7, dtype=object)})
    assert "Python objects" in refusal(path)
    with zipfile.ZipFile(path, "a") as archive:
        archive.writestr("extra.npy", pickle.dumps(Trap()))
    refusal(path)
    assert not (tmp_path / "trapped").exists()


def test_a_zip_bomb_is_refused_before_it_is_unpacked(model, path):
    save(model, path)
    with (
        zipfile.ZipFile(path, "a", zipfile.ZIP_DEFLATED) as archive,
        archive.open("mean_squares_.npy", "w") as stream,
    ):
        for _ in range(100):
            stream.write(bytes(1 << 20))
    assert path.stat().st_size < 200_000
    assert "zip bomb" in refusal(path)


def test_entries_that_share_bytes_are_refused(model, path):
    save(model, path)
    with zipfile.ZipFile(path, "a") as archive:
        entry = archive.getinfo("sums_of_squares.npy")
        entry.file_size = entry.compress_size = path.stat().st_size
        archive.filelist.append(entry)
        archive._didModify = True  # type: ignore[attr-defined]
    assert refusal(path)


def test_thousands_of_entries_are_refused(path):
    with zipfile.ZipFile(path, "w") as archive:
        for i in range(5000):
            archive.writestr(f"a{i}.npy", b"")
    assert "table of contents" in refusal(path)


@pytest.mark.parametrize("name", ["../escape.npy", "/etc/passwd", "a/b.npy", "UPPER.npy", "x.txt"])
def test_strange_entry_names_are_refused(model, path, name):
    save(model, path)
    with zipfile.ZipFile(path, "a") as archive:
        archive.writestr(name, b"1")
    assert "no array of a model" in refusal(path)


def test_an_array_given_twice_is_refused(model, path):
    save(model, path)
    with zipfile.ZipFile(path) as archive:
        content = archive.read("scale.npy")
    with zipfile.ZipFile(path, "a") as archive, pytest.warns(UserWarning, match="Duplicate"):
        archive.writestr("scale.npy", content)
    assert refusal(path) == "holds scale twice"


def test_other_compressions_are_refused(model, path):
    save(model, path)
    with zipfile.ZipFile(path) as archive:
        content = {name: archive.read(name) for name in archive.namelist()}
    with zipfile.ZipFile(path, "w", zipfile.ZIP_LZMA) as archive:
        for name, data in content.items():
            archive.writestr(name, data)
    assert "compressed" in refusal(path)


@pytest.mark.parametrize(
    "header",
    [
        b"{'descr': '<f8', 'fortran_order': False, 'shape': (9999999999999999, 3), }",
        b"{'descr': '<f8', 'fortran_order': False, 'shape': (-7,), }",
        b"{'descr': '<f8', 'fortran_order': True, 'shape': (7,), }",
        b"{'descr': '<U7', 'fortran_order': False, 'shape': (2,), }",
        b"{'descr': '|O', 'fortran_order': False, 'shape': (7,), }",
        b"{'descr': [('a', '<f8')], 'fortran_order': False, 'shape': (7,), }",
        b"{'descr': '<f8', 'fortran_order': False, 'shape': (__import__('os').getpid(),), }",
        b"(" * 3000,
        b"",
    ],
)
def test_array_headers_are_read_and_never_run(model, path, header):
    save(model, path)
    with zipfile.ZipFile(path) as archive:
        content = {name: archive.read(name) for name in archive.namelist()}
    content["offsets.npy"] = (
        b"\x93NUMPY\x01\x00" + (len(header) + 1).to_bytes(2, "little") + header + b"\n" + bytes(56)
    )
    with zipfile.ZipFile(path, "w") as archive:
        for name, data in content.items():
            archive.writestr(name, data)
    assert "offsets" in refusal(path)


# -- what is refused: the numbers


def changed(name, at, value):
    """A change of one number of an array."""

    def change(arrays):
        arrays[name][at] = value

    return change


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        *[
            (changed(name, (..., 0), value), f"{name} holds a number that is not finite")
            for name in ("center", "scale", "directions", "thresholds", "offsets", "pivots")
            for value in (np.nan, np.inf)
        ],
        (changed("means", (1, 1), -np.inf), "means holds"),
        (changed("sums_of_squares", (1, 1), np.nan), "sums_of_squares holds"),
        (changed("projection_sd", 1, np.nan), "projection_sd holds"),
        (changed("scale", 1, 0.0), "scale must be positive"),
        (changed("scale", 1, -1.0), "scale must be positive"),
        (changed("projection_sd", 1, -1e-9), "projection_sd must not be negative"),
        (changed("sums_of_squares", (7, 0), -1.0), "sums_of_squares must not be negative"),
        (changed("mean_squares", 0, -1.0), "mean_squares must not be negative"),
        (changed("directions", 2, 2.0), "directions: node 3 has the length 3.4641, not 1"),
        (changed("directions", 2, 0.0), "directions: node 3 has the length 0, not 1"),
        (changed("directions", 2, 1e300), "directions holds a number beyond 1e+140"),
        (changed("sums_of_squares", 2, 1e301), "sums_of_squares holds a number beyond 1e+300"),
        (changed("center", 1, -1e150), "center holds a number beyond"),
        (changed("scale", 1, 1e-200), "scale must be positive"),
        (changed("offsets", 4, 99.0), "offsets: node 5"),
        (changed("thresholds", 4, 1e99), "offsets: node 5"),
        (changed("pivots", 4, 1e99), "offsets: node 5"),
        (changed("counts", 0, -1), "counts must be between"),
        (changed("counts", 0, 10**6), "counts: node 1 differs"),
        (changed("counts", 14, 2**62), "counts must be between"),
        (changed("learned_counts", 0, -1), "learned_counts must be between"),
        (changed("means", (0, 0), 5.0), "means: node 1 differs"),
        (changed("sums_of_squares", (1, 0), 5e3), "sums_of_squares: node"),
        (changed("histograms", (2, 5), -1), "histograms must be between"),
        (changed("histograms", (2, 5), 10**6), "histograms hold more rows"),
        (changed("merge_order", 0, 6), "merge_order does not hold every split from 1 to 7 once"),
        (changed("merge_order", 0, -7), "merge_order does not hold"),
        (changed("merge_order", slice(None), np.arange(1, 8)), "merge_order removes node 1 before"),
        (changed("cluster_of_leaf", slice(None), 2), "cluster_of_leaf does not number"),
        (changed("cluster_of_leaf", 3, 3), "cluster_of_leaf does not number"),
        (changed("cluster_of_leaf", 7, 4), "cluster_of_leaf does not number"),
        (changed("cluster_of_leaf", slice(None), 1), "metadata: choice.clusters is not 1"),
        (changed("feature_names", 1, "x0"), "feature_names holds a name twice"),
        (changed("feature_names", 1, "zz"), "metadata: features are not those"),
    ],
)
def test_numbers_no_fit_can_have_written_are_refused(model, path, change, complaint):
    save(model, path)
    arrays = {name: array.copy() for name, array in np.load(path).items()}
    change(arrays)
    rewritten(path, arrays)
    assert refusal(path).startswith(complaint)


@pytest.mark.parametrize("name", ARRAYS)
def test_a_missing_array_is_named(model, path, name):
    save(model, path)
    rewritten(path, {name: None})
    assert name in refusal(path)


@pytest.mark.parametrize("name", [*ARRAYS, *EXTRAS])
def test_a_wrong_type_or_shape_is_named(model, path, name):
    save(model, path)
    for wrong in (np.zeros((2, 2)), np.zeros(0), np.array("text"), np.zeros(7, ">f8"), np.ones(7, "c16")):
        rewritten(path, {name: wrong})
        message = refusal(path)
        assert name in message or "directions" in message or "metadata" in message, wrong


def test_an_array_one_too_short_is_told_with_both_shapes(model, path):
    save(model, path)
    rewritten(path, {"offsets": model.offsets[:-1]})
    assert refusal(path) == "offsets has the shape 6, not 7"


@pytest.mark.parametrize("splits", [0, 6, 2**15 - 1])
def test_a_tree_that_is_not_full_or_too_deep_is_refused(model, path, splits):
    save(model, path)
    rewritten(path, {"directions": np.ones((splits, 1))}, compress=True)
    assert f"directions has {splits} rows" in refusal(path)


@pytest.mark.parametrize(
    ("changes", "wrong"),
    [
        ({"hot_groups": np.array([1, 1])}, "hot_groups are not"),
        ({"hot_groups": np.array([0, 2])}, "hot_groups are not"),
        ({"hot_columns": np.array([1, 1])}, "hot_columns are not in ascending order"),
        ({"hot_columns": np.array([0, 99])}, "hot_columns must be between 0 and"),
        ({"coarse_columns": np.array([1])}, "coarse_columns are not all among dither_columns"),
        ({"coarse_finer": np.array([0])}, "coarse_finer holds columns that are coarse themselves"),
        ({"hot_shares": np.array([0.8, 0.8])}, "hot_shares of a group sum up"),
        ({"hot_shares": np.array([0.8, -0.1])}, "hot_shares must not be negative"),
        ({"copies": np.array([1.5])}, "copies must be 1 at most"),
        ({"spike_moved": np.array([0.5, 1.5])}, "spike_moved must be 1 at most"),
        ({"lookup_things": np.array([0.5])}, "lookup_things must be 1 at least"),
        ({"lookup_columns": np.array([99])}, "lookup_columns must be between 0 and"),
        ({"spike_columns": np.array([0, 99])}, "spike_columns must be between 0 and"),
    ],
)
def test_what_cannot_be_of_columns_with_noise_is_refused(model, path, changes, wrong):
    save(model, path)
    rewritten(path, changes)
    assert refusal(path).startswith(wrong)


def test_no_one_hot_columns_at_all_are_harmless(model, path):
    save(model, path)
    rewritten(path, {name: model.extras[name][:0] for name in model.extras if name.startswith("hot_")})
    assert not Dither.restored(load(path).extras).one_hot.any


@pytest.mark.parametrize("name", ["former_window_counts", "former_fill", "dither_rooms", "pile_values"])
def test_of_what_belongs_together_one_array_is_not_missing_alone(model, path, name):
    save(model, path)
    rewritten(path, {name: None})
    assert refusal(path).startswith(f"has no array {name}, though others of the ")


def test_arrays_that_models_had_before_are_passed_over(model, path):
    save(model, path)
    rewritten(path, {"code_steps": np.ones(3), "column_codes": np.ones((model.n_features, 20))})
    assert set(load(path).extras) == set(model.extras)


def test_an_unknown_array_is_refused(model, path):
    save(model, path)
    rewritten(path, {"surprise": np.ones(3)})
    assert refusal(path) == "holds surprise, which is no array of format 1"


def test_text_that_cannot_be_printed_is_refused(model, path):
    save(model, path)
    names = np.array(["x0", "x1", "x2"])
    names.view("<u4")[0] = 0xD800
    rewritten(path, {"feature_names": names})
    assert "character that does not exist" in refusal(path)


# -- what is refused: the metadata


def without(*keys):
    def change(metadata):
        for key in keys[:-1]:
            metadata = metadata[key]
        del metadata[keys[-1]]

    return change


def put(value, *keys):
    def change(metadata):
        for key in keys[:-1]:
            metadata = metadata[key]
        metadata[keys[-1]] = value

    return change


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        *[(without(key), f"has no {key}") for key in plain_model().metadata],
        *[(put(0.5, key), key) for key in plain_model().metadata],
        *[(put(None, key), key) for key in plain_model().metadata],
        (put("sklearn", "program"), "program is 'sklearn'"),
        (put(-1, "rows", "read"), "rows.read is no whole number"),
        (put(True, "rows", "read"), "rows.read is no whole number"),
        (put(1e3, "rows", "read"), "rows.read is no whole number"),
        (put(10**30, "rows", "read"), "rows.read is no whole number"),
        (without("rows", "used"), "rows has no used"),
        (put(0, "passes"), "passes"),
        (put("guessed", "statistics"), "statistics is none of"),
        (put({"x": "many"}, "missing"), "missing.x"),
        (put([["id"]], "left_out_columns"), "left_out_columns is no list of 2"),
        (put([7], "notes"), "notes is no text"),
        (put(7, "id_columns"), "id_columns is no list"),
        (put(["a"], "cluster_names"), "cluster_names is no object"),
        (put({"two": "a"}, "cluster_names"), "'two' is no node"),
        (put({"2": 7}, "cluster_names"), "cluster_names.2 is no text"),
        (put({"2": ""}, "cluster_names"), "cluster_names.2 has 0 characters"),
        (put({"2": 1001 * "a"}, "cluster_names"), "cluster_names.2 has 1001 characters"),
        (put(3, "choice", "clusters"), "choice.clusters is not 2"),
        (put("sure", "choice", "clarity"), "choice.clarity is none of"),
        (put(4, "parameters", "learn", "depth"), "parameters.learn.depth is not 3"),
        (put(3.0, "parameters", "learn", "depth"), "parameters.learn.depth is none of auto"),
        (put("fast", "parameters", "learn", "alpha"), "parameters.learn.alpha is no number"),
        (put(-0.1, "parameters", "learn", "alpha"), "parameters.learn.alpha is -0.1, which --help does not"),
        (put(0, "parameters", "learn", "bandwidth"), "parameters.learn.bandwidth is 0, which"),
        (put(2.5, "parameters", "learn", "learning_decay"), "parameters.learn.learning_decay is 2.5, which"),
        (put(99_999_999, "parameters", "passes"), "parameters.passes is 99999999, which"),
        (put("upside", "parameters", "learn", "step"), "parameters.learn.step is none of"),
        (put([], "parameters", "prune"), "parameters.prune is no object"),
        (put("x", "parameters", "prune", "max_clusters"), "parameters.prune.max_clusters"),
        (put([{"name": "x0"}], "features", "columns"), "features.columns has no levels"),
        (put([], "features", "columns"), "features are not those"),
        (put("drop", "features", "missing"), "features.missing is none of"),
        (put("\ud800", "notes", slice(0, 0)), "character that does not exist"),
    ],
)  # fmt: skip
def test_metadata_no_fit_can_have_written_are_refused(model, path, change, complaint):
    save(model, path)
    change(model.metadata)
    rewritten(path, {"metadata": np.array(json.dumps(model.metadata))})
    message = refusal(path)
    assert message.startswith("metadata: ")
    assert complaint in message


@pytest.mark.parametrize(
    "text",
    [
        "",
        "null",
        "[]",
        "{",
        '{"a": NaN}',
        '{"a": -Infinity}',
        '{"a": 1e999}',
        '{"a": ' + "9" * 5000 + "}",
        '{"a": ' + "[" * 100_000 + "]" * 100_000 + "}",
        '{"a": ' + "[" * 20 + "]" * 20 + "}",
    ],
)
def test_metadata_that_are_no_plain_json_object_are_refused(model, path, text):
    save(model, path)
    rewritten(path, {"metadata": np.array(text)})
    assert refusal(path).startswith("metadata: ")


def test_unknown_metadata_are_let_through(model, path):
    model.metadata["since"] = {"a later": ["version"]}
    model.metadata["parameters"]["learn"]["news"] = 1
    save(model, path)
    assert load(path).metadata == model.metadata
    assert load(path).params == FitParams(learn=LearnParams(depth=3))


@pytest.mark.parametrize("content", [b"", b"a,b\n1,2\n", b"PK\x03\x04"])
def test_what_is_no_model_comes_with_what_to_do(content, path):
    Path(path).write_bytes(content)
    with pytest.raises(ModelError) as caught:
        load(path)
    assert "imdh fit" in (caught.value.hint or "") or "copy the file again" in (caught.value.hint or "")


def test_arrays_that_no_model_has_come_with_what_to_do(model, path):
    save(model, path)
    rewritten(path, {"news": np.ones(2)})
    with pytest.raises(ModelError, match="no array") as caught:
        load(path)
    assert "fit the model again" in (caught.value.hint or "")


# --- archives that the zip reader cannot read -----------------------------------------------------


def archive_with(path: Path, change) -> bytes:
    """The model's arrays in an archive whose table of contents was changed before it was written."""
    out = io.BytesIO()
    with zipfile.ZipFile(path) as model, zipfile.ZipFile(out, "w") as made:
        for entry in model.infolist():
            made.writestr(entry.filename, model.read(entry))
        change(made.filelist[3])
    return out.getvalue()


@pytest.mark.parametrize("from_pipe", [False, True])
@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("extract_version", 99),  # of a later format: zipfile raises a RuntimeError of its own kind
        ("flag_bits", 0x20),  # patched data: the same
        ("flag_bits", 0x40),  # strong encryption: the same
        ("header_offset", 2**63),  # ValueError from a file, OverflowError from memory
    ],
)
def test_what_the_zip_reader_does_not_read_is_one_line(model, tmp_path, field, value, from_pipe):
    save(model, tmp_path / "good.npz")
    path = tmp_path / "odd.npz"
    data = archive_with(tmp_path / "good.npz", lambda entry: setattr(entry, field, value))
    if from_pipe:
        os.mkfifo(path)
        writer = threading.Thread(target=path.write_bytes, args=(data,))
        writer.start()
    else:
        path.write_bytes(data)
    with pytest.raises(ModelError, match="cannot be read"):
        load(path)
    if from_pipe:
        writer.join()


def test_a_name_that_is_no_utf_8_is_one_line(model, tmp_path):
    save(model, tmp_path / "m.npz")
    data = bytearray((tmp_path / "m.npz").read_bytes())
    entry = data.rindex(b"PK\x01\x02")
    data[entry + 9] |= 0x08  # the flag that names are UTF-8
    data[entry + 46] = 0xFF
    (tmp_path / "m.npz").write_bytes(data)
    with pytest.raises(ModelError, match="cannot be read: 'utf-8'"):
        load(tmp_path / "m.npz")


def test_arrays_for_which_there_is_no_room_are_one_line(model, tmp_path, monkeypatch):
    save(model, tmp_path / "m.npz")

    def no_room(*_):
        raise MemoryError("Unable to allocate 8 GiB")

    monkeypatch.setattr("imdh_cli.model.npz._read_body", no_room)
    with pytest.raises(ModelError, match="cannot be read: Unable to allocate"):
        load(tmp_path / "m.npz")
