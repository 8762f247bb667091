"""What is counted in one pass stands for a recount."""

from __future__ import annotations

from contextlib import closing

import numpy as np
import pyarrow as pa
import pytest
from sklearn.metrics import adjusted_rand_score

from imdh_cli import features
from imdh_cli.params import FeatureParams, FitParams, SourceParams
from imdh_cli.pipeline.assign import Labeller
from imdh_cli.pipeline.fit import fit as fit_rows
from imdh_cli.pipeline.prune import reprune
from imdh_cli.pipeline.recount import recount as recount_rows
from imdh_cli.sources import open_source

ROWS, D, K = 2_000_000, 3, 6


@pytest.fixture(scope="module")
def file(tmp_path_factory):
    """Two million rows around six centres, as an Arrow file of eight batches; 100,000 of them, and which."""
    rng = np.random.default_rng(3)
    centres = 6 * rng.standard_normal((K, D))
    path = tmp_path_factory.mktemp("large") / "rows.arrow"
    schema = pa.schema([(f"x{j}", pa.float64()) for j in range(D)])
    with pa.ipc.new_file(path, schema) as writer:
        for _ in range(8):
            which = rng.integers(0, K, ROWS // 8)
            X = centres[which] + rng.standard_normal((ROWS // 8, D))
            writer.write_batch(pa.record_batch(list(X.T.copy()), schema=schema))
    return str(path), X[:100_000], which[:100_000]


@pytest.mark.parametrize("shuffle", ["auto", "none"])
def test_one_pass_gives_the_clusters_of_a_recount(file, shuffle):
    """From a sample of the rows, or where their order is kept, from windows of them."""
    path, X, which = file
    params = SourceParams(threads=2)
    with closing(open_source([path], params)) as source:
        chosen = features.select_features(source, FeatureParams())
        asked = FitParams(passes=1, recount="no", shuffle=shuffle)
        once = fit_rows(source, chosen, asked, threads=2).model
    if shuffle == "none":
        assert once.metadata["statistics"] == "windowed"
        assert ROWS // 2 <= once.counts[0] <= 3 * ROWS // 4
    else:
        assert once.metadata["statistics"] == "sampled"
        assert once.counts[0] == 100_000
    with closing(open_source([path], params)) as source:
        counted, _ = recount_rows(once, source, threads=2)
    assert counted.counts[0] == ROWS
    again, _ = reprune(counted, once.params.prune)
    labels = [Labeller(model, None)(X)["cluster"] for model in (once, again)]
    if shuffle == "none":
        assert again.n_clusters == once.n_clusters
        assert adjusted_rand_score(*labels) >= 0.98
    else:  # of fewer rows fewer valleys are significant that are none
        agreement = [adjusted_rand_score(which, found) for found in labels]
        assert once.n_clusters == K
        assert agreement[0] >= agreement[1]
