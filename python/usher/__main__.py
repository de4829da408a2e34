"""`python3 -m usher sweep`: the program behind `usher study run --backend`."""

from __future__ import annotations

import argparse
import json
import signal
import sys
import warnings
from types import FrameType

from usher import FolderError, PartialResults, StudyError, UsherError, __version__, study
from usher._study import build
from usher._sweep import CLUSTERS, swept

USAGE = 2
INTERRUPTED = 130


def _arguments() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python3 -m usher", description="Runs studies on a cluster.")
    parser.add_argument("--version", action="version", version=__version__)
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    one = commands.add_parser("sweep", help="run a study on a cluster", description="Runs a study on a cluster of Ray or Dask.")
    one.add_argument("name", help="a study's name, or its file")
    one.add_argument("--backend", required=True, choices=["local", *CLUSTERS], help="the engine that computes the replications")
    one.add_argument("--address", help="the cluster's address [default: a new cluster on this machine]")
    mode = one.add_mutually_exclusive_group()
    mode.add_argument("--quick", action="store_true", help="for a first look: fewer values and shorter runs")
    mode.add_argument("--full", action="store_true", help="for publication: more values and longer runs")
    mode.add_argument("--sensitivity", action="store_true", help="vary each open choice of the study in turn")
    one.add_argument("--set", action="append", default=[], metavar="AXIS=VALUES", help="values for an axis or setting; repeatable")
    one.add_argument("--seed", type=int, help="the seed of all random streams [default: the study's]")
    one.add_argument("--replications", type=int, metavar="N", help="run exactly N replications of every point")
    one.add_argument("--jobs", type=int, metavar="N", help="replications to run at once")
    one.add_argument("--out", metavar="DIR", help="the folder for the results [default: out/NAME-MODE]")
    one.add_argument("--force", action="store_true", help="remove the earlier run in the folder, and start anew")
    one.add_argument("--plain", action="store_true", help="show no progress")
    one.add_argument("--json", action="store_true", help="print JSON, for programs")
    return parser


class Interrupt:
    """Ends the sweep at the first signal. Later signals change nothing, so that the cluster ends, too."""

    def __init__(self) -> None:
        self._heard = False

    def __call__(self, _: int, __: FrameType | None) -> None:
        # It may be set again while what it has raised is on its way: engines set handlers of their own, which are undone then.
        if not self._heard:
            self._heard = True
            raise KeyboardInterrupt


def _failed(code: int, why: str, for_programs: bool) -> int:
    """Reports why a sweep failed: as text, or as JSON like that of the program `usher`."""
    said = json.dumps({"error": {"exit_code": code, "message": why}}) if for_programs else f"usher: {why}"
    print(said, file=sys.stderr, flush=True)
    return code


def main(arguments: list[str] | None = None) -> int:
    """Runs a command and returns its exit code: 0 done, 1 failed, 2 wrong usage or a faulty study, 130 interrupted."""
    asked = _arguments().parse_args(arguments)
    try:
        return _sweep(asked)
    except (StudyError, FolderError) as wrong:
        return _failed(USAGE, str(wrong), asked.json)
    except UsherError as failed:
        return _failed(1, str(failed), asked.json)
    # Ray's own handler of SIGTERM, while Ray begins, raises SystemExit.
    except (KeyboardInterrupt, SystemExit):
        return _failed(INTERRUPTED, f"{asked.name}: interrupted", asked.json)


def _sweep(asked: argparse.Namespace) -> int:
    plan = (
        study(asked.name)
        .set(*asked.set)
        .plan(
            quick=asked.quick,
            full=asked.full,
            sensitivity=asked.sensitivity,
            seed=asked.seed,
            replications=asked.replications,
        )
    )
    folder = asked.out or f"out/{plan.study}-{plan.mode}"
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", PartialResults)
        # A signal that comes when the sweep is done, while its cluster is let go of, has nothing left to end.
        results, _ = swept(
            plan,
            asked.backend,
            address=asked.address,
            jobs=asked.jobs,
            out=folder,
            force=asked.force,
            progress=False if asked.plain or asked.json else None,
        )
    for said in results.warnings + results.answers:
        print(said, file=sys.stderr)
    replications = sum(ran.replications for ran in results.points)
    report = f"{folder}/report.html"
    if asked.json:
        told = {"study": plan.study, "folder": folder, "report": report, "points": len(results.points)}
        told |= {"replications": replications, "complete": results.complete, "backend": asked.backend, "build": build()}
        print(json.dumps([told]))
    else:
        print(f"{plan.study}: {len(results.points)} points, {replications} replications by {asked.backend}\nreport: {report}")
    if results.complete and not caught:
        return 0
    why = "\n".join(str(warning.message) for warning in caught)
    return _failed(INTERRUPTED if "are partial: interrupted" in why else 1, why, asked.json)


if __name__ == "__main__":
    interrupt = Interrupt()
    for each in (signal.SIGINT, signal.SIGTERM):
        signal.signal(each, interrupt)
    sys.exit(main())
