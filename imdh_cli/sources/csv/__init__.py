"""CSV: bytes -> records -> typed columns."""
