"""Tables of reports at the widths of a screen and of a telephone."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from browser import Browser

ROOT = Path(__file__).parents[2]
SMALL = Path(__file__).parent / "small.toml"
PROGRAM = os.environ.get("USHER_PROGRAM", str(ROOT / "target/debug/usher"))
#: The tables of which a part is out of sight, by the text of their first cells; folded ones are opened.
CUT_OFF = """
document.querySelectorAll('details').forEach((each) => { each.open = true; });
[...document.querySelectorAll('.scroll')].filter((each) => each.querySelector('table.cards') && each.scrollWidth > each.clientWidth)
    .map((each) => each.innerText.slice(0, 60))
"""
#: By how much the page is wider than the window.
OVERFLOW = "document.documentElement.scrollWidth - document.documentElement.clientWidth"


@pytest.fixture(scope="module")
def compared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The report of two runs that differ in much."""
    folder = tmp_path_factory.mktemp("runs")

    def usher(*words: object) -> None:
        subprocess.run([PROGRAM, "study", *map(str, words)], check=True, timeout=300, stdout=subprocess.DEVNULL)

    for name, rate in (("a", "20 /s"), ("b", "60 /s")):
        usher("run", SMALL, "--plain", "--out", folder / name, "--replications", 3, "--set", f"workload.arrivals.rate={rate}")
    usher("compare", folder / "a", folder / "b", "--out", folder / "both")
    return folder / "both" / "report.html"


@pytest.mark.parametrize("width", [1400, 400])
def test_no_table_of_a_comparison_is_cut_off(compared: Path, tmp_path: Path, width: int) -> None:
    with Browser(compared, tmp_path) as browser:
        browser.ask("Emulation.setDeviceMetricsOverride", width=width, height=900, deviceScaleFactor=1, mobile=False)
        assert browser.value("document.querySelectorAll('table.cards').length") > 0
        assert browser.value(CUT_OFF) == []
        assert browser.value(OVERFLOW) <= 0
