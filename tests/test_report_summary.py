"""The figures of a report: against NumPy on the labelled rows, in every form that carries them."""

from __future__ import annotations

import csv
import io
import json
import re
from dataclasses import replace

import numpy as np
import pytest
from rich.console import Console

from imdh_cli.core.pruning import cut, prune
from imdh_cli.errors import UsageError
from imdh_cli.params import PruneParams
from imdh_cli.report import page, terminal
from imdh_cli.report.agreement import Truth
from imdh_cli.report.summary import csv_lines, schema, summarise
from tests.cli import arrays, blobs, imdh, write
from tests.models import make, make_model


def assert_equal(found, expected, unit):
    """To 1e-9 of each feature's own unit: its overall sd."""
    np.testing.assert_allclose(found / unit, expected / unit, rtol=1e-9, atol=1e-9)


@pytest.fixture(scope="module")
def made():
    return make(depth=5, d=5, k=6, n=3000, levels=("red", "green", "blue"), clusters=7)


@pytest.fixture(scope="module")
def report(made):
    """The JSON report, as a reader of the file gets it."""
    return json.loads(json.dumps(summarise(made.model).to_dict(), allow_nan=False))


def test_profiles_are_those_of_the_labelled_rows(made, report):
    assert len(report["clusters"]) == 7
    everyone = made.X.mean(axis=0), made.X.std(axis=0)
    for cluster in report["clusters"]:
        rows = made.X[made.cluster == cluster["cluster"]]
        mean, sd, z = (np.array([entry[key] for entry in cluster["profile"]]) for key in ("mean", "sd", "z"))
        assert cluster["rows"] == len(rows)
        assert cluster["share"] == len(rows) / len(made.X)
        assert_equal(mean, rows.mean(axis=0), everyone[1])
        assert_equal(sd, rows.std(axis=0), everyone[1])
        assert_equal(z, (rows.mean(axis=0) - everyone[0]) / everyone[1], 1.0)


def test_csv_holds_the_same_figures_to_the_last_digit(made, report):
    lines = list(csv.DictReader(io.StringIO("\n".join(csv_lines(summarise(made.model))))))
    assert len(lines) == 7 * 8
    expected = [
        {
            "cluster": str(cluster["cluster"]),
            "node": str(cluster["node"]),
            "rows": str(cluster["rows"]),
            "share": repr(cluster["share"]),
            "feature": entry["feature"],
            "mean": repr(entry["mean"]),
            "sd": repr(entry["sd"]),
            "z": repr(entry["z"]),
            "overall_mean": repr(feature["mean"]),
            "overall_sd": repr(feature["sd"]),
            "name": "",
        }
        for cluster in report["clusters"]
        for entry, feature in zip(cluster["profile"], report["data"]["features"], strict=True)
    ]
    assert lines == expected


def test_a_one_hot_level_is_a_share(made, report):
    kinds = {f["name"]: f["kind"] for f in report["data"]["features"]}
    assert kinds == dict.fromkeys(["x1", "x2", "x3", "x4", "x5"], "number") | dict.fromkeys(
        ["kind=red", "kind=green", "kind=blue"], "share"
    )
    red = [c["profile"][5]["mean"] for c in report["clusters"]]
    for label, share in enumerate(red, start=1):
        assert share == pytest.approx(made.X[made.cluster == label, 5].mean(), abs=1e-9)


def test_explained_is_between_over_total_variance(made, report):
    within = sum(
        made.X[made.cluster == label].var(axis=0) * np.mean(made.cluster == label) for label in range(1, 8)
    )
    expected = 1.0 - within / made.X.var(axis=0)
    found = [f["explained"] for f in report["data"]["features"]]
    np.testing.assert_allclose(found, expected, atol=1e-9)
    assert report["explained"] == pytest.approx(expected.mean(), abs=1e-9)


def test_marks_are_the_features_farthest_out(report):
    for cluster in report["clusters"]:
        z = {entry["feature"]: abs(entry["z"]) for entry in cluster["profile"]}
        far = sorted((name for name in z if z[name] >= 0.2), key=lambda name: -z[name])
        assert cluster["marks"] == far


def test_nearest_cluster_is_the_nearest_mean(report):
    means = np.array([[entry["z"] for entry in c["profile"]] for c in report["clusters"]])
    for i, cluster in enumerate(report["clusters"]):
        distances = np.sqrt(((means - means[i]) ** 2).sum(axis=1))
        distances[i] = np.inf
        assert cluster["nearest"] == np.argmin(distances) + 1
        assert cluster["distance"] == pytest.approx(distances.min(), abs=1e-9)


