"""Runs the commands of a page, in order, in namespaces of its own."""

from __future__ import annotations

import os
import re
import shlex
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import IO

from pages import ROOT, Command, blocks_of
from syntax import USHER, fault_of
from treatments import PageTable, Treatment, treatment_of

#: The longest that a command may take, or that a server may take to come up, seconds.
PATIENCE_S = 100
#: Folders that are the page's own: what a command writes there is gone with the page.
OWN_FOLDERS = ("/etc", "/root", "/var")
HOLDER = r"""
set -e
mkdir "$1"
mount -t tmpfs tmpfs "$1"
for folder in "${@:2}"; do
    mkdir -p "$1/own$folder" "$1/work$folder"
    mount -t overlay overlay -o "lowerdir=$folder,upperdir=$1/own$folder,workdir=$1/work$folder" "$folder"
done
mount -t tmpfs tmpfs /run
ip link set lo up
echo ready
exec sleep infinity
"""


class CommandError(Exception):
    """A command did not do what the page says."""


class Namespaces:
    """A network, a tree of processes and a view of files for one page, all of which end with it."""

    def __init__(self, scratch: Path) -> None:
        self.scratch = scratch
        kinds = ["--net", "--mount", "--pid", "--fork", "--kill-child=SIGKILL", "--mount-proc"]
        self._holder = subprocess.Popen(
            ["unshare", *kinds, "bash", "-c", HOLDER, "holder", str(scratch / "files"), *OWN_FOLDERS],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        assert self._holder.stdout
        answer = self._holder.stdout.readline()
        if answer != "ready\n":
            raise CommandError(f"no namespaces: {answer}{self._holder.stdout.read()}")
        children = Path(f"/proc/{self._holder.pid}/task/{self._holder.pid}/children").read_text(encoding="ascii")
        self._enter = ["nsenter", "--target", children.split()[0], "--net", "--mount", "--pid", "--"]

    def popen(self, script: str, folder: Path, **streams: IO[bytes] | int) -> subprocess.Popen[bytes]:
        environment = {
            **os.environ,
            "PATH": f"{USHER.parent}:{os.environ['PATH']}:/usr/sbin:/sbin",
            # The state of a server that root starts is in /var/lib/usher then.
            "HOME": "/root",
            "BLOCKS": str(self.scratch / "blocks"),
            "PYTHON": sys.executable,
        }
        command = [*self._enter, "bash", "-c", 'cd "$1" && eval "$2"', "bash", str(folder), script]
        return subprocess.Popen(command, env=environment, start_new_session=True, **streams)  # type: ignore[call-overload, no-any-return]

    def close(self) -> None:
        self._holder.kill()
        self._holder.wait()


class Background:
    """A program that runs beside the page's other commands."""

    def __init__(self, namespaces: Namespaces, script: str, folder: Path, log: Path) -> None:
        self.script, self._namespaces, self._folder = script, namespaces, folder
        self._log, self._pid = log, log.with_suffix(".pid")
        with log.open("wb") as output:
            # The shell becomes the program: its number is the program's.
            script = f"echo $$ > {shlex.quote(str(self._pid))}; exec {script}"
            self._process = namespaces.popen(script, folder, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT)

    def output(self) -> str:
        return self._log.read_text(errors="replace")

    def wait_for(self, text: str) -> None:
        deadline = time.monotonic() + PATIENCE_S
        while text not in self.output():
            if self._process.poll() is not None:
                raise CommandError(f"ended with {self._process.returncode} before it printed {text!r}\n{self.output()}")
            if time.monotonic() > deadline:
                raise CommandError(f"did not print {text!r} within {PATIENCE_S} s\n{self.output()}")
            time.sleep(0.02)

    def end(self) -> None:
        """Ends it by SIGTERM, as systemd does. Our servers then end well; others may end by the signal."""
        if self._process.poll() is None:
            kill = self._namespaces.popen(f"kill -TERM $(cat {shlex.quote(str(self._pid))})", self._folder)
            kill.wait()
        try:
            status = self._process.wait(PATIENCE_S)
        except subprocess.TimeoutExpired:
            raise CommandError(f"did not end by SIGTERM\n{self.output()}") from None
        is_ours = re.match(r"usher \w+ serve", self.script)
        if status != 0 and (is_ours or status != -signal.SIGTERM):
            raise CommandError(f"ended by SIGTERM with {status}\n{self.output()}")


class PageRun:
    """One run through a page."""

    def __init__(self, name: str, tables: dict[str, PageTable], scratch: Path) -> None:
        self._tables, self._scratch = tables, scratch
        self._table = tables.get(name, PageTable(name))
        self._folder = scratch / "here"
        for folder in (self._folder, scratch / "logs"):
            folder.mkdir()
        for linked in ("docs", "studies", "scripts", "tests", "benches"):
            (self._folder / linked).symlink_to(ROOT / linked)
        # The files that a page shows, as preparations take them: toml-1, toml-2 and so on.
        blocks: dict[str, int] = {}
        (scratch / "blocks").mkdir()
        for block in blocks_of((ROOT / name).read_text(encoding="utf-8")):
            blocks[block.language] = blocks.get(block.language, 0) + 1
            file = f"{block.language or 'plain'}-{blocks[block.language]}"
            (scratch / "blocks" / file).write_text("\n".join(block.lines) + "\n", encoding="utf-8")
        self._servers: dict[str, Background] = {}
        self._logs = 0
        self.faults: list[str] = []
        self.seconds: dict[str, float] = {}

    def run(self, commands: list[Command]) -> None:
        namespaces = Namespaces(self._scratch)
        try:
            self._prepare(namespaces, "")
            for command in commands:
                self._prepare(namespaces, command.text)
                self._note(str(command), self._one, namespaces, command.text, treatment_of(self._tables, command))
            for server in reversed(list(self._servers.values())):
                self._note(f"{self._table.name}: {server.script}", server.end)
        finally:
            namespaces.close()

    def _note(self, name: str, action: object, *arguments: object) -> None:
        begun = time.monotonic()
        try:
            action(*arguments)  # type: ignore[operator]
        except CommandError as error:
            self.faults.append(f"{name}\n{error}")
        self.seconds[name] = time.monotonic() - begun

    def _prepare(self, namespaces: Namespaces, command: str) -> None:
        for row in [row for row in self._table.preparations if row.before == command]:
            treatment = Treatment("", row.reason, run=row.run, serves=row.serves)
            self._note(f"{self._table.name}: before its commands: {row.run.strip()}", self._run, namespaces, "", treatment)

    def _one(self, namespaces: Namespaces, text: str, row: Treatment) -> None:
        fault = fault_of(text)
        if fault:
            raise CommandError(fault)
        if not row.skip:
            self._run(namespaces, text, row)

    def _run(self, namespaces: Namespaces, text: str, row: Treatment) -> None:
        script = row.command(text)
        if row.serves or row.until:
            self._begin(namespaces, script, row)
            return
        process = namespaces.popen(script, self._folder, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        fault = ""
        try:
            output = process.communicate(row.input.encode(), PATIENCE_S)[0]
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            output = process.communicate()[0]
            fault = f"it was not done within {PATIENCE_S} s"
        printed = output.decode(errors="replace")
        if not fault and process.returncode != row.status:
            fault = f"exit status {process.returncode} in place of {row.status}"
        if not fault and row.prints not in printed:
            fault = f"it did not print {row.prints!r}"
        if fault:
            raise CommandError(f"ran: {script}\n{fault}; it printed:\n{printed[-4000:]}")

    def _begin(self, namespaces: Namespaces, script: str, row: Treatment) -> None:
        kind = " ".join(script.split()[:3])
        earlier = self._servers.pop(kind, None)
        if earlier:
            earlier.end()
        self._logs += 1
        program = Background(namespaces, script, self._folder, self._scratch / "logs" / f"{self._logs}.log")
        if row.serves:
            self._servers[kind] = program
        program.wait_for(row.serves or row.until)
        if row.until:
            program.end()
