"""The measuring programs measure what they say (none is run here: they take minutes to hours)."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from imdh_cli.core.columns import ColumnMoments
from imdh_cli.core.learner import Learner
from imdh_cli.core.tree import Tree
from imdh_cli.params import FitParams, LearnParams
from tests.benchmarks import accuracy, common, order, plain_loop, planted, soak, speed
from tests.benchmarks import fault_injection as faults

TABLES = {"accuracy": accuracy, "order": order, "planted": planted, "soak": soak, "speed": speed}


def test_regret_spans_zero_to_one_on_every_set() -> None:
    """The best has regret 0, the worst 1, and a tie of all costs nobody anything."""
    regret = accuracy.mean_regret({"a": [10, 0, 5], "b": [5, 10, 5], "c": [0, 5, 5]})
    assert regret == pytest.approx({"a": 1 / 3, "b": 0.5 / 3, "c": 1.5 / 3})


def test_scores_do_not_depend_on_the_names_of_clusters() -> None:
    """A perfect partition under other names has NMI and ARI 100."""
    truth = np.repeat([0, 1, 2], 50)
    found = accuracy.scores(truth, np.repeat([7, -1, 3], 50))
    assert found == pytest.approx({"nmi": 100, "nmi_geometric": 100, "ari": 100, "k": 3})


def test_published_figures_are_complete() -> None:
    """30 sets, six methods each; two cells known by heart."""
    paper = accuracy.published()
    assert len(paper) == 30
    assert paper["shuttle"]["iMDH_k"] == {"nmi": 46.6, "ari": 35.4}
    assert paper["kddcup"]["dePDDP"] == {"nmi": 81.3, "ari": 85.7}


def test_tables_go_between_their_markers(tmp_path: Path) -> None:
    """Only what stands between the markers changes, and twice is once."""
    page = tmp_path / "RESULTS.md"
    begin, end = common.markers("speed")
    page.write_text(f"before\n{begin}\nold\n{end}\nafter\n")
    for _ in range(2):
        assert common.put_into_page("speed", "new", page)
        assert page.read_text() == f"before\n{begin}\n\nnew\n\n{end}\nafter\n"
    assert not common.put_into_page("other", "new", page)


@pytest.mark.parametrize("name", TABLES)
def test_the_page_shows_the_figures_that_were_kept(name: str) -> None:
    """Between the markers stands what the JSON file gives, or nothing when there is none."""
    begin, end = common.markers(name)
    shown = common.PAGE.read_text().split(begin, 1)[1].split(end, 1)[0].strip()
    kept = common.load(common.RESULTS / f"{name}.json")
    assert shown == (TABLES[name].text(kept).strip() if kept else "")


def test_figures_in_the_readme_are_those_of_the_page() -> None:
    """What is measured again is told again."""
    _, told = (common.ROOT / "README.md").read_text().split("\n## Measured\n", 1)
    figures, measured = (
        set(re.findall(r"\d+\.\d+", text)) for text in (told.split("\n## ", 1)[0], common.PAGE.read_text())
    )
    assert figures
    assert figures <= measured


@pytest.mark.parametrize("d", planted.DIMENSIONS)
def test_packed_clusters_are_still_well_separated(d: int) -> None:
    """No two centres are nearer than they should be, and the extreme spreads are there."""
    rng = np.random.default_rng(d)
    spreads = planted.spread_out(rng, 1, planted.MAX_SPREAD, 7)
    assert {1.0, planted.MAX_SPREAD} <= set(spreads)
    centres = planted.separated(lambda size: rng.uniform(0, size, d), 1.0, spreads)
    gaps = np.linalg.norm(centres[:, None] - centres[None], axis=2)
    needed = planted.SEPARATION * (spreads[:, None] + spreads[None])
    assert np.all((gaps >= needed) | np.eye(7, dtype=bool))


def test_sorted_files_hold_the_same_rows() -> None:
    """Every arrangement is a permutation, and sorted by what it says."""
    rng = np.random.default_rng(0)
    x = rng.standard_normal((500, 3)) * [1, 2, 9]
    table = pa.table({f"x{j}": x[:, j] for j in range(3)} | {"target": rng.integers(0, 4, 500)})
    found = order.arrangements(table)
    assert tuple(found) == order.ORDERS
    assert all(np.array_equal(np.sort(rows), np.arange(500)) for rows in found.values())
    assert np.all(np.diff(x[found["first feature"], 0]) >= 0)
    assert np.all(np.diff(table["target"].to_numpy()[found["class"]]) >= 0)
    assert np.any(np.diff(found["shuffled"]) < 0)


def test_a_run_knows_its_memory_and_its_failure() -> None:
    """Peak memory is the child's own, and a child that fails is an error."""
    code = "b = bytearray(200_000_000); print(len(b))"
    big = common.run([sys.executable, "-c", code])
    assert big.stdout == "200000000\n"
    assert big.peak_mb > 190
    with pytest.raises(RuntimeError, match="ended with 3"):
        common.run([sys.executable, "-c", "raise SystemExit(3)"])


