"""`imdh fit --update`: what may be asked of a model that is learned on, and what may not."""

from __future__ import annotations

from dataclasses import fields, replace
from typing import TYPE_CHECKING, Literal

from imdh_cli.errors import UsageError
from imdh_cli.option import Given
from imdh_cli.params import FeatureParams, FitParams, LearnParams

if TYPE_CHECKING:
    from imdh_cli.features import Selection
    from imdh_cli.model import Model
    from imdh_cli.sources import Source


def params_of_update(given: Given[FitParams], preset: str, model: Model) -> FitParams:
    """The model's parameters, with what may be asked anew: pruning, order, seed.

    Raises
    ------
    UsageError
        For an option that would make another tree of it, by name.
    """
    old = model.params
    if preset not in ("default", model.metadata["preset"]):
        raise UsageError(f"--preset {preset}: the model was fitted with {model.metadata['preset']}")
    asked = given.over(replace(old, passes="auto", n_init="auto", recount="auto"))
    kept = [(f.name, getattr(asked.learn, f.name), getattr(old.learn, f.name)) for f in fields(LearnParams)]
    for name, now, was in [*kept, ("scale", asked.scale, old.scale)]:
        _check_kept("--" + name.replace("_", "-"), now, was)
    return asked


def _check_kept(option: str, now: object, was: object) -> None:
    if now != was:
        raise UsageError(
            f"{option} {now}: the model was fitted with {option} {was}, which cannot change",
            "leave the option out, or fit all of the data again",
        )


def selection_of_update(given: Given[FeatureParams], model: Model, source: Source) -> Selection:
    """The model's features, found in the new data.

    Raises
    ------
    UsageError
        When other features are asked for.
    DataError
        When one is not there, or is of another kind.
    """
    from imdh_cli.features import Selection, bind_features

    spec = model.spec
    kept: Literal["onehot", "ignore"] = "onehot" if spec.texts else "ignore"
    ids = tuple(model.metadata.get("id_columns", ()))
    logs = tuple(column.name for column in spec.columns if column.log)
    asked = given.over(FeatureParams(missing=spec.missing, categorical=kept, ids=ids, log=logs))
    _check_kept("--categorical", asked.categorical, kept)
    odd = sorted(set(asked.columns or spec.asked) ^ set(spec.asked))
    if odd:
        raise UsageError(
            f'-c: the features of the model are others ("{odd[0]}" is in one list only)',
            "leave -c out: the model's features are used",
        )
    _check_kept("--log", ",".join(asked.log), ",".join(logs))
    for option, names, known in (
        ("--onehot", asked.onehot, spec.texts),
        ("--parse", asked.parse, spec.parsed),
    ):
        if other := sorted(set(names) - set(known)):
            raise UsageError(
                f'{option}: the model was fitted without it for "{other[0]}", which cannot change',
                f"leave {option} out, or fit all of the data again",
            )
    for option, names in (("-x", asked.exclude), ("--id", asked.ids)):
        clash = set(names) & set(spec.source_columns)
        if clash:
            raise UsageError(f'{option}: "{min(clash)}" is a feature of the model')
    bind_features(source, spec)
    if asked.ids != ids:
        source.check(asked.ids)
    left_out = [(str(name), str(why)) for name, why in model.metadata["left_out_columns"]]
    return Selection(replace(spec, missing=asked.missing), left_out, [], asked.ids)
