"""Measurements: clusters against known classes, planted numbers of clusters, row order, speed.

Each module is a program (`python -m tests.benchmarks.NAME --help`) that prints a table, writes
`results/NAME.json`, and puts its table into RESULTS.md.
"""
