"""Clusters against known classes, on every Parquet file of a folder that has a `target` column.

Runs the real commands (fit, assign, prune, assign) under several seeds, with the number of clusters
chosen automatically and with the number of classes given, by default and with `--preset paper`.
Beside it stand scikit-learn's KMeans, MiniBatchKMeans and BisectingKMeans on the same standardised
rows at the true number, and the columns of the paper where the set is one of the paper's.
Peers are kept in the JSON file and run again only when the data, scikit-learn or the seeds change.
"""

from __future__ import annotations

import argparse
import csv
import hashlib
import json
import time
import warnings
from collections.abc import Iterable, Mapping, Sequence
from importlib.metadata import version
from pathlib import Path
from statistics import fmean, median
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from tests.benchmarks import common, quick

TARGET = "target"
PRESETS: dict[str, list[str]] = {"default": [], "paper": ["--preset", "paper"]}
PUBLISHED_METHODS = ("iMDH", "iMDH_k", "BICO", "k-means", "SPDC", "dePDDP")
Scores = dict[str, float]


# --- measures


def scores(truth: np.ndarray, labels: np.ndarray) -> Scores:
    """NMI (arithmetic and geometric mean of the entropies) and ARI, x100, and the clusters used."""
    from sklearn.metrics import adjusted_rand_score, normalized_mutual_info_score

    return {
        "nmi": 100 * float(normalized_mutual_info_score(truth, labels)),
        "nmi_geometric": 100 * float(normalized_mutual_info_score(truth, labels, average_method="geometric")),
        "ari": 100 * float(adjusted_rand_score(truth, labels)),
        "k": float(np.unique(labels).size),
    }


def mean_regret(performance: Mapping[str, Sequence[float]]) -> dict[str, float]:
    """Mean normalised regret of each method, as the paper defines it.

    Parameters
    ----------
    performance : method -> its score on each set, sets in the same order.

    Returns
    -------
    method -> mean over sets of (best - own) / (best - worst) among these methods; a set on which
    all are equal has regret 0 for all.
    """
    methods = list(performance)
    table = np.array([performance[method] for method in methods])
    best = table.max(axis=0)
    spread = best - table.min(axis=0)
    regret = np.where(spread > 0, (best - table) / np.where(spread > 0, spread, 1.0), 0.0)
    return {method: float(regret[i].mean()) for i, method in enumerate(methods)}


# --- running


def sets_of(folder: Path, only: str | None = None) -> list[Path]:
    """The Parquet files of a folder that have known classes, the shortest first."""
    wanted = set(only.split(",")) if only else None
    found = [
        (pq.read_metadata(path).num_rows, path)
        for path in folder.glob("*.parquet")
        if TARGET in pq.read_schema(path).names and (wanted is None or path.stem in wanted)
    ]
    if not found:
        raise SystemExit(f"{folder}: no Parquet file with a column {TARGET!r}")
    return [path for _, path in sorted(found)]


def classes(table: pa.Table) -> np.ndarray:
    """(n,) int64: the known classes as 0, 1, 2 ..."""
    names = table.column(TARGET).to_numpy(zero_copy_only=False)
    return np.unique(names, return_inverse=True)[1]


def read_labels(path: Path, name: str = "cluster") -> np.ndarray:
    """(n,) int: the label column of an output of `imdh assign`."""
    return pq.read_table(path, columns=[name]).column(name).to_numpy()


