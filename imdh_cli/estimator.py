"""A scikit-learn estimator over the same core: arrays in memory -> a tree, labels, and the model file.

Needs scikit-learn, which the commands do not: `pip install 'imdh[sklearn]'`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from numbers import Real
from typing import Any, Literal, Self

import numpy as np
import pyarrow as pa
from sklearn.base import (
    BaseEstimator,
    ClassNamePrefixFeaturesOutMixin,
    ClusterMixin,
    TransformerMixin,
)
from sklearn.utils import check_random_state
from sklearn.utils.validation import _check_feature_names_in, check_is_fitted, validate_data

from imdh_cli.core.learn import Learned, learn
from imdh_cli.core.logs import signed_log
from imdh_cli.core.pruning import Pruning
from imdh_cli.core.sentinels import Sentinels
from imdh_cli.errors import ImdhError
from imdh_cli.features import Column, FeatureSpec
from imdh_cli.model import Model
from imdh_cli.model.build import Provenance, build, check_range, describe, odd_of, prune
from imdh_cli.model.metadata import doubted
from imdh_cli.params import MAX_DEPTH, FitParams, LearnParams, Missing, PruneParams
from imdh_cli.pipeline.assign import Labeller
from imdh_cli.pipeline.prune import reprune
from imdh_cli.report.suspects import warn
from imdh_cli.rows.schedule import SEED_ROWS
from imdh_cli.rows.source import ArrayRows
from imdh_cli.runtime import usable_threads
from imdh_cli.sources.nulls import Nulls

MEND = 'make these cells NaN, with missing="skip" or "mean"'


class IMDH(ClassNamePrefixFeaturesOutMixin, TransformerMixin, ClusterMixin, BaseEstimator):
    """Clusters by a tree of minimum density hyperplanes (Hofmeyr's iMDH).

    Parameters
    ----------
    n_clusters : int, optional
        By default it is chosen from the tree.
    depth : int or "auto"
        Split levels: up to 2^depth leaves. By default 8, and 10 where the eighth still divides clusters.
    log : str, int or sequence of these, optional
        Features of very unequal amounts, by name or place: learned from as sign(x) log(1 + abs(x)).
    min_size : int
        A node with fewer rows is no cluster of its own.
    max_clusters : int, optional
        For the automatic choice.
    passes : int or "auto"
        How often `fit` meets the rows.
    n_init : int or "auto"
        Trees that `fit` learns from different starts, of which it keeps one; 4 up to 200,000 rows, else 1.
        `partial_fit` learns one.
    missing : {"error", "skip", "mean"}
        NaN is an error; or its row has the label -1; or it counts as the column's mean.
    null_value : float, str or sequence of these, optional
        What else is missing: a number in all features, or as "name=-999" in one.
    random_state : int, RandomState or None
        Of the start and of the order of rows. An int is the command's `--seed`.
    n_jobs : int, optional
        Threads; all that this process may use by default. The result does not depend on it.

    Attributes
    ----------
    labels_ : ndarray of shape (n_samples,), int
        0 to K - 1 from left to right in the tree, -1 for a row that was skipped. Not after `partial_fit`.
    n_clusters_ : int
    cluster_centers_ : ndarray of shape (n_clusters, n_features)
        Means of the rows counted, in the units of X; of features in `log` the means of their logarithms, back
        in these units.
    clarity_ : {"clear", "close", "none", "given"}
        How sure the number of clusters is; `alternatives_` are other numbers worth a look.
    n_features_in_, feature_names_in_
        As everywhere in scikit-learn.

    Warns
    -----
    imdh_cli.ImdhWarning
        Of values that may stand for missing ones, such as -999; no choice is clear while there are some.

    References
    ----------
    Hofmeyr, D. P. Clustering Large Data Sets with Incremental Estimation of Low-density Separating
    Hyperplanes.
    """

    model_: Model
    _leaf: np.ndarray | None  # of each row of `fit`, -1 where it was skipped

    def __init__(
        self,
        n_clusters: int | None = None,
        *,
        depth: int | Literal["auto"] = "auto",
        log: Sequence[str | int] | str | int | None = None,
        min_size: int = 1,
        max_clusters: int | None = None,
        passes: int | Literal["auto"] = "auto",
        n_init: int | Literal["auto"] = "auto",
        missing: Missing = "error",
        null_value: Sequence[float | str] | float | str | None = None,
        random_state: int | np.random.RandomState | None = None,
        n_jobs: int | None = None,
    ) -> None:
        self.n_clusters = n_clusters
        self.depth = depth
        self.log = log
        self.min_size = min_size
        self.max_clusters = max_clusters
        self.passes = passes
        self.n_init = n_init
        self.missing = missing
        self.null_value = null_value
        self.random_state = random_state
        self.n_jobs = n_jobs

    def fit(self, X: Any, y: Any = None) -> Self:
        """Learn a tree from X (n_samples, n_features) and choose the clusters."""
        params = self._params()
        X = self._checked(X, reset=True)
        self.__dict__.pop("_waiting", None)
        used, spec = self._usable(X), self._spec()
        self._watch = Sentinels(X.shape[1])
        self._watch.add(X[used])
        X = _logged(X, spec)
        with _own_words():
            self._learned = learn(ArrayRows(X[used]), params, threads=self._threads())
            self._choose(params, len(X), int(used.sum()))
        warn(self.model_, MEND)
        self._leaf = np.full(len(X), -1)
        self._leaf[used] = Labeller(self.model_, None, ("leaf",))(X[used])["leaf"]
        self._label()
        return self

    def partial_fit(self, X: Any, y: Any = None) -> Self:
        """Go on learning with the rows of X, in their order; how rows are cut into calls does not matter.

        Rows should come in random order. One pass, without a recount: the counts are those of the last rows.
        """
        first = not hasattr(self, "_waiting")
        params = replace(self._params(), shuffle="none", passes=1, n_init=1, recount="no")
        X = self._checked(X, reset=first)
        read = len(X)
        X = X[self._usable(X)]
        if first:
            self._waiting, self._state, self._read, self._used = np.empty((0, X.shape[1])), None, 0, 0
            self._watch = Sentinels(X.shape[1])
        self._watch.add(X)
        X = _logged(X, self._spec())
        self._read += read
        self._used += len(X)
        if self._state is None:  # the first rows are scaled by the moments of so many
            X = self._waiting = np.concatenate([self._waiting, X])
        with _own_words():
            if len(X):
                self._learned = learn(ArrayRows(X), params, self._state, threads=self._threads())
            if len(X) and (self._state is not None or len(X) >= SEED_ROWS):
                self._state, self._waiting = self._learned.state, X[:0]
            self._choose(params, self._read, self._used)
        warn(self.model_, MEND)
        self._leaf = None
        self.__dict__.pop("labels_", None)
        return self

    def predict(self, X: Any) -> np.ndarray:
        """Labels (n_samples,), 0 to K - 1; -1 for a row with NaN where these are skipped."""
        return self._labelled(X)["cluster"]

    def transform(self, X: Any) -> np.ndarray:
        """Distances (n_samples, n_clusters) to the clusters' means, features in standard deviations."""
        check_is_fitted(self, "model_")
        Z = self.model_.scaling.apply(_logged(self._checked(X, reset=False), self.model_.spec))
        squares = [((Z - centre) ** 2).sum(axis=1) for centre in self._centres()]
        return np.sqrt(np.stack(squares, axis=1))

    def score(self, X: Any, y: Any = None) -> float:
        """Minus the mean squared distance of the rows to their own cluster's mean, as `transform` has it.

        It never falls with more clusters: it compares trees at one number of them.
        """
        distance = self._labelled(X, ("distance",))["distance"]
        return -float(np.nanmean(distance**2))

    def prune(self, n_clusters: int | None = None) -> Self:
        """Another number of clusters from the same tree, without data; None chooses it."""
        check_is_fitted(self, "model_")
        self.n_clusters = n_clusters
        params = self._params()
        with _own_words():
            self.model_, chosen = reprune(self.model_, params.prune)
        self._set(chosen)
        if self._leaf is not None:
            self._label()
        return self

    def to_model(self) -> Model:
        """The model, which `imdh_cli.save` writes and every command takes."""
        check_is_fitted(self, "model_")
        return self.model_

    @classmethod
    def from_model(cls, model: Model) -> Self:
        """An estimator of a model that was fitted anywhere; its features must all be numbers.

        Raises
        ------
        ValueError
            For a model with features made of text.
        """
        if model.spec.texts:
            raise ValueError(
                f"the feature {model.spec.texts[0]!r} of the model is text: X holds numbers only"
            )
        params = model.params
        k = params.prune.clusters
        self = cls(
            k if isinstance(k, int) else None,
            depth=params.learn.depth,
            log=[column.name for column in model.spec.columns if column.log] or None,
            min_size=params.prune.min_size,
            max_clusters=params.prune.max_clusters,
            passes=params.passes,
            n_init=params.n_init,
            missing=model.spec.missing,
            null_value=list(model.spec.null_values) or None,
            random_state=params.seed,
        )
        self.model_ = model
        self.n_features_in_ = model.n_features
        self.feature_names_in_ = np.array(model.feature_names, dtype=object)
        self._leaf = None
        choice = model.metadata["choice"]
        self.clarity_, self.alternatives_ = choice["clarity"], tuple(choice["alternatives"])
        self._shape()
        return self

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = self.missing != "error"
        return tags

    # -- what the methods share

    def _params(self) -> FitParams:
        """The parameters as the core takes them; a ValueError for what no tree can be learned with."""
        for name, least in (("n_clusters", 1), ("min_size", 1), ("max_clusters", 1)):
            value = getattr(self, name)
            optional = name in ("n_clusters", "max_clusters")
            if not (optional and value is None) and not (_is_whole(value) and value >= least):
                raise ValueError(f"{name}={value!r} is no whole number from {least} up")
        if self.passes != "auto" and not (_is_whole(self.passes) and 1 <= self.passes <= 1000):
            raise ValueError(f"passes={self.passes!r} is neither 'auto' nor a whole number from 1 to 1000")
        if self.n_init != "auto" and not (_is_whole(self.n_init) and 1 <= self.n_init <= 100):
            raise ValueError(f"n_init={self.n_init!r} is neither 'auto' nor a whole number from 1 to 100")
        if self.depth != "auto" and not (_is_whole(self.depth) and 1 <= self.depth <= MAX_DEPTH):
            raise ValueError(
                f"depth={self.depth!r} is neither 'auto' nor a whole number from 1 to {MAX_DEPTH}"
            )
        if self.missing not in ("error", "skip", "mean"):
            raise ValueError(f"missing={self.missing!r} is none of 'error', 'skip', 'mean'")
        return FitParams(
            learn=LearnParams(depth="auto" if self.depth == "auto" else int(self.depth)),
            prune=PruneParams(
                clusters="auto" if self.n_clusters is None else int(self.n_clusters),
                min_size=int(self.min_size),
                max_clusters=None if self.max_clusters is None else int(self.max_clusters),
            ),
            passes="auto" if self.passes == "auto" else int(self.passes),
            n_init="auto" if self.n_init == "auto" else int(self.n_init),
            seed=self._seed(),
        )

    def _seed(self) -> int:
        if isinstance(self.random_state, (int, np.integer)) and self.random_state >= 0:
            return int(self.random_state)
        return int(check_random_state(self.random_state).randint(1 << 31))

    def _threads(self) -> int:
        return usable_threads() if self.n_jobs is None or self.n_jobs < 1 else int(self.n_jobs)

    def _checked(self, X: Any, *, reset: bool) -> np.ndarray:
        finite = True if self.missing == "error" else "allow-nan"
        checked = validate_data(self, X, reset=reset, dtype=np.float64, order="C", ensure_all_finite=finite)
        spec = self._spec() if reset or not hasattr(self, "model_") else self.model_.spec
        found = _with_nan(np.asarray(checked), X, spec)
        if self.missing == "error" and (lost := np.isnan(found).any(axis=0)).any():
            name = spec.names[int(np.argmax(lost))]
            raise ValueError(
                f'X holds a null_value in {name!r}; it is no error with missing="skip" or "mean"'
            )
        return found

    def _usable(self, X: np.ndarray) -> np.ndarray:
        """(n,) bool: rows that are learned from and labelled."""
        if self.missing == "mean":
            return ~np.isnan(X).all(axis=1)
        return ~np.isnan(X).any(axis=1)

    def _choose(self, params: FitParams, read: int, used: int) -> None:
        learned: Learned = self._learned
        spec = self._spec()
        names = list(spec.names)
        check_range(learned, names, params.scale)
        odd = odd_of(self._watch.found(), self._watch.notations, spec, learned.columns)
        chosen = doubted(prune(learned, params.prune), odd, names, learned.tree.directions)
        rows = {"read": read, "used": used, "skipped": read - used, "bad": 0}
        cells: dict[str, dict[str, int]] = {"missing": {}, "infinite": {}, "unseen": {}}
        about = describe(learned, chosen, params, spec, Provenance(rows, cells, odd=odd))
        self.model_ = build(learned, names, chosen, about)
        self._set(chosen)

    def _spec(self) -> FeatureSpec:
        """The features; a ValueError for names or places in `log` that X does not have."""
        names = [str(name) for name in _check_feature_names_in(self)]
        asked = [self.log] if isinstance(self.log, str | int) else list(self.log or ())
        known: dict[Any, int] = {name: place for place, name in enumerate(names)}
        known |= {place: place for place in range(len(names))}
        for column in asked:
            if column not in known or isinstance(column, bool):
                raise ValueError(f"log: X has no feature {column!r}")
        places = {known[column] for column in asked}
        columns = (Column(name, log=place in places) for place, name in enumerate(names))
        return FeatureSpec(tuple(columns), self.missing, self._null_values(names))

    def _null_values(self, names: list[str]) -> tuple[str, ...]:
        """As the model keeps them; a ValueError for what is neither text nor a number."""
        given = self.null_value
        values = [] if given is None else [given] if isinstance(given, str | float | Real) else list(given)
        for value in values:
            if isinstance(value, bool) or not isinstance(value, str | Real):
                raise ValueError(f"null_value={value!r} is neither a number nor text")
        texts = tuple(value if isinstance(value, str) else str(float(value)) for value in values)
        with _own_words():
            Nulls.of(texts, names).check(names)
        return texts

    def _set(self, chosen: Pruning) -> None:
        self.clarity_, self.alternatives_ = chosen.clarity, chosen.alternatives
        self._shape()

    def _shape(self) -> None:
        self.n_clusters_ = self._n_features_out = self.model_.n_clusters
        self.cluster_centers_ = self.model_.spec.unlogged(
            self._centres() * self.model_.scale + self.model_.center
        )

    def _centres(self) -> np.ndarray:
        return self.model_.means[self.model_.cluster_nodes - 1]

    def _label(self) -> None:
        assert self._leaf is not None
        cluster = self.model_.cluster_of_leaf
        self.labels_ = np.where(
            self._leaf < 0, np.int32(-1), cluster[self._leaf % len(cluster)] - np.int32(1)
        )

    def _labelled(self, X: Any, extra: tuple[str, ...] = ()) -> dict[str, np.ndarray]:
        check_is_fitted(self, "model_")
        X = self._checked(X, reset=False)
        found = Labeller(self.model_, None, extra)(_logged(X, self.model_.spec))
        lost = ~self._usable(X)
        found["cluster"] = np.where(lost, np.int32(-1), found["cluster"] - np.int32(1))
        for name in extra:
            found[name] = np.where(lost, np.nan, found[name])
        return found


def _with_nan(X: np.ndarray, given: Any, spec: FeatureSpec) -> np.ndarray:
    """X with NaN where a cell is one of the null values; X itself where there are none. given : what X was
    made of: where it had float32, -99999.9 is another number."""
    nulls = Nulls.of(spec.null_values, spec.source_columns)
    if not nulls:
        return X
    found, types = X.copy(), getattr(given, "dtypes", None)
    types = [getattr(given, "dtype", None)] * X.shape[1] if types is None else list(types)
    for j, owner in enumerate(spec.owners):
        single = str(types[j]).lower() == "float32"
        cells = X[:, j].astype(np.float32 if single else np.float64)
        cells = nulls.apply(pa.array(cells), spec.source_columns[owner]).to_numpy(zero_copy_only=False)
        found[np.isnan(cells), j] = np.nan
    return found


def _logged(X: np.ndarray, spec: FeatureSpec) -> np.ndarray:
    """X as it is learned from: signed logarithms where the features say so; X itself where none do."""
    return np.where(spec.logs, signed_log(X), X) if spec.logs.any() else X


def _is_whole(value: Any) -> bool:
    return isinstance(value, (int, np.integer)) and not isinstance(value, bool)


@contextmanager
def _own_words() -> Iterator[None]:
    """Errors of the core as ValueErrors that speak of parameters, not of options."""
    try:
        yield
    except ImdhError as error:
        text = re.sub(r"--([a-z][a-z-]+)", lambda found: found[1].replace("-", "_"), error.message)
        raise ValueError(text) from error
