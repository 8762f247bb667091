"""The comparison of results before and after a change: it sees what differs, and names it."""

from __future__ import annotations

import json

import numpy as np
import pytest

from tests import same_as
from tests.cli import blobs, imdh, write


@pytest.fixture
def fitted(tmp_path):
    """What a fit with a seed leaves behind, as digests."""
    data = write(tmp_path / "d.csv", blobs(600, d=2)[0])

    def fit(place: str, *words: object) -> dict[str, str]:
        (tmp_path / place).mkdir()
        imdh("fit", data, "-o", tmp_path / place / "m.npz", "--depth", 3, *words)
        imdh("assign", tmp_path / place / "m.npz", data, "-o", tmp_path / place / "labels.csv")
        return same_as.digests(tmp_path / place)

    return fit


def test_the_same_fit_is_the_same(fitted):
    assert same_as.differences(fitted("one"), fitted("other")) == []


def test_another_seed_is_named_by_arrays_and_metadata(fitted):
    one, other = fitted("one"), fitted("other", "--seed", 1)
    names = same_as.differences(one, other)
    assert {"m.npz: thresholds", "m.npz: directions", "m.npz: metadata.parameters.seed"} <= set(names)
    assert not {"m.npz: center", "m.npz: feature_names", "m.npz: metadata.rows.used"} & set(names)


def test_one_bit_another_type_and_what_is_missing_are_seen(tmp_path):
    arrays = {"metadata": np.array("{}"), "a": np.array([1.0, 0.0]), "b": np.arange(3), "c": np.arange(2)}
    changed = {"metadata": arrays["metadata"], "a": np.array([1.0, -0.0]), "b": np.arange(3).astype("u8")}
    for place, content in (("one", arrays), ("other", changed)):
        (tmp_path / place).mkdir()
        np.savez(tmp_path / place / "m.npz", **content)
    found = same_as.digests(tmp_path / "one"), same_as.digests(tmp_path / "other")
    assert same_as.differences(*found) == ["m.npz: a", "m.npz: b", "m.npz: c"]


def test_printed_json_is_compared_by_key_without_the_figures_of_the_run(tmp_path, monkeypatch):
    said = {"seconds": 1, "choice": {"clusters": 3, "clarity": "clear"}, "versions": {"numpy": "1"}}
    later = {"seconds": 2, "choice": {"clusters": 4, "clarity": "clear"}, "versions": {"numpy": "2"}}
    found = []
    for k, out in enumerate((said, later)):
        ran = (0, json.dumps(out).encode(), f"{k}.5 s, {k} thousand rows/s, {k} MB at most".encode())
        monkeypatch.setattr(same_as, "_run", lambda *args, ran=ran, **more: ran)
        found.append(same_as.outcome(same_as.ROOT, "fit a -o m.npz --json", tmp_path / str(k)))
    assert same_as.differences(*found) == ["1 fit: choice.clusters"]


@pytest.mark.parametrize("lines", ["assign nothing.npz d.csv", "! --version"])
def test_a_command_that_does_not_end_as_it_is_to_is_no_case(tmp_path, lines):
    with pytest.raises(RuntimeError, match="status"):
        same_as.outcome(same_as.ROOT, lines, tmp_path / "case")
