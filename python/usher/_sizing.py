"""How many servers a deployment needs."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from usher import _native
from usher._arguments import Number, literal, said, scalar, some, whole, wrong
from usher._run import JOBS, Progress, bar, cores


class Sizing:
    """How many servers a deployment needs, how long logins take with so many, and what breaks first."""

    def __init__(self, answer: str, page: str) -> None:
        self.answer: dict[str, Any] = json.loads(answer)
        """Everything that `usher plan --json` says."""
        self._page = page

    @property
    def servers(self) -> int | None:
        """How many servers the demand takes; `None` where no load meets the target."""
        servers: int | None = self.answer["servers"]
        return servers

    @property
    def capacity(self) -> float | None:
        """Logins a second that one server takes and meets the target; `None` where no load meets it."""
        found = self.answer["capacity"]
        return None if found is None else float(found["logins_per_s"])

    def report(self, path: str | os.PathLike[str] = "plan.html") -> Path:
        """Writes the report, one HTML file, and gives its path."""
        file = Path(path)
        file.write_text(self._page, encoding="utf-8")
        return file

    def __repr__(self) -> str:
        return f"<usher.Sizing: {self.servers} servers for {self.answer['demand_per_s']:.4g} logins a second>"


def plan(
    file: str | os.PathLike[str] | None = None,
    *,
    quick: bool = False,
    replications: Number | None = None,
    logins: Number | None = None,
    seed: Number = 1,
    jobs: Number | None = None,
    progress: Progress = None,
    **settings: Any,
) -> Sizing:
    """How many servers a deployment needs: its logins, simulated on processors that a measured profile charges.

    A plan is a file, or is said here in the file's words: `plan(profile="profile.toml", mix={"pap": 1}, demand={"users": 50000,
    "within": "30 min"}, target="99 % within 200 ms")`. The others are those of `usher plan`. Raises `StudyError` where something is
    missing or does not fit; Ctrl-C ends it without an answer.
    """
    if (file is None) == (not settings):
        raise wrong("give a plan's file, or its settings, such as profile, mix and demand")
    text = "".join(f"{name} = {_toml(_target(value) if name == 'target' else value)}\n" for name, value in settings.items())
    asked = SimpleNamespace(
        quick=quick,
        replications=some("replications", replications, 1, 32),
        logins=some("logins", logins, 1, 32),
        seed=whole("seed", seed, 0),
        jobs=some("jobs", jobs, 1, JOBS) or cores(),
    )
    shown = bar("plan", "step", 1, 1, progress)
    try:
        return Sizing(*_native.size(None if file is None else os.fspath(file), text, asked, _native.Stop(), shown))
    finally:
        shown.close()


def _target(value: object) -> object:
    """A target as the command has it, as the file has it."""
    if not isinstance(value, str):
        return value
    share, _, within = value.partition(" within ")
    return {"share": share.strip(), "within": within.strip()}


def _toml(value: object) -> str:
    value = scalar(value)
    number = literal(value)
    if number is not None:
        return number
    if isinstance(value, Mapping):
        return "{ " + ", ".join(f"{_toml(str(name))} = {_toml(of)}" for name, of in value.items()) + " }"
    if isinstance(value, (list, tuple)):
        return "[" + ", ".join(map(_toml, value)) + "]"
    if isinstance(value, os.PathLike):
        value = os.fspath(value)
    if not isinstance(value, str):
        raise wrong(f"{said(value)}: a plan is said in texts, numbers, switches, and lists and mappings of these")
    return json.dumps(value, ensure_ascii=False)
