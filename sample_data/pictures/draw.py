"""Make the README's pictures again, from the sample data: page.png and node.png.

    python -m sample_data.pictures.draw [FOLDER]

From the top of a checkout, with the extra `plots` and a Chromium on the PATH (or named by CHROMIUM).
The letters depend on the fonts of the machine.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

from PIL import Image

from tests import chromium

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
COMMANDS = (
    "fit sample_data/cities.parquet -c latitude,longitude -o cities.npz",
    "prune cities.npz -k 6 -o six.npz",
    "report six.npz sample_data/cities.parquet --truth continent --html page.html",
    "report six.npz sample_data/cities.parquet --node 1 --plot node.png",
)
WIDTH, HEIGHT = 900, 1140  # of the page's upper part
COLOURS = 96


def small(picture: Path, target: Path) -> None:
    """The same picture with few colours."""
    image = Image.open(picture).convert("RGB")
    few = image.quantize(COLOURS, method=Image.Quantize.MEDIANCUT, dither=Image.Dither.NONE)
    few.save(target, optimize=True)
    print(f"{target}: {target.stat().st_size:,} bytes")


def draw(target: Path) -> None:
    """Both pictures into a folder."""
    browser_path = chromium.find()
    if browser_path is None:
        sys.exit("no Chromium is installed (or named by CHROMIUM)")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "sample_data").symlink_to(ROOT / "sample_data")
        env = os.environ | {"PYTHONPATH": str(ROOT)}
        for line in COMMANDS:
            words = [sys.executable, "-m", "imdh_cli", *line.split(), "--quiet"]
            subprocess.run(words, cwd=folder, env=env, check=True)
        with chromium.Browser(browser_path) as browser:
            browser.open(folder / "page.html", width=WIDTH, height=HEIGHT)
            browser.screenshot(folder / "page.png", full=False)
        for picture in ("page.png", "node.png"):
            small(folder / picture, target / picture)


if __name__ == "__main__":
    draw(Path(sys.argv[1]) if len(sys.argv) > 1 else HERE)
