"""Studies and their plans."""

from __future__ import annotations

import functools
import os
import warnings
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from usher import _native
from usher._arguments import Number, Value, some, values, whole, wrong
from usher._errors import Fault, VersionError

if TYPE_CHECKING:
    from usher._results import Results
    from usher._run import Progress


def build() -> str:
    """Identifies this build of the package, by the checksum of its native module."""
    return _build_of(str(_native.__file__))


@functools.cache
def _build_of(file: str) -> str:
    return f"{_native.__version__} {_native.build(file)}"


def studies() -> list[str]:
    """Returns the names of the package's studies."""
    return _native.founding()


def study(name: str | os.PathLike[str]) -> Study:
    """Opens a study of the package by its name, or else a file.

    Raises `StudyError`. Its `faults` have file, line and remedy.
    """
    opened = _native.Study.open(os.fspath(name))
    for fault in opened.warnings():
        warnings.warn(str(Fault(*fault)), stacklevel=2)
    return Study(opened, f"usher.study({os.fspath(name)!r})")


class Study:
    """A study: its question, its file, and the changes to it.

    A study is immutable: `set` returns another one.
    """

    def __init__(self, native: _native.Study, called: str, changes: Sequence[str] = ()) -> None:
        self._native = native
        self._called = called
        self._changes = tuple(changes)

    @property
    def name(self) -> str:
        """Its name, as in the rows."""
        return self._native.name

    @property
    def title(self) -> str:
        """Its title."""
        return self._native.title

    @property
    def question(self) -> str:
        """Its question."""
        return self._native.question

    @property
    def description(self) -> str:
        """Its description: the network and the measurements."""
        return self._native.description

    @property
    def text(self) -> str:
        """Its file's text."""
        return self._native.text

    @property
    def changes(self) -> tuple[str, ...]:
        """The changes by `set`, each as `name=value`."""
        return self._changes

    def set(self, *changes: str | Mapping[str, Value | Iterable[Value]], **axes: Value | Iterable[Value]) -> Study:
        """Returns the same study with other values.

        `set(loss=["1 %", "5 %"])` sets the values of an axis. `set("run.duration=10 s")` or `set({"run.duration": "10 s"})` sets a
        setting by its path. A number without a unit has the axis's unit.

        `plan` and `run` check the values.
        """
        added: list[str] = []
        for change in changes:
            if isinstance(change, str):
                added.append(change)
            elif isinstance(change, Mapping):
                added += [f"{name}={values(str(name), value)}" for name, value in change.items()]
            else:
                raise wrong(f'{change!r}: write "name=value", or give a mapping of names and values')
        added += [f"{name}={values(name, value)}" for name, value in axes.items()]
        for change in added:
            if not all(part.strip() for part in change.partition("=")):
                raise wrong(f'{change}: write name=value, such as "loss=1 %,5 %"')
        return Study(self._native, self._called, (*self._changes, *added))

    def plan(
        self,
        *,
        quick: bool = False,
        full: bool = False,
        sensitivity: bool = False,
        seed: Number | None = None,
        replications: Number | None = None,
    ) -> Plan:
        """Returns the plan: every combination of the axes' values, with its replications and seeds.

        `quick` is for a first look, `full` for publication. `sensitivity` varies each choice of the study in turn. `seed` replaces
        the study's seed, and `replications` its stopping rule. Raises `StudyError`.
        """
        modes = [name for name, on in (("quick", quick), ("full", full), ("sensitivity", sensitivity)) if on]
        if len(modes) > 1:
            raise wrong(f"{' and '.join(modes)}: choose one of them")
        mode = modes[0] if modes else "default"
        seed, replications = some("seed", seed, 0), some("replications", replications, 1, 32)
        made = self._native.plan(mode, list(self._changes), seed, replications)
        asked = [f"{mode}=True"] if modes else []
        asked += [f"{name}={value}" for name, value in (("seed", seed), ("replications", replications)) if value is not None]
        changed = f".set({', '.join(map(repr, self._changes))})" if self._changes else ""
        return Plan(made, f"{self._called}{changed}.plan({', '.join(asked)})")

    def run(
        self,
        *,
        quick: bool = False,
        full: bool = False,
        sensitivity: bool = False,
        seed: Number | None = None,
        replications: Number | None = None,
        jobs: Number | None = None,
        out: str | os.PathLike[str] | None = None,
        force: bool = False,
        progress: Progress = None,
    ) -> Results:
        """Runs the whole plan: `plan` with the same arguments, then `Plan.run`."""
        plan = self.plan(quick=quick, full=full, sensitivity=sensitivity, seed=seed, replications=replications)
        return plan.run(jobs=jobs, out=out, force=force, progress=progress)

    def __repr__(self) -> str:
        changed = f".set({', '.join(map(repr, self._changes))})" if self._changes else ""
        return f"<usher.Study {self.name}: {self.title}{' ' + changed if changed else ''}>"

    def __reduce__(self) -> tuple[Any, ...]:
        plan = self._native.plan("default", [], None, None).state()
        return _study_of, (plan[0], plan[1], self._called, self._changes)


