"""Sources -> features -> learning -> pruning -> model; and sources -> features -> labels -> sinks.

The passes over the data. Opens no file that a person named and prints nothing: it is handed sources and
sinks, and tells how far it is through a callback.
"""

from imdh_cli.pipeline.counting import recount
from imdh_cli.pipeline.fitting import Fit, fit
from imdh_cli.pipeline.labelled import Labelled, labelled
from imdh_cli.pipeline.labelling import (
    Assigned,
    AssignParams,
    Labeller,
    assign,
    label_schema,
)
from imdh_cli.pipeline.reading import OnProgress, Progress

__all__ = [
    "AssignParams",
    "Assigned",
    "Fit",
    "Labelled",
    "Labeller",
    "OnProgress",
    "Progress",
    "assign",
    "fit",
    "label_schema",
    "labelled",
    "recount",
]