LABELS = faults.Job("assign", ("assign",), "labels.csv")
FIT = faults.Job("fit", ("fit", "--checkpoint", "1"), "m.npz")
STOPPED = "imdh: interrupted; no file was written\n"


@pytest.mark.parametrize(
    ("job", "fault", "status", "said", "files", "wrong"),
    [
        (LABELS, faults.NONE, 0, "", {"labels.csv": "new"}, ""),
        (LABELS, faults.NONE, 0, "", {"labels.csv": "old"}, "status 0 without"),
        (LABELS, faults.TERM, 130, STOPPED, {"labels.csv": "old"}, ""),
        (LABELS, faults.TERM, 130, STOPPED, {"labels.csv": "new"}, "it says that no file"),
        (LABELS, faults.TERM, -15, "", {"labels.csv": "old"}, "status -15"),
        (LABELS, faults.TERM, 130, "", {"labels.csv": "old", ".labels.csv.1.tmp": ""}, "left behind"),
        (LABELS, faults.KILL, -9, "", {"labels.csv": "old", ".labels.csv.1.tmp": ""}, ""),
        (LABELS, faults.KILL, -9, "", {"labels.csv": "ne"}, "neither"),
        (LABELS, faults.KILL, -9, "", {}, "neither"),
        (LABELS, faults.FULL, 1, "error: full\n", {"labels.csv": "old"}, ""),
        (LABELS, faults.FULL, 1, "error: x\nTraceback", {"labels.csv": "old"}, "a traceback"),
        (FIT, faults.TERM, 130, "", {"m.npz": "old", "m.npz.checkpoint": ""}, ""),
        (FIT, faults.NONE, 0, "", {"m.npz": "new", "m.npz.checkpoint": ""}, "outlives"),
    ],
)  # fmt: skip
def test_a_soak_sees_what_is_wrong(
    tmp_path: Path,
    job: faults.Job,
    fault: str,
    status: int,
    said: str,
    files: dict[str, str],
    wrong: str,
) -> None:
    """Old and whole outputs pass; lost and half written ones, leftovers and odd statuses do not."""
    for name, text in files.items():
        (tmp_path / name).write_text(text)
        (tmp_path / name).chmod(0o600)
    old, whole = faults.digest(b"old"), faults.digest(b"new")
    found = soak.examine(job, fault, faults.End(status, b"", said), tmp_path, old, whole)
    assert [text for text in found.wrong if wrong not in text or not wrong] == []
    assert bool(found.wrong) == bool(wrong)


def test_the_plain_loop_learns_what_the_kernel_learns() -> None:
    """In few features, where rounding does not grow; rows beyond the limit among them."""
    X = np.random.default_rng(0).standard_normal((2000, 3))
    X[::3] += 4.0
    X[::200] *= 100.0
    params = FitParams(learn=LearnParams(depth=4, reseat="no"))
    columns = ColumnMoments(3)
    columns.add(X)
    scaling = columns.scaling("standard")
    learner = Learner(Tree.start(4, 3), scaling, columns, params, 1)
    learner.begin_epoch(0, counting=True)
    learner.partial_fit(X)
    learner.join()
    tree = Tree.start(4, 3)
    counted = plain_loop.learn_pass(X, scaling, params.learn, tree)
    for name in vars(tree):
        np.testing.assert_allclose(getattr(tree, name), getattr(learner.tree, name), rtol=1e-8, atol=1e-10)
    for name in ("counts", "means", "sums_of_squares", "histograms"):
        ours = getattr(learner.statistics(), name)
        np.testing.assert_allclose(getattr(counted, name), ours, rtol=1e-8, atol=1e-10)