def test_rows_of_a_split_follow_its_rule_in_user_units(made, report):
    """Coefficients and cut of the JSON report alone send every row where its label says."""
    for split in report["splits"]:
        coefficients = np.array([entry["coefficient"] for entry in split["direction"]])
        left, right = split["left"], split["right"]
        here = (made.cluster >= left["first"]) & (made.cluster <= right["last"])
        goes_left = made.X[here] @ coefficients < split["cut"]
        assert split["rows"] == here.sum()
        assert left["rows"] == goes_left.sum()
        assert set(made.cluster[here][goes_left]) == set(range(left["first"], left["last"] + 1))
        left_mean = np.array([entry["left_mean"] for entry in split["direction"]])
        assert_equal(left_mean, made.X[here][goes_left].mean(axis=0), made.X.std(axis=0))


def test_loadings_are_a_unit_direction(report):
    for split in report["splits"]:
        assert sum(entry["weight"] for entry in split["direction"]) == pytest.approx(1.0)


def test_depth_can_be_read_off_the_density(report, made):
    for split in report["splits"]:
        f = np.array(split["density"])
        counts = made.model.histograms[split["node"] - 1]
        beyond = (counts[0] + counts[-1]) / counts.sum() * 63 / 64  # ends hold what is up to 4 sd beyond
        assert f.sum() / 16 == pytest.approx(1.0 - beyond, abs=0.02)
        at_cut = (9 * f[63:65].sum() - f[62] - f[65]) / 16  # between two centres, by a cubic
        depth = max(0.0, 1.0 - at_cut / min(f[:64].max(), f[64:].max()))
        assert split["depth"] == pytest.approx(depth, abs=0.01)


def test_splits_nest_as_the_pruning_does(made):
    """Cutting the tree at the splits of at most k clusters gives the pruning's k clusters."""
    summary, model = summarise(made.model), made.model
    for k in range(2, 8):
        nodes, _ = cut(model.merge_order, model.counts, k)
        kept = [s for s in summary.splits.values() if s.from_k <= k]
        ends = {side.node for s in kept for side in (s.left, s.right)} - {s.node for s in kept}
        assert len(kept) == k - 1
        assert ends == set(nodes)


@pytest.mark.parametrize("min_size", [1, 40])
def test_cluster_nodes_are_those_that_labelling_names(min_size):
    """Nodes too small to be clusters are passed through; their rows are with their cluster."""
    made = make(depth=6, d=3, k=5, n=3000, clusters=9, min_size=min_size)
    model = made.model
    pruning = prune(
        model.counts, model.means, model.sums_of_squares, model.pivots, model.histograms,
        PruneParams(clusters=9, min_size=min_size),
    )  # fmt: skip
    summary = summarise(model)
    assert [c.node for c in summary.clusters] == list(pruning.cluster_nodes)
    assert [c.rows for c in summary.clusters] == [np.sum(made.cluster == k) for k in range(1, 10)]
    assert len(summary.splits) == 8


