"""What goes wrong, as exceptions: each says what, where and what to do."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple


class Fault(NamedTuple):
    """One thing that is wrong with a study, or with how it is asked to run."""

    file: str
    """The file, as it was named; empty where the fault stands in none."""
    line: int
    """Its line, from 1; 0 where the fault stands in no file."""
    column: int
    """Its column, from 1; 0 where the fault stands in no file."""
    message: str
    """What is wrong, and what would be right."""

    def __str__(self) -> str:
        if not self.file:
            return self.message
        place = f"{self.file}:{self.line}:{self.column}" if self.line else self.file
        return f"{place}: {self.message}"


class UsherError(Exception):
    """Something could not be done."""


class StudyError(UsherError, ValueError):
    """A study, or how it is asked to run, is wrong. `faults` has everything that is."""

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
    """A folder cannot take a run: it holds another plan's, another build's, or something else."""


class VersionError(UsherError):
    """Two processes of one sweep have different builds of usher, whose rows may differ."""


class BackendError(UsherError):
    """What was to compute replications is missing, or failed for all of them."""


class PartialResults(UserWarning):
    """A run was ended before it was done; what it had finished is in its results."""
