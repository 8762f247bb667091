"""JSON lines: bytes -> records -> typed columns."""
