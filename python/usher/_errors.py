"""Exceptions. Each names the fault, its place and the remedy."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple


class Fault(NamedTuple):
    """A fault of a study, or of the arguments of its run."""

    file: str
    """The file as named; empty for a fault outside files."""
    line: int
    """Its line, from 1; 0 for a fault outside files."""
    column: int
    """Its column, from 1; 0 for a fault outside files."""
    message: str
    """The fault, and the remedy."""

    def __str__(self) -> str:
        if not self.file:
            return self.message
        place = f"{self.file}:{self.line}:{self.column}" if self.line else self.file
        return f"{place}: {self.message}"


class UsherError(Exception):
    """The base class of all exceptions of this package."""


class StudyError(UsherError, ValueError):
    """A study, or an argument of its run, is wrong. `faults` lists all faults."""

    faults: list[Fault]
    """All faults, in the order of their lines."""

    def __init__(self, faults: Iterable[tuple[str, int, int, str]]) -> None:
        self.faults = [Fault(*fault) for fault in faults]
        super().__init__("\n".join(map(str, self.faults)))

    def __reduce__(self) -> tuple[Any, ...]:
        return StudyError, ([tuple(fault) for fault in self.faults],)

    @property
    def file(self) -> str:
        """The file of the first fault."""
        return self.faults[0].file

    @property
    def line(self) -> int:
        """The line of the first fault."""
        return self.faults[0].line


class FolderError(UsherError):
    """A folder cannot hold a run: it has a run of another plan or build, or other files."""


class VersionError(UsherError):
    """Two processes of one sweep have different builds of usher. Their rows may differ."""


class BackendError(UsherError):
    """The engine that computes replications is missing, or failed for all of them."""


class PartialResults(UserWarning):
    """A run ended early. Its results have the replications that were finished."""