def test_labels_that_are_no_subtrees_are_counted_as_labelled(made):
    """A model may say that; the figures are still those of the rows with the label."""
    labels = np.minimum(np.arange(32) // 5 + 1, 6).astype(np.int32)
    model = replace(made.model, cluster_of_leaf=labels)
    of_row = labels[made.leaf - 32]
    for cluster in summarise(model).clusters:
        rows = made.X[of_row == cluster.label]
        assert cluster.rows == len(rows)
        if len(rows):
            assert_equal(cluster.mean, rows.mean(axis=0), made.X.std(axis=0))


def test_small_clusters_are_counted_but_not_described(made):
    summary = summarise(made.model, min_size=300)
    small = [c for c in summary.clusters if c.rows < 300]
    assert 0 < len(small) < 7
    for cluster in small:
        assert cluster.withheld
        assert cluster.mean is None
        assert cluster.marks == ()
    for c in summary.to_dict()["clusters"]:
        assert (c["profile"] == []) == (c["rows"] < 300)
    rows = list(csv.DictReader(io.StringIO("\n".join(csv_lines(summary)))))
    assert all((r["mean"] == "") == (int(r["rows"]) < 300) for r in rows)
    assert "withheld" in {w.code for w in summary.warnings}


def test_means_of_small_sides_are_withheld(made):
    summary = summarise(made.model, min_size=300)
    for split in summary.splits.values():
        assert (split.left_mean is None) == (made.model.counts[2 * split.node - 1] < 300)


@pytest.mark.parametrize(
    ("node", "message"),
    [
        (0, "there is no node 0"),
        (64, "there is no node 64"),
        (40, "node 40 is a leaf"),
        (31, "node 31 has fewer than 3,000 rows"),
    ],
)
def test_a_node_that_cannot_be_shown_is_refused(made, node, message):
    with pytest.raises(UsageError, match=message):
        summarise(made.model, min_size=3000).split(node)


def test_a_split_below_the_clusters_can_be_asked_for(made):
    summary = summarise(made.model)
    below = next(i for i in range(2, 32) if i not in summary.splits and made.model.counts[i - 1])
    split = summary.split(below)
    assert split.from_k is None
    assert below in [s["node"] for s in summary.to_dict(nodes=[below])["splits"]]


def test_a_constant_feature_has_no_effect_and_no_variance():
    X = np.random.default_rng(0).standard_normal((300, 3))
    X[:, 1] = 7.0
    summary = summarise(make(depth=3, X=X).model)
    assert (summary.features[1].sd, summary.features[1].explained) == (0.0, None)
    profile = summary.to_dict()["clusters"][0]["profile"]
    assert profile[1] == {"feature": "x2", "mean": 7.0, "sd": 0.0, "z": None}
    assert "constant" in {w.code for w in summary.warnings}


@pytest.mark.parametrize("what", ["empty", "large", "small", "far", "flat", "counts"])
def test_figures_of_a_forged_model_are_finite(what):
    """Numbers that a file may hold but no rows give: every form is still made."""
    model = make(depth=3, d=3, k=3, n=300, levels=("a", "b")).model
    arrays = ("center", "scale", "means", "counts", "sums_of_squares", "histograms", "projection_sd")
    model = replace(model, **{name: getattr(model, name).copy() for name in arrays})
    if what == "empty":
        for name in ("counts", "means", "sums_of_squares", "histograms"):
            getattr(model, name)[:] = 0
    elif what == "large":
        model.scale[:], model.center[:] = 1e140, -1e140
    elif what == "small":
        model.scale[:] = 1e-160
    elif what == "far":
        model.means[:] = np.where(np.arange(model.n_nodes)[:, None] % 2, 1e140, -1e140)
        model.sums_of_squares[0] = 1e-300
    elif what == "flat":
        model.projection_sd[:] = model.sums_of_squares[:] = 0
    else:
        model.counts[:] = 2**50 // (1 + np.arange(model.n_nodes)) * 2
    summary = summarise(model, min_size=1)
    report = json.dumps(summary.to_dict(nodes=[1] if what != "empty" else []), allow_nan=False)
    check(json.loads(report), SCHEMA)
    assert len(list(csv_lines(summary))) == 1 + len(summary.clusters) * 5
    terminal.render(summary, Console(file=io.StringIO(), width=80))
    assert page.build(summary).startswith("<!DOCTYPE html>")


# --- words ------------------------------------------------------------------------------------------


def test_a_clear_choice_is_called_clear():
    summary = summarise(make_model(depth=4, d=8, k=4, seed=0))
    assert summary.choice.headline == "4 clusters, a clear choice"


def test_a_close_choice_names_the_others():
    model = make_model(depth=4, d=8, k=4, seed=1)
    choice = summarise(model).choice
    assert choice.headline == f"{choice.clusters} clusters, a close choice"
    assert choice.runner_up in model.metadata["choice"]["alternatives"]
    for other in model.metadata["choice"]["alternatives"]:
        assert f"{other} (" in choice.sentence


def test_no_structure_is_said_to_be_none():
    summary = summarise(make_model(depth=5, d=4, k=1))
    assert summary.choice.headline == "no clear number of clusters"
    assert "so all rows are one cluster" in summary.choice.sentence


def test_a_given_number_is_set_against_the_programs_own():
    summary = summarise(make(depth=4, d=8, k=4, seed=0, clusters=6).model)
    assert summary.choice.headline == "6 clusters, as asked for"
    assert "would choose 4, a clear choice" in summary.choice.sentence
    assert summary.choice.runner_up == 4


# --- warnings ---------------------------------------------------------------------------------------


def warnings(model, **metadata):
    model = replace(model, metadata=model.metadata | metadata)
    return {w.code: w.message for w in summarise(model).warnings}


def test_rows_left_out_are_counted_with_the_reason(made):
    rows = {"read": 4000, "used": 3000, "skipped": 990, "bad": 10, "counted": 3000}
    message = warnings(made.model, rows=rows, missing={"x1": 900, "x2": 90})["rows-left-out"]
    assert message == (
        "1,000 of 4,000 rows left out (25.0 %: more than a twentieth); 10 rows could not be read; "
        "missing in x1 (900) and x2 (90)."
    )


def test_columns_left_out_are_named_with_the_reason(made):
    found = warnings(made.model, left_out_columns=[["id", "an identifier"], ["a\x1b[1m", "text"]])
    assert found["columns-left-out"] == ("2 columns left out: id (an identifier) and a\\x1b[1m (text).")


def test_windowed_figures_are_said_to_be_of_some_rows(made):
    rows = {"read": 9000, "used": 9000, "skipped": 0, "bad": 0, "counted": 3000}
    message = warnings(made.model, rows=rows, statistics="windowed")["windowed"]
    assert "last 3,000 rows of 9,000" in message


def test_one_giant_tiny_ones_and_outliers_are_named():
    rng = np.random.default_rng(0)
    X = np.vstack([rng.standard_normal((2000, 2)), [[1e3, 1e3]]])
    found = warnings(make(depth=3, X=X, clusters=2).model)
    assert found["giant"].startswith("Cluster 1 holds ")
    assert found["tiny"].startswith("Cluster 2 (1 row) is tiny")
    assert found["single-row"] == "1 cluster of one row: the mean shown is that row."
    assert "outliers" in found["outliers"]


# --- the JSON schema --------------------------------------------------------------------------------

SCHEMA = json.loads(schema())
TYPES = {
    "object": dict, "array": list, "string": str, "integer": int, "number": (int, float),
    "boolean": bool, "null": type(None),
}  # fmt: skip


def check(value, schema, path="$"):
    """Enough of JSON Schema for the file at hand, and every key must be described."""
    assert "description" in schema or path.endswith(("[]", ".*")), f"{path} is not described"
    if "$ref" in schema:
        schema = SCHEMA["$defs"][schema["$ref"].rpartition("/")[2]]
    if "const" in schema:
        assert value == schema["const"], path
    if "enum" in schema:
        assert value in schema["enum"], path
    kinds = schema.get("type", [])
    kinds = [kinds] if isinstance(kinds, str) else kinds
    if kinds:
        assert any(
            isinstance(value, TYPES[k]) and (k == "boolean" or not isinstance(value, bool)) for k in kinds
        ), f"{path}: {value!r} is no {kinds}"
    if isinstance(value, dict):
        known, rest = schema.get("properties", {}), schema.get("additionalProperties", True)
        assert set(schema.get("required", ())) <= set(value), path
        for key, inner in value.items():
            if key in known:
                check(inner, known[key], f"{path}.{key}")
            else:
                assert rest is not False, f"{path}.{key} is not described"
                if isinstance(rest, dict):
                    check(inner, rest, f"{path}.*")
    if isinstance(value, list) and "items" in schema:
        for inner in value:
            check(inner, schema["items"], f"{path}[]")


def test_json_is_as_its_schema_describes(made):
    truth = Truth("planted", 7)
    truth.add(made.cluster, made.planted)
    summary = summarise(made.model, min_size=300, name="model.npz").with_truth(truth.result())
    below = next(i for i in range(2, 32) if i not in summary.splits)
    full = summarise(made.model)
    for report in (
        summary.to_dict(),
        full.to_dict(nodes=[below] if made.model.counts[below - 1] else []),
    ):
        check(report, SCHEMA)


def test_every_key_of_the_schema_is_required_and_described():
    def walk(schema, path):
        assert set(schema.get("required", ())) == set(schema.get("properties", {})), path
        for key, inner in schema.get("properties", {}).items():
            assert inner.get("description"), f"{path}.{key}"
            walk(inner, f"{path}.{key}")
            walk(inner.get("items", {}), f"{path}.{key}[]")

    walk(SCHEMA, "$")


def test_hostile_names_are_kept_as_they_are_in_json_and_csv():
    names = ["</script><img src=x onerror=alert(1)>", 'a,"b"\n', "=1+1", "\x1b[31m"]
    summary = summarise(make(d=4, names=names).model)
    report = json.loads(json.dumps(summary.to_dict()))
    assert [f["name"] for f in report["data"]["features"]] == names
    rows = list(csv.DictReader(io.StringIO("\n".join(csv_lines(summary)), newline="")))
    assert [r["feature"] for r in rows[:4]] == names


@pytest.fixture(scope="module")
def heavy(tmp_path_factory):
    """Rows of which some lie beyond 10 sd, in the second column and, to both sides, in the third."""
    folder = tmp_path_factory.mktemp("heavy")
    X, _ = blobs(3000, k=3, distance=6.0)
    X[:12, 1] = 1e3 + np.arange(12)
    X[20:25, 2], X[25:30, 2] = 400.0, -400.0
    imdh("fit", write(folder / "t.parquet", X), "-k", 3, "-o", folder / "m.npz")
    return X, folder


def codes(report):
    return {w["code"]: w["message"] for w in report["warnings"]}


def test_means_and_sds_of_all_rows_hold_what_lies_beyond_10_sd(heavy):
    X, folder = heavy
    report = imdh("report", folder / "m.npz", "--json").json
    features = report["data"]["features"]
    X = np.where(np.abs(X) > 300.0, np.nan, X)  # which columns are scaled without
    np.testing.assert_allclose([f["mean"] for f in features], np.nanmean(X, axis=0), rtol=1e-9)
    np.testing.assert_allclose([f["sd"] for f in features], np.nanstd(X, axis=0), rtol=1e-9)
    for profile in (c["profile"] for c in report["clusters"]):
        expected = [(p["mean"] - f["mean"]) / f["sd"] for p, f in zip(profile, features, strict=True)]
        np.testing.assert_allclose([p["z"] for p in profile], expected, rtol=1e-6, atol=1e-9)
    lines = list(csv.DictReader(io.StringIO(imdh("report", folder / "m.npz", "--csv").text)))
    assert float(lines[1]["overall_sd"]) == pytest.approx(np.nanstd(X[:, 1]), rel=1e-9)


def test_rows_that_count_as_10_sd_are_told_with_their_columns(heavy):
    X, folder = heavy
    far = (np.abs(X - X.mean(axis=0)) > 10 * X.std(axis=0)).sum(axis=0)
    assert far.tolist() == [0, 12, 10, 0][: X.shape[1]]
    report = imdh("report", folder / "m.npz", "--json").json
    check(report, SCHEMA)
    assert codes(report)["clipped"].startswith("22 rows lie beyond 10 sd in x2 and x3: ")
    assert "! 22 rows lie beyond 10 sd" in imdh("report", folder / "m.npz").text


def test_of_rows_counted_apart_the_training_moments_are_not_told(heavy, tmp_path):
    """Other rows, as many: what is told is theirs, and where it is cut off without a claim."""
    X, folder = heavy
    Y = np.roll(X, 1, axis=1)
    data = write(tmp_path / "u.parquet", Y)
    imdh("prune", folder / "m.npz", data, "-o", tmp_path / "n.npz")
    report = imdh("report", tmp_path / "n.npz", "--json").json
    m = arrays(folder / "m.npz")
    seen = m["center"] + m["scale"] * np.clip((Y - m["center"]) / m["scale"], -10, 10)
    np.testing.assert_allclose([f["mean"] for f in report["data"]["features"]], seen.mean(axis=0), rtol=1e-8)
    assert "of all rows do not" not in codes(report)["clipped"]


def test_without_rows_beyond_10_sd_nothing_is_said_of_them(report):
    assert "clipped" not in codes(report)


def test_few_rows_beyond_an_empty_valley_are_told_and_had_by_their_number(tmp_path):
    X = np.random.default_rng(3).standard_normal((6000, 3))
    imdh("fit", write(tmp_path / "t.parquet", X), "-o", tmp_path / "one.npz")
    sentence = imdh("report", tmp_path / "one.npz", "--json").json["choice"]["sentence"]
    assert sentence.endswith("Any larger number would be a partition, not a finding.")
    X[:60, 0] += 15
    imdh("fit", write(tmp_path / "u.parquet", X), "-o", tmp_path / "m.npz", "--n-init", "4")
    told = imdh("report", tmp_path / "m.npz", "--json").json
    sentence = told["choice"]["sentence"]
    assert len(told["clusters"]) == 1
    assert "60 rows stand apart beyond an empty valley at node " in sentence
    assert "partition" not in sentence
    k = re.search(r": -k (\d+) makes", sentence)[1]
    imdh("prune", tmp_path / "m.npz", "-k", k, "-o", tmp_path / "n.npz")
    assert 60 in [c["rows"] for c in imdh("report", tmp_path / "n.npz", "--json").json["clusters"]]
