"""The commands of pages: those of their code blocks, and those that sentences name."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", ROOT / "benches/README.md", *sorted((ROOT / "docs").rglob("*.md"))]
#: Languages of code blocks whose lines are commands.
SHELLS = ("", "sh", "bash", "shell", "console")
#: Languages of code blocks that show a session: only lines after a prompt are commands.
SESSIONS = ("text",)


@dataclass(frozen=True)
class Command:
    """A command of a page, without the description beside it."""

    page: str
    line: int
    text: str

    def __str__(self) -> str:
        return f"{self.page}:{self.line}: {self.text}"


@dataclass(frozen=True)
class CodeBlock:
    """The lines of a code block, and the number of the first."""

    language: str
    line: int
    lines: list[str]


def blocks_of(text: str) -> list[CodeBlock]:
    """Fenced code blocks, and those that four spaces indent."""
    blocks: list[CodeBlock] = []
    fence: str | None = None
    open_block: CodeBlock | None = None
    before = ""
    for number, line in enumerate(text.splitlines(), 1):
        mark = re.match(r"(```+|~~~+)(.*)$", line)
        if fence is None and mark:
            fence, open_block = mark[1], CodeBlock(mark[2].strip().split(" ")[0], number + 1, [])
            blocks.append(open_block)
        elif fence is not None and line.strip() == fence:
            fence = open_block = None
        elif fence is not None and open_block:
            open_block.lines.append(line)
        elif line.startswith("    ") and (open_block or not before.strip()):
            if open_block is None:
                open_block = CodeBlock("", number, [])
                blocks.append(open_block)
            open_block.lines.append(line[4:])
        else:
            open_block = None
        before = line
    return blocks


def commands_of(page: str, text: str) -> list[Command]:
    """The commands of a page, in its order."""
    return [command for block in blocks_of(text) for command in commands_of_block(page, block)]


def commands_of_block(page: str, block: CodeBlock) -> list[Command]:
    has_prompts = any(line.startswith("$ ") for line in block.lines)
    if block.language not in SHELLS and not (block.language in SESSIONS and has_prompts):
        return []
    found: list[Command] = []
    lines = iter(enumerate(block.lines, block.line))
    for number, line in lines:
        if has_prompts:
            if not line.startswith("$ "):
                continue
            line = line[2:]
        # Other lines go on with the description of the command above.
        if not line.strip() or line[0] in " #":
            continue
        scanner = CommandScanner()
        while scanner.goes_on_after(line):
            line = next(lines, (0, ""))[1]
        if scanner.text:
            found.append(Command(page, number, scanner.text))
    return found


class CommandScanner:
    """Reads a command from the lines of a code block: two spaces, or a comment, begin its description."""

    def __init__(self) -> None:
        self.text = ""
        self._quote = ""

    def goes_on_after(self, line: str) -> bool:
        """Reads a line; true where the command goes on in the next one."""
        at = 0
        line = line if self._quote else line.lstrip()
        while at < len(line):
            char = line[at]
            if not self._quote and (line[at : at + 2] == "  " or line[at : at + 2] == " #"):
                break
            if not self._quote and char == "\\" and at + 1 == len(line):
                self.text = self.text.rstrip() + " "
                return True
            if char == "\\" and self._quote != "'":
                self.text += line[at : at + 2]
                at += 2
                continue
            if char == self._quote:
                self._quote = ""
            elif not self._quote and char in "'\"":
                self._quote = char
            self.text += char
            at += 1
        if self._quote:
            self.text += "\n"
            return True
        self.text = self.text.rstrip()
        return False


def spans_of(page: str, text: str) -> list[Command]:
    """Commands of `usher` in the sentences of a page."""
    hidden: set[int] = set()
    for block in blocks_of(text):
        hidden.update(range(block.line - 1, block.line + len(block.lines)))
    found = []
    for number, line in enumerate(text.splitlines(), 1):
        if number not in hidden:
            found += [Command(page, number, span) for span in re.findall(r"`(usher [^`]+)`", line)]
    return found
