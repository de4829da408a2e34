"""Checks of a command that do not run it: its program, subcommand and options exist."""

from __future__ import annotations

import functools
import itertools
import json
import os
import re
import shlex
import subprocess
from pathlib import Path

from pages import ROOT

#: The program that is tested; other programs of the same build are beside it.
USHER = Path(os.environ.get("USHER_PROGRAM", ROOT / "target/debug/usher")).absolute()


@functools.cache
def help_of(*command: str) -> str:
    """The help text of a command; empty where the program does not know the command."""
    done = subprocess.run([*command, "--help"], capture_output=True, text=True, cwd=ROOT, check=False)
    return done.stdout if done.returncode == 0 else ""


def subcommands(help_text: str) -> set[str]:
    listed = re.search(r"^Commands:\n((?: .*\n|\n)+?)(?=^\S|\Z)", help_text, re.MULTILINE)
    return set(re.findall(r"^  (\S+)", listed[1], re.MULTILINE)) if listed else set()


def fault_of(text: str) -> str:
    """The fault in a command's words; empty where there is none."""
    try:
        words = shlex.split(text)
    except ValueError as error:
        return str(error)
    while words and re.match(r"[A-Z_]+=", words[0]):
        words.pop(0)
    program, rest = words[0], words[1:]
    if program == "usher":
        return fault_of_usher(rest)
    if program == "cargo":
        return fault_of_cargo(rest)
    if program == "./x":
        return fault_of_x(rest)
    if program.startswith(("scripts/", "benches/")):
        path = ROOT / program
        if not (path.is_file() and os.access(path, os.X_OK)):
            return f"there is no program {program}"
        return missing_options(rest, help_of(str(path))) if program.startswith("benches/") else ""
    return ""


def fault_of_usher(words: list[str]) -> str:
    path: list[str] = []
    for word in words:
        known = subcommands(help_of(str(USHER), *path))
        if not known or word.startswith("-") or not re.fullmatch(r"[a-z0-9-]+", word):
            break
        if word not in known:
            return f"usher {' '.join(path)} has no command {word}"
        path.append(word)
    return missing_options(words[len(path) :], help_of(str(USHER), *path))


def missing_options(words: list[str], help_text: str) -> str:
    options = [word.split("=")[0] for word in words if re.match(r"--[a-z]", word)]
    unknown = [option for option in options if option != "--help" and not re.search(rf"(?<!\S){option}(?![\w-])", help_text)]
    return f"there is no option {', '.join(unknown)}" if unknown else ""


def output_of(*command: str) -> str:
    return subprocess.run(command, capture_output=True, text=True, cwd=ROOT, check=True).stdout


@functools.cache
def cargo_targets() -> dict[str, set[str]]:
    """Names of packages, programs, tests and examples of the workspace."""
    metadata = json.loads(output_of("cargo", "metadata", "--no-deps", "--offline", "--format-version", "1"))
    found: dict[str, set[str]] = {"package": set(), "bin": set(), "test": set(), "example": set()}
    for package in metadata["packages"]:
        found["package"].add(package["name"])
        for target in package["targets"]:
            found.get(target["kind"][0], set()).add(target["name"])
    return found


def fault_of_cargo(words: list[str]) -> str:
    for option, name in itertools.pairwise(words):
        kind = "package" if option == "-p" else option.removeprefix("--")
        if option.startswith("-") and kind in cargo_targets() and name not in cargo_targets()[kind]:
            return f"there is no {kind} {name}"
    return ""


def fault_of_x(words: list[str]) -> str:
    known = re.findall(r"^  ([a-z]+)", output_of("./x", "help"), re.MULTILINE)
    if words and words[0] not in known:
        return f"./x has no command {words[0]}"
    if words[:1] == ["test"]:
        unknown = set(words[1:]) - {"list", *output_of("./x", "test", "list").split()}
        return f"./x test has no step {', '.join(unknown)}" if unknown else ""
    return ""
