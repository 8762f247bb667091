"""Several sinks that take the same batches."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from types import TracebackType

import pyarrow as pa

from imdh_cli.sinks.base import Sink


class TeeSink:
    """Hands every batch to each of its sinks; they close, or abort, together."""

    def __init__(self, sinks: Sequence[Sink]) -> None:
        self._sinks = list(sinks)
        self._stack = ExitStack()
        for sink in self._sinks:
            self._stack.enter_context(sink)

    def write(self, batch: pa.RecordBatch) -> None:
        for sink in self._sinks:
            sink.write(batch)

    def __enter__(self) -> TeeSink:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> bool | None:
        return self._stack.__exit__(kind, error, trace)
