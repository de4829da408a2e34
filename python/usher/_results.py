"""Results of runs: rows, their summary, figures, the report, and verdicts on published statements."""

from __future__ import annotations

import html
import json
import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from usher import _native

SHOWN = 20
"""Number of rows of a table that a notebook shows."""


class Table:
    """A table for all readers of Arrow: `polars.DataFrame(table)`, `pyarrow.table(table)`, a query of DuckDB."""

    def __init__(self, native: _native.Results, summary: bool) -> None:
        self._native = native
        self._summary = summary

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        """Returns the table as a capsule with Arrow's C stream. It always has the same schema."""
        return self._native.stream(self._summary)

    def __len__(self) -> int:
        return self._native.rows(self._summary)

    @property
    def columns(self) -> list[str]:
        """The names of the columns."""
        return [name for name, _ in self._native.columns(self._summary, 0)]

    def to_dict(self) -> dict[str, list[Any]]:
        """Returns the values of each column; `None` for an unknown value."""
        return dict(self._native.columns(self._summary, len(self)))

    def __iter__(self) -> Iterator[dict[str, Any]]:
        """Iterates over the rows as dictionaries."""
        columns = self.to_dict()
        return (dict(zip(columns, values, strict=True)) for values in zip(*columns.values(), strict=True))

    def __repr__(self) -> str:
        return f"<usher.Table: {len(self)} rows of {', '.join(self.columns)}>"

    def _repr_html_(self) -> str:
        columns = self._native.columns(self._summary, SHOWN)
        return _html_table([name for name, _ in columns], [values for _, values in columns], len(self))


def _html_table(names: Sequence[str], columns: Sequence[Sequence[object]], of: int) -> str:
    def cell(value: object) -> str:
        if value is None:
            return "<td></td>"
        return f"<td>{value:.6g}</td>" if isinstance(value, float) else f"<td>{html.escape(str(value))}</td>"

    head = "".join(f"<th>{html.escape(name)}</th>" for name in names)
    rows = "".join(f"<tr>{''.join(map(cell, values))}</tr>" for values in zip(*columns, strict=True))
    shown = len(columns[0]) if columns else 0
    more = f"<p>and {of - shown} more rows</p>" if of > shown else ""
    return f"<table><thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table>{more}"


class Figure:
    """A figure of the report. A notebook shows it."""

    def __init__(self, native: _native.Results, name: str, title: str, caption: str) -> None:
        self._native = native
        self.name = name
        """Its name in the study."""
        self.title = title
        """Its title: the metric and the axis."""
        self.caption = caption
        """The study's text about it."""

    @property
    def svg(self) -> str:
        """The figure as SVG."""
        return self._native.svg(self.name)

    @property
    def csv(self) -> str:
        """Its points as CSV: series, x, mean, and the ends of the interval."""
        return self._native.csv(self.name)

    def save(self, path: str | os.PathLike[str]) -> Path:
        """Writes the figure as an SVG file."""
        file = Path(path)
        file.write_text(self.svg, encoding="utf-8")
        return file

    def _repr_svg_(self) -> str:
        # A page is no document of XML of its own: the declaration stays out of it.
        return self.svg[self.svg.index("<svg") :]

    def __repr__(self) -> str:
        return f"<usher.Figure {self.name}: {self.title}>"


class Claim(NamedTuple):
    """A published statement and its verdict."""

    id: str
    """Its name."""
    published: Any
    """The document's value: a number, a text, or several by name."""
    ours: Any
    """The value of the results; `None` if there is none."""
    low: Any
    """The lower end of its interval; `None` if there is none."""
    high: Any
    """The upper end."""
    verdict: str
    """`reproduced`, `partly`, `not reproduced`, or why there is none."""
    reason: str
    """The reason of the verdict."""


class Claims(list[Claim]):
    """Published statements with their verdicts. A notebook shows them as a table."""

    def counts(self) -> dict[str, int]:
        """Returns the number of statements with each verdict."""
        counts: dict[str, int] = {}
        for claim in self:
            counts[claim.verdict] = counts.get(claim.verdict, 0) + 1
        return counts

    def _repr_html_(self) -> str:
        names = ["id", "published", "ours", "verdict", "reason"]
        return _html_table(names, [[getattr(claim, name) for claim in self] for name in names], len(self))


