"""Runs of a whole plan: their journal, progress and end."""

from __future__ import annotations

import os
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path
from types import SimpleNamespace
from typing import Protocol

from usher import _native
from usher._arguments import Number, some
from usher._errors import PartialResults
from usher._results import Results
from usher._study import Plan, build

Progress = bool | Callable[[int, int, int], object] | None
"""The display of a run's progress."""

Replicate = Callable[[int, int], list[tuple[str, float]]]
"""Computes a replication, by the index of its point and its number."""

JOBS = 16
"""Bits of the maximum number of replications at once: each has a thread."""

EVERY = 10.0
"""Seconds between two lines of progress without a bar."""


class Bar(Protocol):
    """Shows the progress of a run until it is closed."""

    def __call__(self, done: int, expected: int, points: int, /) -> object: ...
    def close(self) -> None: ...


class TqdmBar:
    """A progress bar of tqdm, for terminals and notebooks."""

    def __init__(self, name: str, unit: str, fewest: int, points: int) -> None:
        from tqdm.auto import tqdm

        self._of = points
        self._bar = tqdm(desc=name, total=fewest, unit=unit)

    def __call__(self, done: int, expected: int, points: int) -> None:
        self._bar.total = expected
        if self._of > 1:
            self._bar.set_postfix_str(f"{points}/{self._of} points", refresh=False)
        self._bar.update(done - self._bar.n)

    def close(self) -> None:
        self._bar.close()


class Lines:
    """Prints a line of progress at intervals."""

    def __init__(self, name: str, unit: str) -> None:
        self._name = name
        self._unit = unit
        self._last = time.monotonic()

    def __call__(self, done: int, expected: int, _: int) -> None:
        if time.monotonic() - self._last >= EVERY:
            self._last = time.monotonic()
            print(f"{self._name}: {done} of about {expected} {self._unit}s", file=sys.stderr, flush=True)

    def close(self) -> None:
        pass


class Told:
    """Passes the progress to a caller's function."""

    def __init__(self, tell: Callable[[int, int, int], object]) -> None:
        self._tell = tell

    def __call__(self, done: int, expected: int, points: int) -> None:
        self._tell(done, expected, points)

    def close(self) -> None:
        pass


def bar(name: str, unit: str, fewest: int, points: int, progress: Progress) -> Bar:
    """Returns the requested display of progress, for this minimum number of units.

    Without tqdm it prints lines, on request or on a terminal.
    """
    if callable(progress):
        return Told(progress)
    if progress is None:
        progress = sys.stderr.isatty() or "ipykernel" in sys.modules
    if not progress:
        return Told(lambda *_: None)
    try:
        return TqdmBar(name, unit, fewest, points)
    except ImportError:
        return Lines(name, unit)


def cores() -> int:
    """Returns the number of cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def run(
    plan: Plan,
    *,
    jobs: Number | None,
    out: str | os.PathLike[str] | None,
    force: bool,
    progress: Progress,
    stop: _native.Stop | None = None,
    replicate: Replicate | None = None,
    quiet: Sequence[Exception] = (),
) -> Results:
    """Runs a plan here, or computes its replications with `replicate`, until `stop` is set. Warns of partial rows or figures,
    unless `quiet` has the error that ended the run."""
    jobs = some("jobs", jobs, 1, JOBS)
    stop = stop or _native.Stop()
    with ExitStack() as stack:
        folder = Path(out) if out is not None else Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="usher-")))
        settings = SimpleNamespace(
            folder=folder, keep=out is not None, force=force, build=build(), jobs=jobs or cores(), called=plan._called
        )
        shown = bar(plan.study, "replication", plan.replications[0], len(plan), progress)
        stack.callback(shown.close)
        native, interrupted = _native.run(plan._native, settings, stop, shown, replicate)
    results = Results(native, plan.study, folder if out is not None else None)
    # What ended it altogether is the caller's to tell.
    if (not results.complete or native.cut_short) and not quiet:
        why = "interrupted" if interrupted else native.broken or f"{len(results.failures)} replications failed"
        if results.complete:
            why = "interrupted before the figures of single dialogues were complete"
        for failure in results.failures[:1]:
            why += f", the first at {failure.point or 'its point'}, replication {failure.replication}: {failure.error}"
        goes_on = "; repeat the call with this folder to continue" if out is not None else ""
        warnings.warn(f"{results!r} are partial: {why}{goes_on}", PartialResults, stacklevel=4)
    return results
