"""Rows -> a learned, counted and pruned tree: arrays and plain values, no files, no options, no printing."""
