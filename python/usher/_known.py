"""Knowledge to check against: published statements, formulas and vectors."""

from __future__ import annotations

import os
from typing import NamedTuple

from usher import _native
from usher._results import Claims, Results, claims_of


def claims(runs: Results | str | os.PathLike[str] | None = None) -> Claims:
    """Returns the published statements with their verdicts, by these results or by the runs in a folder. Without an argument, the
    best run of each study in the folder `out` counts. Raises `UsherError` if the folder has no run.
    """
    if isinstance(runs, Results):
        return runs.claims
    text, _ = _native.claims(None if runs is None else os.fspath(runs))
    return claims_of(text)


class Check(NamedTuple):
    """A known value, and the value that the code computes."""

    group: str
    """Its subject."""
    name: str
    """Its name within the group."""
    case: str
    """The case; empty if there is only one."""
    about: str
    """Its description."""
    source: str
    """The source of the expected value."""
    expected: str
    """The expected value."""
    obtained: str
    """The computed value."""
    tolerance: str
    """Their maximum difference; empty if they must be equal."""
    holds: bool
    """True if they agree."""


def verify(filter: str | None = None) -> list[Check]:
    """Checks this code against analytic formulas and published vectors: all, or those with `filter` in group or name. Raises
    `StudyError` if no check matches.
    """
    return [Check(*check) for check in _native.verify(filter)]
