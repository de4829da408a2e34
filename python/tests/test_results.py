"""Whole runs and what they give."""

from __future__ import annotations

import os
import pickle
import signal
import threading
import time
import warnings
from pathlib import Path
from typing import Any

import duckdb
import pandas
import polars
import pyarrow
import pytest

import usher
from samples import SMALL


def test_a_run_gives_rows_summary_figures_and_a_report(results: usher.Results, tmp_path: Path) -> None:
    assert results.complete
    assert results.folder is None
    assert [ran.key for ran in results.points] == ["loss=0 %", "loss=5 %", "loss=10 %"]
    summary = {(line["loss"], line["metric"]): line for line in results.summary()}
    means = [summary[loss, "delay.mean"]["mean"] for loss in ("0 %", "5 %", "10 %")]
    # A round of 10 ms each way at least, and more with each loss.
    assert 0.02 <= means[0] < means[1] < means[2]
    figure = results.figure("delay")
    assert figure._repr_svg_().startswith("<svg")
    assert figure.svg.endswith(figure._repr_svg_())
    assert figure.csv.startswith("series,x,mean,low,high,n")
    assert results.figures == ["delay"]
    page = results.report(tmp_path / "report.html").read_text(encoding="utf-8")
    assert "usher.run_point(usher.read(text, " in page
    with pytest.raises(usher.StudyError, match='no figure "dely"; the figures are delay'):
        results.figure("dely")


def test_data_frames_take_the_tables_as_they_are(results: usher.Results) -> None:
    rows = list(results.rows)
    assert len(results) == len(rows) > 0
    table = pyarrow.table(results)
    assert table.to_pylist() == rows
    assert table.column_names == ["study", "loss", "loss [%]", "replication", "metric", "unit", "value"]
    assert [str(kind) for kind in table.schema.types] == ["string", "string", "double", "uint32", "string", "string", "double"]
    frame = polars.DataFrame(results)
    assert frame.to_dicts() == rows
    assert len(pandas.DataFrame.from_arrow(results)) == len(rows)
    said = results.summary()
    counted = duckdb.sql("select count(*), max(mean) from said where metric = 'delay.mean'").fetchall()
    assert counted == [(3, max(line["mean"] for line in said if line["metric"] == "delay.mean"))]


def test_a_folder_has_what_the_program_writes_and_goes_on(small: usher.Study, results: usher.Results, tmp_path: Path) -> None:
    folder = tmp_path / "run"
    kept = small.run(jobs=1, out=folder, progress=False)
    assert kept.folder == folder
    names = {"journal", "results.csv", "results.parquet", "summary.csv", "summary.parquet", "manifest.json", "report.html"}
    assert names <= {file.name for file in folder.iterdir()}
    assert polars.read_parquet(folder / "results.parquet").to_dicts() == list(results.rows)
    again = small.run(out=folder, progress=False)
    assert again.resumed == sum(ran.replications for ran in again.points)
    assert list(again.rows) == list(results.rows)
    with pytest.raises(
        usher.FolderError, match=r"another plan .* start it anew with force=True, or choose another folder with out="
    ):
        small.run(seed=2, out=folder, progress=False)
    assert usher.claims(folder) == []


def test_progress_is_told_to_a_function(small: usher.Study) -> None:
    told: list[tuple[int, int, int]] = []
    small.run(progress=lambda *come: told.append(come))
    done, expected, points = told[-1]
    assert (done, points) == (expected, 3)
    assert told == sorted(told)


def test_what_a_progress_function_raises_ends_the_run(small: usher.Study) -> None:
    def wrong(done: int, expected: int, points: int) -> None:
        raise RuntimeError(f"{done} of {expected}, {points}")

    with pytest.raises(RuntimeError):
        small.run(progress=wrong)


def test_other_threads_go_on_meanwhile(small: usher.Study) -> None:
    ticks = 0
    ended = threading.Event()

    def tick() -> None:
        nonlocal ticks
        while not ended.is_set():
            ticks += 1
            time.sleep(0.001)

    thread = threading.Thread(target=tick)
    thread.start()
    begun = time.monotonic()
    small.run(jobs=1, replications=20, progress=False)
    took = time.monotonic() - begun
    ended.set()
    thread.join()
    assert ticks > 50 * took


def test_ctrl_c_ends_a_run_with_what_it_finished(small: usher.Study, tmp_path: Path) -> None:
    long = small.set(loss=list(range(1, 60)))
    begun = threading.Event()

    def interrupt() -> None:
        begun.wait()
        os.kill(os.getpid(), signal.SIGINT)

    threading.Thread(target=interrupt).start()
    with pytest.warns(usher.PartialResults, match="interrupted; repeat the call with this folder to continue"):
        part = long.run(replications=60, out=tmp_path / "part", progress=lambda done, *_: begun.set() if done > 5 else None)
    assert not part.complete
    assert len(polars.DataFrame(part)) > 0
    assert "Partial results" in part.report(tmp_path / "part.html").read_text(encoding="utf-8")


EACH = """
[[figures]]
name = "each"
title = "Each dialogue"
kind = "cdf"
y = "delay.mean"
series = ["loss"]
"""


def interrupted_while_drawing(folder: Path, seconds: int) -> tuple[usher.Results, list[str]]:
    """A run whose figure of single dialogues is interrupted, where that takes long enough: its results, and what was warned of."""
    text = SMALL.replace('duration = "5 s"', f'duration = "{seconds} s"')
    raised: list[int] = []

    def interrupt(done: int, expected: int, _: int) -> None:
        # All is in the journal by then; what takes time is the dialogues' own run.
        if done == expected and not raised:
            raised.append(done)
            raise KeyboardInterrupt

    def run(text: str, **more: Any) -> usher.Results:
        return usher.read(text, "small").set(loss=0).run(replications=1, out=folder, **more)

    assert run(text, progress=False).complete
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        part = run(text + EACH, progress=interrupt)
    return part, [str(one.message) for one in said if issubclass(one.category, usher.PartialResults)]


def test_ctrl_c_while_single_dialogues_are_drawn_is_said(tmp_path: Path) -> None:
    # How long drawing takes is the machine's and the build's: where it was done before the interrupt came, it gets more to do.
    for seconds in (5_000, 20_000, 80_000, 320_000):
        part, said = interrupted_while_drawing(tmp_path / str(seconds), seconds)
        if said:
            break
    assert len(said) == 1
    assert "are partial: interrupted before the figures of single dialogues were complete; repeat" in said[0]
    assert part.complete
    assert "These results are partial: the rows are complete" in part.report(tmp_path / "part.html").read_text(encoding="utf-8")


def test_results_that_cannot_be_pickled_say_why(results: usher.Results) -> None:
    with pytest.raises(TypeError, match=r"results of small cannot be pickled: .* pickle the plan"):
        pickle.dumps(results)


def test_statements_are_judged(tmp_path: Path) -> None:
    results = usher.study("mih-udp").run(quick=True, replications=2, out=tmp_path / "run", progress=False)
    assert results.claims
    assert usher.claims(results) == results.claims == usher.claims(tmp_path / "run")
    assert sum(results.claims.counts().values()) == len(results.claims)
    with pytest.raises(usher.UsherError, match="is not the folder of a run"):
        usher.claims(tmp_path / "nowhere")


def test_formulas_and_vectors_hold() -> None:
    checks = usher.verify("radius/")
    assert checks
    assert all(check.holds for check in checks)
    with pytest.raises(usher.StudyError, match='no check has "radios" in its group or name'):
        usher.verify("radios")
