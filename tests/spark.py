"""A Spark session for tests: Sail by default, which needs no Java; classic and Connect by $IMDH_SPARK."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

KIND = os.environ.get("IMDH_SPARK", "sail")


@contextmanager
def session() -> Iterator[tuple[Any, str]]:
    """A session, and for Sail where its server is. Workers run the Python that the tests do."""
    # pyspark takes a main program without a file, as that of a worker of pytest-xdist, for its own doctests.
    vars(sys.modules["__main__"]).setdefault("__file__", __file__)
    os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    from pyspark.sql import SparkSession

    if KIND == "sail":
        from pysail.spark import SparkConnectServer

        server = SparkConnectServer(port=0)
        server.start(background=True)
        remote = f"sc://localhost:{server.listening_address[1]}"
        builder = SparkSession.builder.remote(remote)
    else:
        server, remote = None, ""
        builder = SparkSession.builder.remote("local[2]") if KIND == "connect" else SparkSession.builder
        if KIND == "classic":
            builder = builder.master("local[2]")
        builder = builder.config("spark.ui.enabled", "false").config("spark.sql.shuffle.partitions", "4")
    spark = builder.getOrCreate()
    try:
        yield spark, remote
    finally:
        spark.stop()
        if server is not None:
            server.stop()
