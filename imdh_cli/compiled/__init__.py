"""All code that numba compiles, and what it stands on: its arrays, its histograms, its cache."""