def _study_of(name: str, text: str, called: str, changes: tuple[str, ...]) -> Study:
    return Study(_native.Study.of_text(name, f"{name}.toml", text), called, changes)


@dataclass(frozen=True)
class Point:
    """One combination of the axes' values."""

    index: int
    """Its index in the plan, from 0."""
    key: str
    """Its name, such as `loss=5 %; protocol=diameter`; empty in a study without axes."""
    settings: dict[str, str]
    """The value of each axis, as the study writes it."""
    numbers: dict[str, float]
    """The numeric values, in the unit of their axis."""


class Plan:
    """All runs of a study. A plan can be pickled: it contains the study's whole text. Another build rejects it."""

    def __init__(self, native: _native.Plan, called: str) -> None:
        self._native = native
        self._called = called

    @property
    def study(self) -> str:
        """The study's name."""
        return self._native.study

    @property
    def mode(self) -> str:
        """`quick`, `default`, `full` or `sensitivity`."""
        return self._native.mode

    @property
    def hash(self) -> str:
        """A digest of all that determines the rows. Two plans with the same hash give the same rows."""
        return self._native.hash

    @functools.cached_property
    def points(self) -> list[Point]:
        """The points in the order of the grid and of the rows."""
        return [
            Point(index, key, {axis: text for axis, text, _ in settings}, {axis: n for axis, _, n in settings if n is not None})
            for index, (key, settings) in enumerate(self._native.points())
        ]

    @property
    def replications(self) -> tuple[int, int]:
        """The minimum and maximum number of replications of all points together."""
        return self._native.replications

    def seed(self, point: Number | str | Point, replication: Number = 0) -> int:
        """Returns the seed of a replication of a point. Points that differ only in a compared setting have the same seed."""
        return self._native.seed(self.place(point), whole("replication", replication, 0, 32))

    def place(self, point: Number | str | Point) -> int:
        """Returns the index of a point, from the point, its index, or a unique part of its key."""
        if isinstance(point, str):
            return self._native.find(point)
        return whole("point", point.index if isinstance(point, Point) else point, 0)

    def run(
        self,
        *,
        jobs: Number | None = None,
        out: str | os.PathLike[str] | None = None,
        force: bool = False,
        progress: Progress = None,
    ) -> Results:
        """Runs every point as often as its stopping rule needs, on all cores or `jobs` of them.

        `out` is a folder for the files of the program `usher`: rows, figures, report and a journal. The same call continues from
        the journal after an interruption; `force` starts anew. `progress` is `True`, `False`, or a function of the replications
        done, the expected ones, and the points done. `None` shows the progress if possible.

        Ctrl-C ends the run with the finished results and a warning (`PartialResults`). Raises `FolderError`, `UsherError`.
        """
        from usher._run import run

        return run(self, jobs=jobs, out=out, force=force, progress=progress)

    def __len__(self) -> int:
        return len(self.points)

    def __repr__(self) -> str:
        fewest, most = self.replications
        times = str(fewest) if fewest == most else f"{fewest} to {most}"
        return f"<usher.Plan {self.study} ({self.mode}): {len(self)} points, {times} replications>"

    def __reduce__(self) -> tuple[Any, ...]:
        return restored, (build(), self._called, _frozen(self._native.state()))


State = tuple[str, str, str, tuple[str, ...], int | None, int | None, str, str]


def _frozen(state: _native.State) -> State:
    name, text, mode, changes, seed, replications, of_plan, of_text = state
    return name, text, mode, tuple(changes), seed, replications, of_plan, of_text


# A worker is sent the same plan with each replication, and reads it once.
@functools.lru_cache(maxsize=4)
def _read(state: State) -> _native.Plan:
    name, text, mode, changes, seed, replications, of_plan, of_text = state
    return _native.Plan.of_state((name, text, mode, list(changes), seed, replications, of_plan, of_text))


def restored(made_by: str, called: str, state: State) -> Plan:
    """Restores a pickled plan of a process with this build. Raises `VersionError` if this process has another build."""
    same_build(made_by)
    return Plan(_read(state), called)


def same_build(other: str) -> None:
    """Raises `VersionError` if the other process has another build of the package."""
    if other == build():
        return
    theirs, ours = other.split()[0], build().split()[0]
    what = f"usher {theirs} there, {ours} here" if theirs != ours else f"two builds of usher {ours}"
    raise VersionError(
        f"{what}: their rows may differ; install the same wheel on the machine that runs the sweep and on every worker"
    )


def run_point(plan: Plan, point: Number | str | Point, replication: Number = 0) -> dict[str, float]:
    """Runs a replication of a point and returns its metrics by name, in SI base units. The same arguments give the same numbers on
    any machine. Raises `StudyError` if there is no such point, `UsherError` if the replication fails.
    """
    record = plan._native.replicate(plan.place(point), whole("replication", replication, 0, 32))
    return {name: value for name, value in record if not name.startswith("#")}


def read(text: str, name: str = "study", origin: str | Path | None = None) -> Study:
    """Returns a study from its text, such as one written in a notebook. `name` is its name in the rows. Raises `StudyError`."""
    return Study(_native.Study.of_text(name, str(origin or f"{name}.toml"), text), f"usher.read(text, {name!r})")
