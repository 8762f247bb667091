"""What was found of some columns -> arrays of a state, by their names, and back."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import ClassVar, Self

import numpy as np


@dataclass(frozen=True)
class FoundColumns(ABC):
    """Arrays of one length; columns (k,) int64 : the columns of the matrix that each entry is of, in order.

    PREFIX : what the names of the arrays begin with in a state.
    """

    PREFIX: ClassVar[str]
    columns: np.ndarray

    @classmethod
    @abstractmethod
    def none(cls) -> Self:
        """Of no column."""

    @property
    def any(self) -> bool:
        """Whether there are such columns."""
        return len(self.columns) > 0

    def state(self) -> dict[str, np.ndarray]:
        """As arrays, by the names in a model file; `restored` takes them. None where there are no columns."""
        return {self.PREFIX + f.name: getattr(self, f.name) for f in fields(self)} if self.any else {}

    @classmethod
    def restored(cls, state: Mapping[str, np.ndarray]) -> Self:
        """The inverse of `state`."""
        known = cls.PREFIX + "columns" in state
        return cls(*(state[cls.PREFIX + f.name] for f in fields(cls))) if known else cls.none()
