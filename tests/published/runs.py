"""Runs of pages and of the benches beside other programs."""

from __future__ import annotations

import shutil
import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path

from pagerun import PageRun
from pages import PAGES, ROOT, Command, commands_of
from syntax import USHER, help_of
from treatments import read_tables

BENCHES = ROOT / "benches/peers"
#: The longest that a bench may take, seconds.
PATIENCE_S = 300
#: By the option that a bench takes it by, a program beside the one that is tested.
PROGRAMS = {"--usher": "usher", "--sim": "sim", "--tunnel": "examples/manual", "--plane": "examples/carry"}
#: Runs of benches by the words that they have beside --smoke. The longest come first.
BENCH_RUNS = {
    "plan": [["eap-tls-rsa", "eap-tls-ecdsa", "store-5ms"], ["pap", "eap-md5", "peap"]],
    "aaa": [[], ["--profile", "pap"], ["--against", str(USHER), "pap"]],
    "pppoe-rate": [["--out", "out"], ["--pairs", "1", "--modes", "user"]],
}


@dataclass
class Run:
    """The result of a run."""

    amount: str
    faults: list[str] = field(default_factory=list)
    seconds: float = 0.0
    #: The parts that took longer than five seconds.
    slow: dict[str, float] = field(default_factory=dict)


def bench_names() -> list[str]:
    """Names of all runs of benches, the longest first."""
    scripts = sorted(path.name for path in BENCHES.iterdir() if path.is_file() and not path.suffix)
    scripts.sort(key=lambda name: list(BENCH_RUNS).index(name) if name in BENCH_RUNS else len(BENCH_RUNS))
    return [" ".join([f"benches/peers/{name}", *words]) for name in scripts for words in BENCH_RUNS.get(name, [[]])]


def page_commands() -> dict[str, list[Command]]:
    """The commands of all pages that have some."""
    found = {str(page.relative_to(ROOT)): page.read_text(encoding="utf-8") for page in PAGES}
    commands = {name: commands_of(name, text) for name, text in found.items()}
    return {name: of_page for name, of_page in commands.items() if of_page}


def run_named(name: str, scratch: Path) -> Run:
    """Runs a page or a bench by its name."""
    folder = scratch / name.replace("/", "-").replace(" ", "-")
    folder.mkdir()
    begun = time.monotonic()
    try:
        run = run_bench(name, folder) if name.startswith("benches/peers/") else run_page(name, folder)
    finally:
        # Runs of studies are large.
        shutil.rmtree(folder, ignore_errors=True)
    run.seconds = time.monotonic() - begun
    return run


def run_page(name: str, folder: Path) -> Run:
    commands = page_commands()[name]
    page = PageRun(name, read_tables(), folder)
    page.run(commands)
    return Run(f"{len(commands)} commands", page.faults, slow={text: s for text, s in page.seconds.items() if s > 5})


def run_bench(name: str, folder: Path) -> Run:
    script, *words = name.split()
    taken = help_of(sys.executable, "-B", str(ROOT / script))
    programs = [f"{option}={USHER.parent / program}" for option, program in PROGRAMS.items() if f"{option} PROGRAM" in taken]
    command = [sys.executable, "-B", str(ROOT / script), "--smoke", *programs, *words]
    run = Run("1 bench")
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=PATIENCE_S, check=False)
    output = f"{' '.join(command)}\n{done.stdout[-3000:]}{done.stderr[-6000:]}"
    if done.returncode != 0:
        run.faults.append(f"exit status {done.returncode}: {output}")
    elif "smoke: not judged" not in done.stdout and "--profile" not in words:
        run.faults.append(f"it does not say that it judged nothing: {output}")
    return run
