"""The wheel, in an environment that has nothing else."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path


def test_three_lines_draw_a_figure(tmp_path: Path) -> None:
    wheel = os.environ.get("USHER_WHEEL")
    assert wheel, "USHER_WHEEL names the wheel to install; ./x test wheel sets it"
    fresh = tmp_path / "fresh"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", fresh], check=True)
    python = str(fresh / "bin" / "python")
    pip = [sys.executable, "-m", "pip", "--python", python, "--disable-pip-version-check"]
    subprocess.run([*pip, "install", "--quiet", "--no-index", wheel], check=True)
    code = "import usher\nresults = usher.study('aaa-hol').run(quick=True)\nprint(results.figure('delay-md5')._repr_svg_())"
    drawn = subprocess.run([python, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=True)
    assert drawn.stdout.startswith("<svg")
    assert drawn.stderr == ""
