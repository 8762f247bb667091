"""What all tests share."""

from __future__ import annotations

import os

from hypothesis import settings

# A change must not turn red by an example that the change before it was not asked: under CI the examples
# are the same each time; by hand they are new ones.
settings.register_profile("ci", derandomize=True)
if os.environ.get("CI"):
    settings.load_profile("ci")