def run_commands(
    data: Path, truth: np.ndarray, n_classes: int, seed: int, options: Sequence[str], folder: Path
) -> dict[str, Any]:
    """One seed: fit, assign with the automatic number, prune to the true one, assign again."""
    model, pruned, labels = folder / "m.npz", folder / "k.npz", folder / "labels.parquet"
    fit = common.imdh("fit", data, "-x", TARGET, "-o", model, "--seed", str(seed), "-f", "-q", *options)
    assign = common.imdh("assign", model, data, "-o", labels, "-f", "-q")
    automatic = scores(truth, read_labels(labels))
    prune = common.imdh("prune", model, "-k", str(n_classes), "-o", pruned, "-f", "-q")
    common.imdh("assign", pruned, data, "-o", labels, "-f", "-q")
    with np.load(model, allow_pickle=False) as arrays:
        choice = json.loads(str(arrays["metadata"])).get("choice", {})
    return {
        "seed": seed,
        "auto": automatic,
        "given": scores(truth, read_labels(labels)),
        "clarity": choice.get("clarity"),
        "fit_seconds": fit.seconds,
        "assign_seconds": assign.seconds,
        "prune_seconds": prune.seconds,
        "fit_peak_mb": fit.peak_mb,
    }


def peer_methods(n_classes: int, seed: int) -> dict[str, Any]:
    """Name -> estimator, as in the table."""
    from sklearn.cluster import BisectingKMeans, KMeans, MiniBatchKMeans

    return {
        "KMeans": KMeans(n_classes, n_init=10, random_state=seed),
        "MiniBatchKMeans": MiniBatchKMeans(n_classes, n_init=3, random_state=seed),
        "BisectingKMeans": BisectingKMeans(n_classes, random_state=seed),
    }


def run_peers(data: Path, truth: np.ndarray, n_classes: int, seeds: int) -> dict[str, Any]:
    """The peers on the standardised rows, at the true number of classes."""
    from sklearn.preprocessing import StandardScaler

    table = pq.read_table(data)
    rows = np.column_stack(
        [table.column(name).to_numpy() for name in table.column_names if name != TARGET]
    ).astype(np.float64)
    rows = StandardScaler().fit_transform(rows)
    found: dict[str, Any] = {}
    for seed in range(seeds):
        for name, estimator in peer_methods(n_classes, seed).items():
            start = time.perf_counter()
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # fewer distinct rows than clusters, and such
                labels = estimator.fit_predict(rows)
            seconds = time.perf_counter() - start
            found.setdefault(name, []).append(
                {"seed": seed, "given": scores(truth, labels), "seconds": seconds}
            )
    return found


def measure_set(
    data: Path, known: Mapping[str, Any], options: argparse.Namespace, folder: Path
) -> dict[str, Any]:
    """Everything about one set; peers are taken from `known` where they still hold."""
    truth = classes(pq.read_table(data, columns=[TARGET]))
    n_classes = int(truth.max()) + 1
    result: dict[str, Any] = {
        "rows": int(truth.size),
        "features": len(pq.read_schema(data).names) - 1,
        "classes": n_classes,
        "runs": dict(known.get("runs", {})),
    }
    for preset in options.presets:
        seeds = options.paper_seeds if preset == "paper" else options.seeds
        words = [*PRESETS[preset], *options.fit_options]
        result["runs"][preset] = [
            run_commands(data, truth, n_classes, seed, words, folder) for seed in range(seeds)
        ]
    if options.peers:
        key = {
            "sha256": hashlib.sha256(data.read_bytes()).hexdigest(),
            "scikit-learn": version("scikit-learn"),
            "seeds": options.seeds,
        }
        if known.get("peers_key") != key:
            known = {**known, "peers": run_peers(data, truth, n_classes, options.seeds)}
        result |= {"peers": known["peers"], "peers_key": key}
    return result


# --- the table


def published() -> dict[str, dict[str, dict[str, float]]]:
    """set -> method -> {"nmi", "ari"}: the paper's table."""
    with open(Path(__file__).with_name("published.tsv"), encoding="utf-8") as file:
        lines = csv.DictReader((line for line in file if not line.startswith("#")), delimiter="\t")
        return {
            line["set"]: {
                method: {"nmi": float(line[f"{method} NMI"]), "ari": float(line[f"{method} ARI"])}
                for method in PUBLISHED_METHODS
            }
            for line in lines
        }


