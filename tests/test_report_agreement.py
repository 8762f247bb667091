"""Agreement with known classes: as scikit-learn says, in any chunks, whatever is missing."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pyarrow as pa
import pytest
from sklearn import metrics

from imdh_cli.errors import DataError
from imdh_cli.report import agreement as agreement_module
from imdh_cli.report.agreement import Truth, measures


def agreement(labels, classes, n_clusters=None):
    counted = Truth("class", n_clusters or int(max(labels)))
    counted.add(np.asarray(labels), classes)
    return counted.result()


@pytest.mark.parametrize("seed", range(8))
def test_measures_agree_with_scikit_learn(seed):
    rng = np.random.default_rng(seed)
    classes = rng.integers(0, 1 + seed, 500)
    labels = np.where(rng.random(500) < 0.7, classes % 3 + 1, rng.integers(1, 6, 500))
    found = agreement(labels, classes)
    expected = {
        "nmi_arithmetic": metrics.normalized_mutual_info_score(classes, labels),
        "nmi_geometric": metrics.normalized_mutual_info_score(classes, labels, average_method="geometric"),
        "ari": metrics.adjusted_rand_score(classes, labels),
        "homogeneity": metrics.homogeneity_score(classes, labels),
        "completeness": metrics.completeness_score(classes, labels),
    }
    for name, value in expected.items():
        assert getattr(found, name) == pytest.approx(value, abs=1e-9), name


def test_contingency_table_counts_every_pair():
    found = agreement([1, 1, 2, 2, 2], ["b", "a", "a", "a", "b"])
    assert found.classes == ("a", "b")
    assert found.clusters == (1, 2)
    assert found.table == ((1, 2), (1, 1))


def test_chunks_do_not_matter():
    rng = np.random.default_rng(1)
    labels, classes = rng.integers(1, 5, 300), rng.choice(list("xyz"), 300)
    fragments = Truth("class", 4)
    for start in range(0, 300, 7):
        fragments.add(labels[start : start + 7], classes[start : start + 7])
    assert fragments.result() == agreement(labels, classes, 4)


@pytest.mark.parametrize(
    "classes",
    [
        pa.array(["a", None, "", "b"]),
        pa.array(["a", None, None, "b"]).dictionary_encode(),
        ["a", None, "", "b"],
        np.array([1.0, np.nan, np.nan, 2.0]),
        pa.array([True, None, None, False]),
    ],
)
def test_missing_classes_are_counted_and_left_out(classes):
    found = agreement([1, 1, 2, 2], classes)
    assert (found.rows, found.without_class) == (2, 2)
    assert found.ari == 1.0


def test_rows_without_a_cluster_are_counted_and_left_out():
    found = agreement([1, -1, 2, -1], ["a", "a", "b", None])
    assert (found.rows, found.without_cluster, found.without_class) == (2, 1, 1)


def test_one_number_is_one_class_whatever_its_type():
    counted = Truth("class", 2)
    counted.add(np.array([1, 2]), np.array([1, 2]))
    counted.add(np.array([1, 2]), np.array([1.0, 2.0]))
    assert counted.result().classes == ("1", "2")


def test_classes_are_ordered_as_numbers_then_as_text():
    found = agreement([1] * 4, ["10", "9", "x", "-1"])
    assert found.classes == ("-1", "9", "10", "x")


def test_adjusted_rand_is_exact_for_billions_of_rows():
    table = np.array([[3_000_000_001, 1], [2, 4_000_000_003]], dtype=np.int64)

    def pairs(n):
        return Fraction(int(n) * (int(n) - 1), 2)

    together = sum(pairs(n) for n in table.ravel())
    a, b = (sum(pairs(n) for n in table.sum(axis=axis)) for axis in (0, 1))
    expected = a * b / pairs(table.sum())
    assert measures(table)["ari"] == float((together - expected) / ((a + b) / 2 - expected))


def test_an_id_is_no_class(monkeypatch):
    monkeypatch.setattr(agreement_module, "MAX_CLASSES", 10)
    with pytest.raises(DataError, match='column "id" has more than 10 different values'):
        Truth("id", 1).add(np.ones(11, dtype=int), np.arange(11))


def test_nothing_to_compare_is_said():
    with pytest.raises(DataError, match='no row has both a cluster and a value in column "class"'):
        agreement([1, -1], [None, "a"])
