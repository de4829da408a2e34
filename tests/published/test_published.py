"""Nothing published is broken: each command of a page runs, or has a row that says why not; each bench beside others runs."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

import pytest

from pages import PAGES, ROOT, CodeBlock, Command, blocks_of, commands_of_block, spans_of
from runs import Run, bench_names, page_commands, run_named
from syntax import fault_of
from treatments import COMMON, TABLE, read_tables, treatment_of

#: How many pages and benches run at a time: most of them wait for timers and servers much of the time.
AT_A_TIME = int(os.environ.get("PUBLISHED_AT_A_TIME", "3"))


@pytest.fixture(scope="session")
def runs(request: pytest.FixtureRequest) -> Iterator[dict[str, Future[Run]]]:
    """Runs of the pages and benches that tests were chosen for, by their names. At the end it prints how long each took."""
    functions = [item for item in request.session.items if isinstance(item, pytest.Function) and hasattr(item, "callspec")]
    chosen = [str(function.callspec.params["name"]) for function in functions]
    with tempfile.TemporaryDirectory(prefix="published-") as scratch, ThreadPoolExecutor(AT_A_TIME) as pool:
        started = {name: pool.submit(run_named, name, Path(scratch)) for name in chosen}
        yield started
    with request.config.pluginmanager.getplugin("capturemanager").global_and_fixture_disabled():
        print()
        for name, run in started.items():
            print(f"{run.result().seconds:6.1f} s  {name}: {run.result().amount}")
            for part, seconds in run.result().slow.items():
                print(f"{seconds:12.1f} s  {part.splitlines()[0]}")


@pytest.mark.parametrize("name", [*bench_names(), *page_commands()])
def test_what_is_published_runs(name: str, runs: dict[str, Future[Run]]) -> None:
    faults = runs[name].result().faults
    if faults:
        pytest.fail("\n\n".join(faults), pytrace=False)


def test_each_row_of_the_table_is_needed() -> None:
    tables = read_tables()
    commands = [command for of_page in page_commands().values() for command in of_page]
    used = {id(treatment_of(tables, command)) for command in commands}
    faults = []
    for table in tables.values():
        texts = {command.text for command in commands if command.page == table.name}
        if not texts and table.name != COMMON:
            faults.append(f"{table.name}: there is no such page with commands")
        for row in table.commands:
            if id(row) not in used:
                faults.append(f"{table.name}: {row.text}: no command is so, or another row fits it better")
        for preparation in table.preparations:
            if preparation.before and preparation.before not in texts:
                faults.append(f"{table.name}: before {preparation.before}: there is no such command")
        reasons = [(row.text, row.reason) for row in table.commands] + [(row.run, row.reason) for row in table.preparations]
        faults += [f"{table.name}: {text}: no reason" for text, reason in reasons if not reason]
    assert not faults, f"{TABLE.name}:\n" + "\n".join(faults)


def test_commands_in_sentences_exist() -> None:
    spans = [span for page in PAGES for span in spans_of(str(page.relative_to(ROOT)), page.read_text(encoding="utf-8"))]
    faults = [f"{span}: {fault}" for span in spans if (fault := fault_of(span.text))]
    assert not faults, "\n".join(faults)


def texts(block: CodeBlock) -> list[str]:
    return [command.text for command in commands_of_block("page", block)]


def test_commands_are_told_from_what_stands_beside_them() -> None:
    described = ["usher a 'two  words'    what it does", "        and more of that", "usher b     # so", "# a comment"]
    described += ["usher c \\", "    --option  why"]
    assert texts(CodeBlock("sh", 1, described)) == ["usher a 'two  words'", "usher b", "usher c --option"]
    session = "output\n$ usher a \\\n    b\nmore output\n$ usher c"
    assert texts(CodeBlock("", 1, session.splitlines())) == ["usher a b", "usher c"]
    assert texts(CodeBlock("text", 1, session.splitlines())) == ["usher a b", "usher c"]
    assert texts(CodeBlock("text", 1, ["usher a"])) == []
    assert texts(CodeBlock("sh", 1, ["sh -c '", "    a", "    b'", "c"])) == ["sh -c '\n    a\n    b'", "c"]
    blocks = blocks_of("A page.\n\n    usher a\n    usher b\n\n```sh\nusher c\n```\n- a list\n    of one\n")
    assert [(block.line, block.lines) for block in blocks] == [(3, ["usher a", "usher b"]), (7, ["usher c"])]


def test_words_that_do_not_exist_are_found() -> None:
    assert fault_of("usher study run aaa --quick") == ""
    assert fault_of("usher study rum aaa") == "usher study has no command rum"
    assert fault_of("usher study run aaa --quickly") == "there is no option --quickly"
    assert fault_of("cargo test -p usher-nothing") == "there is no package usher-nothing"
    assert fault_of("./x tset") == "./x has no command tset"
    assert fault_of("scripts/nothing") == "there is no program scripts/nothing"
    assert str(Command("README.md", 7, "usher")) == "README.md:7: usher"
