"""What is known beforehand: published statements, and formulas and vectors."""

from __future__ import annotations

import os
from typing import NamedTuple

from usher import _native
from usher._results import Claims, Results, claims_of


def claims(runs: Results | str | os.PathLike[str] | None = None) -> Claims:
    """Published statements with their verdicts: held against these results, against the runs in a folder, or, of nothing, against
    the best run of each study in the folder `out`. Raises `UsherError` where the folder has no run.
    """
    if isinstance(runs, Results):
        return runs.claims
    text, _ = _native.claims(None if runs is None else os.fspath(runs))
    return claims_of(text)


class Check(NamedTuple):
    """One value that is known beforehand, beside what the code makes of it."""

    group: str
    """Its subject."""
    name: str
    """Its name within the group."""
    case: str
    """Which of its cases; empty where there is one."""
    about: str
    """What it is."""
    source: str
    """Where the expected value comes from."""
    expected: str
    """What had to come out."""
    obtained: str
    """What came out."""
    tolerance: str
    """How far apart they may be; empty for not at all."""
    holds: bool
    """Whether they agree."""


def verify(filter: str | None = None) -> list[Check]:
    """Runs analytic formulas and published vectors against this code: all of them, or those with this in group or name. Raises
    `StudyError` where nothing is named so.
    """
    return [Check(*check) for check in _native.verify(filter)]
