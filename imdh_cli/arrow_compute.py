"""Arrow's compute functions, imported when the first of them is wanted: pyarrow makes all of them then, in
0.06 s, and a table of numbers needs none."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pyarrow.compute as pc
else:

    class _Later:
        def __getattr__(self, name: str) -> Any:
            import pyarrow.compute

            return getattr(pyarrow.compute, name)

    pc = _Later()

__all__ = ["pc"]
