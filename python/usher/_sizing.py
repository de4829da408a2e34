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
        """The output of `usher plan --json`."""
        self._page = page

    @property
    def servers(self) -> int | None:
        """The number of servers for the demand; `None` if no load meets the target."""
        servers: int | None = self.answer["servers"]
        return servers

    @property
    def capacity(self) -> float | None:
        """Logins a second of one server within the target; `None` if no load meets it."""
        found = self.answer["capacity"]
        return None if found is None else float(found["logins_per_s"])

    def report(self, path: str | os.PathLike[str] = "plan.html") -> Path:
        """Writes the report, one HTML file, and returns its path."""
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
    """Computes how many servers a deployment needs. It simulates logins with the processor times of a measured profile.

    A plan is a file, or has the file's keys as arguments: `plan(profile="profile.toml", mix={"pap": 1}, demand={"users": 50000,
    "within": "30 min"}, target="99 % within 200 ms")`. The other arguments are those of `usher plan`. Raises `StudyError` if a
    setting is missing or wrong. Ctrl-C ends it without an answer.
    """
    if (file is None) == (not settings):
        raise wrong("give either a plan file or settings such as profile, mix and demand")
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
    """Converts a target from the form of the command to the form of the file."""
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
        raise wrong(f"{said(value)}: a plan takes texts, numbers, True and False, and lists and mappings of these")
    return json.dumps(value, ensure_ascii=False)