def means(runs: Iterable[Mapping[str, Any]], mode: str) -> Scores:
    """Mean over seeds of each measure."""
    taken = [run[mode] for run in runs]
    return {name: fmean(run[name] for run in taken) for name in taken[0]}


def columns(result: Mapping[str, Any]) -> dict[str, dict[str, Scores]]:
    """Method -> set -> mean scores, of everything that was measured."""
    found: dict[str, dict[str, Scores]] = {}
    for name, entry in result["sets"].items():
        for preset, runs in entry["runs"].items():
            title = "imdh" if preset == "default" else f"imdh {preset}"
            found.setdefault(title, {})[name] = means(runs, "auto")
            found.setdefault(f"{title}, K given", {})[name] = means(runs, "given")
        for peer, runs in entry.get("peers", {}).items():
            found.setdefault(peer, {})[name] = means(runs, "given")
    return found


def cell(score: Scores, nmi: str = "nmi") -> str:
    """NMI/ARI as in the paper's table."""
    return f"{score[nmi]:.1f}/{score['ari']:.1f}"


def score_table(result: Mapping[str, Any]) -> str:
    """One line per set: every method as NMI (arithmetic) / ARI, the K chosen, the time to fit."""
    measured = columns(result)
    methods = [name for name in measured if not name.startswith("imdh paper")]
    sets = list(result["sets"])
    header = ["set", "rows x features, classes", *methods[:1], "K", *methods[1:], "fit s"]
    lines = []
    for name in sets:
        entry = result["sets"][name]
        runs = entry["runs"].get("default", [])
        cells = [cell(measured[m][name]) if name in measured[m] else "" for m in methods]
        k = f"{measured[methods[0]][name]['k']:.1f}" if runs else ""
        seconds = f"{median(run['fit_seconds'] for run in runs):.1f}" if runs else ""
        shape = f"{entry['rows']:,} x {entry['features']}, {entry['classes']}"
        lines.append([name, shape, *cells[:1], k, *cells[1:], seconds])
    for title, nmi in (("mean", "nmi"), ("mean, NMI geometric", "nmi_geometric")):
        totals = [{key: fmean(measured[m][s][key] for s in sets) for key in (nmi, "ari")} for m in methods]
        cells = [cell(total, nmi) for total in totals]
        lines.append([title, "", *cells[:1], "", *cells[1:], ""])
    for title, key in (("regret, NMI", "nmi"), ("regret, ARI", "ari")):
        regret = mean_regret({m: [measured[m][s][key] for s in sets] for m in methods})
        cells = [f"{regret[m]:.2f}" for m in methods]
        lines.append([title, "", *cells[:1], "", *cells[1:], ""])
    return common.markdown_table(header, lines)


def paper_table(result: Mapping[str, Any]) -> str:
    """Beside the paper's columns: NMI (geometric) / ARI on the sets that are the paper's."""
    measured, paper = columns(result), published()
    sets = [name for name in result["sets"] if name in paper]
    ours = [name for name in measured if name.startswith("imdh")]
    header = ["set", *ours, *(f"paper's {m}" for m in PUBLISHED_METHODS)]
    lines = [
        [
            name,
            *(cell(measured[m][name], "nmi_geometric") for m in ours),
            *(cell(paper[name][m]) for m in PUBLISHED_METHODS),
        ]
        for name in sets
    ]

    def all_methods(key: str) -> dict[str, list[float]]:
        own = "nmi_geometric" if key == "nmi" else key
        return {m: [measured[m][s][own] for s in sets] for m in ours} | {
            m: [paper[s][m][key] for s in sets] for m in PUBLISHED_METHODS
        }

    nmi, ari = all_methods("nmi"), all_methods("ari")
    lines.append(["mean", *(f"{fmean(nmi[m]):.1f}/{fmean(ari[m]):.1f}" for m in nmi)])
    regrets = mean_regret(nmi), mean_regret(ari)
    lines.append(["regret", *(f"{regrets[0][m]:.2f}/{regrets[1][m]:.2f}" for m in nmi)])
    return common.markdown_table(header, lines)


