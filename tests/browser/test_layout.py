"""Tables of reports at the widths of a screen and of a telephone."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from browser import Browser

ROOT = Path(__file__).parents[2]
PROGRAM = os.environ.get("USHER_PROGRAM", str(ROOT / "target/debug/usher"))
#: A study whose points have long names.
STUDY = ("aaa-hol", "--quick", "--replications", 3)
#: Its points, whose names are not so long that they wrap, and its time.
SETTINGS = ("loss=5 %", "method=eap-md5", "protocol=RADIUS/UDP, RFC 5080,Diameter/SCTP, one stream", "run.duration=5 s")
#: The tables of which a part is out of sight, by the text of their first cells; folded ones are opened.
CUT_OFF = """
document.querySelectorAll('details').forEach((each) => { each.open = true; });
[...document.querySelectorAll('.scroll')].filter((each) => each.querySelector('table.cards') && each.scrollWidth > each.clientWidth)
    .map((each) => each.innerText.slice(0, 60))
"""
#: How many rows of such tables have a cell of several lines.
WRAPPED = """
[...document.querySelectorAll('table.cards tbody tr')]
    .filter((each) => each.getBoundingClientRect().height > 2 * parseFloat(getComputedStyle(each).lineHeight)).length
"""
#: By how much the page is wider than the window.
OVERFLOW = "document.documentElement.scrollWidth - document.documentElement.clientWidth"


@pytest.fixture(scope="module")
def compared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The report of two runs that differ in much."""
    folder = tmp_path_factory.mktemp("runs")

    def usher(*words: object) -> None:
        subprocess.run([PROGRAM, "study", *map(str, words)], check=True, timeout=300, stdout=subprocess.DEVNULL)

    for name, delay in (("a", "10 ms"), ("b", "50 ms")):
        settings = [word for setting in (*SETTINGS, f"links.core.delay={delay}") for word in ("--set", setting)]
        usher("run", *STUDY, "--plain", "--out", folder / name, *settings)
    usher("compare", folder / "a", folder / "b", "--out", folder / "both")
    return folder / "both" / "report.html"


@pytest.mark.parametrize("width", [1400, 400])
def test_no_table_of_a_comparison_is_cut_off(compared: Path, tmp_path: Path, width: int) -> None:
    with Browser(compared, tmp_path) as browser:
        browser.ask("Emulation.setDeviceMetricsOverride", width=width, height=900, deviceScaleFactor=1, mobile=False)
        assert browser.value("document.querySelectorAll('table.cards').length") > 0
        assert browser.value(CUT_OFF) == []
        assert browser.value(OVERFLOW) <= 0
        if width == 1400:
            assert browser.value(WRAPPED) == 0, "the window is wide enough for each row"
