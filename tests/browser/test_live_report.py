"""Reports that run their own study, in a real browser, from disk."""

from __future__ import annotations

import gzip
import os
import subprocess
from pathlib import Path

from browser import Browser

ROOT = Path(__file__).parents[2]
#: A study of a second.
SMALL = Path(__file__).parent / "small.toml"
#: What `./x module` has made.
MODULE = Path(os.environ.get("USHER_BROWSER_MODULE", ROOT / "target/module/usher-browser.wasm.gz"))
#: Waits for an expression to hold, a minute at most.
UNTIL = """new Promise((resolve, reject) => {
    const begun = performance.now();
    const look = () => {
        const state = document.querySelector('[data-live=state]').textContent;
        if (%s) resolve(); else if (performance.now() - begun > 60000) reject(state); else setTimeout(look, 20);
    };
    look();
})"""


def run(study: str, folder: Path, *words: str) -> Path:
    """The folder of a run with a live report."""
    program = os.environ.get("USHER_PROGRAM", ROOT / "target/debug/usher")
    command = [program, "study", "run", study, "--live-report", "--plain", "--out", folder, *words]
    subprocess.run(command, check=True, env={**os.environ, "USHER_BROWSER_MODULE": str(MODULE)}, timeout=300)
    return folder


def rows(folder: Path, *of: str) -> list[str]:
    """The first line of results.csv, and those lines that begin with one of these."""
    lines = (folder / "results.csv").read_text(encoding="utf-8").splitlines()
    return [lines[0], *(line for line in lines if line.startswith(of))]


def seen(browser: Browser) -> list[str]:
    return str(browser.value("document.querySelector('[data-live=rows]').textContent")).splitlines()


def move(browser: Browser, axis: int, to: int) -> None:
    slider = f"document.getElementById('live-axis-{axis}')"
    browser.value(f"{slider}.value = {to}, {slider}.dispatchEvent(new Event('input')), 0")


def test_a_slider_runs_its_point_with_the_programs_rows(tmp_path: Path) -> None:
    folder = run(str(SMALL), tmp_path / "run", "--replications", "4")
    report = folder / "report.html"
    with Browser(report, tmp_path / "browser") as browser:
        browser.value("document.querySelector('[data-live=most]').value = 4, 0")
        for place, loss in [(1, "5 %"), (2, "10 %"), (0, "0 %")]:
            move(browser, 0, place)
            browser.value(UNTIL % "state.startsWith('4 replications')")
            assert seen(browser) == rows(folder, f"small,{loss},")
            here, stored = (browser.value(f"document.querySelector('[data-live={of}]').textContent") for of in ("here", "stored"))
            assert here == stored, "the same replications have the same mean and interval"
            assert "±" in here
        picture = os.environ.get("USHER_SCREENSHOT")
        if picture:
            shot = browser.ask("Page.captureScreenshot", captureBeyondViewport=True)
            Path(picture).write_text(shot["data"], encoding="ascii")


def test_recorded_handshakes_come_with_the_report(tmp_path: Path) -> None:
    words = ("--quick", "--set", "loss=5 %", "--set", "protocol=Diameter/TCP", "--set", "method=eap-tls", "--replications", "2")
    folder = run("aaa-hol", tmp_path / "run", *words)
    with Browser(folder / "report.html", tmp_path / "browser") as browser:
        browser.value("document.querySelector('[data-live=most]').value = 2, 0")
        browser.value("document.querySelector('[data-live=run]').click(), 0")
        browser.value(UNTIL % "state.startsWith('2 replications')")
        assert seen(browser) == rows(folder, "aaa-hol,")


def test_a_module_of_another_kind_is_named(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    empty = tmp_path / "empty.wasm.gz"
    empty.write_bytes(gzip.compress(b"\0asm\1\0\0\0"))
    program = os.environ.get("USHER_PROGRAM", ROOT / "target/debug/usher")
    command = [program, "study", "run", SMALL, "--live-report", "--plain", "--replications", "1", "--out", folder]
    subprocess.run(command, check=True, env={**os.environ, "USHER_BROWSER_MODULE": str(empty)}, timeout=300)
    with Browser(folder / "report.html", tmp_path / "browser") as browser:
        browser.value("document.querySelector('[data-live=run]').click(), 0")
        browser.value(UNTIL % "document.getElementById('live').classList.contains('failed')")
    nowhere = subprocess.run(
        command,
        env={**os.environ, "USHER_BROWSER_MODULE": str(tmp_path / "none")},
        capture_output=True,
        text=True,
        check=False,
    )
    assert nowhere.returncode == 2
    assert "none: No such file" in nowhere.stderr