def preset_difference(result: Mapping[str, Any]) -> tuple[float, float, float, float] | None:
    """Mean absolute difference of `--preset paper` from the paper: NMI, ARI; both with K given."""
    measured, paper = columns(result), published()
    found = []
    for title, method in (("imdh paper", "iMDH"), ("imdh paper, K given", "iMDH_k")):
        if title not in measured:
            return None
        sets = [name for name in measured[title] if name in paper]
        for own, key in (("nmi_geometric", "nmi"), ("ari", "ari")):
            found.append(fmean(abs(measured[title][s][own] - paper[s][method][key]) for s in sets))
    return found[0], found[1], found[2], found[3]


def text(result: Mapping[str, Any]) -> str:
    """All that RESULTS.md shows."""
    seeds = {p: len(r) for p, r in next(iter(result["sets"].values()))["runs"].items()}
    parts = [
        f"Means over {seeds.get('default', 0)} seeds, x100, NMI (arithmetic) / ARI. `imdh`: the "
        "number of clusters chosen automatically (K, on average). The others were given the number "
        "of classes. Regret: 0 is always best among these columns, 1 always worst.",
        score_table(result),
    ]
    paper = published()
    if any(name in paper for name in result["sets"]):
        parts += [
            "Beside the columns of the paper (its NMI taken as geometric):",
            paper_table(result),
        ]
    difference = preset_difference(result)
    if difference:
        parts.append(
            f"`--preset paper` over {seeds['paper']} seeds: mean absolute difference from the "
            f"paper's automatic column {difference[0]:.2f} NMI, {difference[1]:.2f} ARI; from its "
            f"column with K given {difference[2]:.2f} and {difference[3]:.2f}."
        )
    parts.append(common.provenance_line(result))
    return "\n\n".join(parts)


# --- the program


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure, save after every set, print."""
    parser = common.parser(__doc__, "accuracy")
    parser.add_argument("data", type=Path, nargs="*", help="folder of Parquet files (with --quick: folders)")
    parser.add_argument(
        "--quick", action="store_true", help="samples of at most 20,000 rows, in this process"
    )
    parser.add_argument("--against", type=Path, help="with --quick: another run's JSON file to differ from")
    parser.add_argument("--half", choices=["A", "B"], help="with --quick: only this half of the sets")
    parser.add_argument("--only", help="comma-separated names of sets")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--paper-seeds", type=int, default=10)
    parser.add_argument("--presets", default="default,paper", help="comma-separated")
    parser.add_argument("--no-peers", dest="peers", action="store_false")
    parser.add_argument("--fit-options", default="", help="more words for `imdh fit`, in one quoted string")
    options = parser.parse_args(arguments)
    options.presets = [name for name in options.presets.split(",") if name]
    options.fit_options = options.fit_options.split()
    if options.quick:
        if options.json == parser.get_default("json"):
            options.json = common.RESULTS / "quick.json"
        files = [path for folder in options.data for path in sets_of(folder, options.only)]
        quick.run(options, files, TARGET, scores)
        return
    result = common.load(options.json)
    if not options.table:
        if len(options.data) != 1:
            parser.error("name the folder of the data")
        result = measure(options, result)
    common.finish(options, "accuracy", text(result))


def measure(options: argparse.Namespace, result: dict[str, Any]) -> dict[str, Any]:
    """Every set of the folder, the smallest first."""
    files = sets_of(options.data[0], options.only)
    known = result.get("sets", {})
    kept = dict(known) if options.only else {}
    result = {**common.provenance(), "sets": kept}
    with common.scratch_folder() as folder:
        for path in files:
            start = time.perf_counter()
            result["sets"][path.stem] = measure_set(path, known.get(path.stem, {}), options, Path(folder))
            common.save(result, options.json)
            print(f"{path.stem}: {time.perf_counter() - start:.0f} s", flush=True)
    return result


if __name__ == "__main__":
    main()
