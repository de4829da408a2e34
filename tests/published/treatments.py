"""The table `commands.toml`: treatments of commands that do not run as they stand."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import tomllib

from pages import Command

#: The page whose rows hold for all pages.
COMMON = "*"
TABLE = Path(__file__).parent / "commands.toml"


@dataclass
class Treatment:
    """A row of the table."""

    #: The command, or its beginning and `*`.
    text: str
    reason: str
    #: The command that runs in its place.
    run: str = ""
    #: Words of it that are replaced, and by what.
    replace: list[list[str]] = field(default_factory=list)
    #: Words that are added to it.
    append: str = ""
    #: A server: the text that it prints when it serves. It runs until the page ends, or until it starts again.
    serves: str = ""
    #: A program without an end: the text after which SIGTERM ends it.
    until: str = ""
    #: Its standard input.
    input: str = ""
    status: int = 0
    #: Text that its output must contain.
    prints: str = ""
    #: It is not run, only its words are checked.
    skip: bool = False

    def fits(self, command: Command) -> bool:
        if self.text.endswith("*"):
            return command.text.startswith(self.text[:-1])
        return command.text == self.text

    def command(self, text: str) -> str:
        for old, new in self.replace:
            if old not in text:
                raise ValueError(f"{text}: there is no {old!r} in it to replace")
            text = text.replace(old, new)
        return self.run or f"{text} {self.append}".strip()


@dataclass
class Preparation:
    """A script that makes things a page only names, before the page's commands run, or before one of them."""

    reason: str
    run: str
    serves: str = ""
    before: str = ""


@dataclass
class PageTable:
    """The rows of a page."""

    name: str
    preparations: list[Preparation] = field(default_factory=list)
    commands: list[Treatment] = field(default_factory=list)

    def row_of(self, command: Command) -> Treatment | None:
        """The row of a command: the one with the longest text that fits."""
        rows = [row for row in self.commands if row.fits(command)]
        return max(rows, key=lambda row: len(row.text), default=None)


def treatment_of(tables: dict[str, PageTable], command: Command) -> Treatment:
    """The row of a command: of its page, else of all pages, else a row that runs it as it stands."""
    for name in (command.page, COMMON):
        row = tables[name].row_of(command) if name in tables else None
        if row:
            return row
    return Treatment(command.text, "")


def read_tables() -> dict[str, PageTable]:
    """The rows by their pages."""
    tables = {}
    listed: list[dict[str, Any]] = tomllib.loads(TABLE.read_text(encoding="utf-8"))["page"]
    for page in listed:
        unknown = set(page) - {"name", "prepare", "command"}
        if unknown or page["name"] in tables:
            raise ValueError(f"{TABLE.name}: {page['name']}: {unknown or 'it is there twice'}")
        tables[page["name"]] = PageTable(
            page["name"],
            [Preparation(**row) for row in page.get("prepare", [])],
            [Treatment(**row) for row in page.get("command", [])],
        )
    return tables
