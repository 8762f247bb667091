"""`imdh fit --update`: what may be asked of a model that is learned on, and what may not."""

from __future__ import annotations

from dataclasses import fields, replace
from typing import TYPE_CHECKING

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
    asked = given.over(replace(old, passes="auto", recount="auto"))
    kept = [(f.name, getattr(asked.learn, f.name), getattr(old.learn, f.name)) for f in fields(LearnParams)]
    for name, now, was in [*kept, ("scale", asked.scale, old.scale)]:
        if now != was:
            option = "--" + name.replace("_", "-")
            raise UsageError(
                f"{option} {now}: the model was fitted with {option} {was}, which cannot change",
                "leave the option out, or fit all of the data again",
            )
    return asked


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
    asked = given.over(FeatureParams(missing=spec.missing))
    odd = sorted(set(asked.columns or spec.asked) ^ set(spec.asked))
    if odd:
        raise UsageError(
            f'-c: the features of the model are others ("{odd[0]}" is in one list only)',
            "leave -c out: the model's features are used",
        )
    clash = set(asked.exclude) & set(spec.source_columns)
    if clash:
        raise UsageError(f'-x: "{min(clash)}" is a feature of the model')
    bind_features(source, spec)
    left_out = [(str(name), str(why)) for name, why in model.metadata["left_out_columns"]]
    ids = tuple(model.metadata.get("id_columns", ()))
    return Selection(replace(spec, missing=asked.missing), left_out, [], ids)
