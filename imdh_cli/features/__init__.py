"""Record batch -> matrix: choose the columns, turn their cells into numbers, treat what is missing.

`select_features` looks at a source and says which columns are features; `extract` turns each chunk into rows
of a float64 matrix by that choice, which the model keeps.
"""

from imdh_cli.features.matrix import Tally, all_bad, extract, judge
from imdh_cli.features.selection import Selection, bind_features, select_features
from imdh_cli.features.spec import MAX_LEVELS, Column, FeatureSpec

__all__ = [
    "MAX_LEVELS",
    "Column",
    "FeatureSpec",
    "Selection",
    "Tally",
    "all_bad",
    "bind_features",
    "extract",
    "judge",
    "select_features",
]