def claims_of(text: str) -> Claims:
    """Judged statements from the program's JSON."""
    fields = Claim._fields
    return Claims(Claim(*(judged.get(field) for field in fields)) for judged in json.loads(text))


class Failure(NamedTuple):
    """A replication that failed."""

    point: str
    """The key of its point."""
    replication: int
    """Its number."""
    error: str
    """The reason."""


class Ran(NamedTuple):
    """The replications of a point."""

    key: str
    """The point's name."""
    replications: int
    """The number of replications."""
    complete: bool
    """True if its stopping rule needs no more."""
    converged: bool
    """True if the precision was reached, and not only the limit of replications."""


class Results:
    """The results of a run: a table with a row for each metric of each replication, as in `polars.DataFrame(results)`."""

    def __init__(self, native: _native.Results, study: str, folder: Path | None) -> None:
        self._native = native
        self._study = study
        self.folder = folder
        """The folder with all files; `None` without `out`."""

    @property
    def study(self) -> str:
        """The study's name."""
        return self._study

    @property
    def complete(self) -> bool:
        """True if every point ran as often as its stopping rule needs."""
        return self._native.complete

    @property
    def resumed(self) -> int:
        """Number of replications taken from the folder's journal."""
        return self._native.resumed

    @property
    def rows(self) -> Table:
        """The rows: one for each metric of each replication."""
        return Table(self._native, False)

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        """The rows as a capsule with Arrow's C stream."""
        return self._native.stream(False)

    def summary(self) -> Table:
        """Each metric of each point over its replications: mean and median with their intervals, spread and ends."""
        return Table(self._native, True)

    @property
    def figures(self) -> list[str]:
        """The names of the figures."""
        return [name for name, _, _ in self._native.figures()]

    def figure(self, name: str | None = None) -> Figure:
        """Returns a figure by its name, or the first. Raises `StudyError` with the known names."""
        figures = self._native.figures()
        found = next((figure for figure in figures if name is None or figure[0] == name), None)
        if found is None:
            self._native.svg(name or "")
            raise AssertionError("a figure that is not listed was drawn")
        return Figure(self._native, *found)

    def report(self, path: str | os.PathLike[str] = "report.html") -> Path:
        """Writes the report, one HTML file that opens offline, and returns its path."""
        file = Path(path)
        self._native.write_report(file)
        return file

    @property
    def claims(self) -> Claims:
        """The published statements that this study checks, with their verdicts."""
        return claims_of(self._native.claims)

    @property
    def findings(self) -> list[str]:
        """The findings: sentences with numbers about the figures."""
        return self._native.findings

    @property
    def answers(self) -> list[str]:
        """The study's recommendations, if it has any."""
        return self._native.answers

    @property
    def warnings(self) -> list[str]:
        """Warnings about the findings: failures, and means that depend on one replication."""
        return self._native.warnings

    @property
    def failures(self) -> list[Failure]:
        """The replications that failed."""
        return [Failure(*failure) for failure in self._native.failures]

    @property
    def points(self) -> list[Ran]:
        """The replications of each point, in the order of the grid."""
        return [Ran(*ran) for ran in self._native.points]

    @property
    def manifest(self) -> dict[str, Any]:
        """The description of the run: its settings, build, machine and duration."""
        read: dict[str, Any] = json.loads(self._native.manifest)
        return read

    def __len__(self) -> int:
        return self._native.rows(False)

    def __repr__(self) -> str:
        done = sum(ran.complete for ran in self.points)
        of = "" if self.complete else f" of {len(self.points)}"
        replications = sum(ran.replications for ran in self.points)
        return f"<usher.Results of {self._study}: {done}{of} points, {replications} replications>"

    def _repr_html_(self) -> str:
        said = "".join(f"<li>{html.escape(text)}</li>" for text in self.warnings + self.findings)
        return f"<p>{html.escape(repr(self))}</p><ul>{said}</ul>"

    def __reduce__(self) -> Any:
        raise TypeError(
            f"results of {self._study} cannot be pickled: they hold objects of this process; "
            "pickle the plan, which gives the same results again, or send pyarrow.table(results)"
        )
