"""imdh: cluster tables that do not fit in memory with a tree of minimum density hyperplanes.

For programs: `fit` and `assign` for tables in memory, `IMDH` for scikit-learn, `load` and `save` for models.
They are imported when they are asked for, since the commands need few of them.
"""

from __future__ import annotations

from importlib import import_module

from imdh_cli.version import __version__

TYPE_CHECKING = False  # `typing` takes 5 ms, in which Ctrl-C would show a traceback (see __main__.py)
if TYPE_CHECKING:
    from typing import Any

    from imdh_cli.errors import ImdhError, ImdhWarning
    from imdh_cli.estimator import IMDH
    from imdh_cli.model import Model, load, save
    from imdh_cli.params import FitParams
    from imdh_cli.tables import assign, fit

__all__ = [
    "IMDH",
    "FitParams",
    "ImdhError",
    "ImdhWarning",
    "Model",
    "__version__",
    "assign",
    "fit",
    "load",
    "save",
]

_HOMES = {
    "IMDH": "estimator",
    "FitParams": "params",
    "ImdhError": "errors",
    "ImdhWarning": "errors",
    "Model": "model",
    "assign": "tables",
    "fit": "tables",
    "load": "model",
    "save": "model",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
