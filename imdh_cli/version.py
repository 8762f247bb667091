"""The version of imdh, and those of packages."""

from __future__ import annotations

import functools

__version__ = "0.1.0"


@functools.cache
def version_of(package: str) -> str:
    """The installed version of a package. It is not imported, nor, as a rule, `importlib.metadata`, which
    takes 0.04 s."""
    from importlib.util import find_spec
    from pathlib import Path

    found = find_spec(package)
    if found is not None and found.origin is not None:
        names = [path.name for path in Path(found.origin).parent.parent.glob(f"{package}-*.dist-info")]
        if len(names) == 1:
            return names[0].removeprefix(f"{package}-").removesuffix(".dist-info")
    from importlib.metadata import version

    return version(package)
