"""Studies, plans, and single replications."""

from __future__ import annotations

import pickle
import subprocess
import sys
from collections.abc import Callable
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy
import pytest

import usher
from samples import SMALL
from usher import _study


def test_the_founding_studies_open_by_their_names() -> None:
    names = usher.studies()
    assert "aaa-hol" in names
    study = usher.study("aaa-hol")
    assert study.name == "aaa-hol"
    assert study.question.endswith("?")


def test_a_plan_says_its_points_replications_and_seeds(small: usher.Study) -> None:
    plan = small.plan()
    assert [point.key for point in plan.points] == ["loss=0 %", "loss=5 %", "loss=10 %"]
    assert plan.points[1] == usher.Point(1, "loss=5 %", {"loss": "5 %"}, {"loss": 5.0})
    assert (len(plan), plan.replications) == (3, (9, 18))
    # Common random numbers: what differs between two points is due to what they vary.
    assert plan.seed(0, 1) == plan.seed("loss=10 %", 1) != plan.seed(0, 2)
    assert len(small.plan(quick=True)) == 2
    assert small.plan(replications=4).replications == (12, 12)
    assert small.plan(seed=7).seed(0) != plan.seed(0)


def test_set_gives_another_study(small: usher.Study) -> None:
    other = small.set(loss=["1 %", "2 %"]).set({"run.duration": "2 s"}, "run.warmup=1 s")
    assert other.changes == ("loss=1 %,2 %", "run.duration=2 s", "run.warmup=1 s")
    assert [point.settings["loss"] for point in other.plan().points] == ["1 %", "2 %"]
    assert small.changes == ()
    # A number without a unit takes the axis's.
    assert small.set(loss=3).plan().points[0].key == "loss=3 %"


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ("los=1 %", 'there is no axis "los"; did you mean "loss"?'),
        ("links.wire.loss=1 %", 'the axis "loss" varies it'),
        ("run.duration", "write name=value"),
    ],
)
def test_what_cannot_be_set_is_said(small: usher.Study, change: str, says: str) -> None:
    with pytest.raises(usher.StudyError) as raised:
        small.set(change).plan()
    assert says in str(raised.value)


def test_faults_have_file_line_and_remedy(tmp_path: Path) -> None:
    file = tmp_path / "wrong.toml"
    file.write_text(SMALL.replace('delay = "10 ms"', 'delai = "10 ms"').replace('"100 B"', '"100 X"'), encoding="utf-8")
    with pytest.raises(usher.StudyError) as raised:
        usher.study(file)
    faults = raised.value.faults
    assert len(faults) > 1
    assert raised.value.file == str(file)
    assert SMALL.splitlines()[raised.value.line - 1] == 'delay = "10 ms"'
    assert 'did you mean "delay"' in faults[0].message
    assert str(faults[0]).startswith(f"{file}:{faults[0].line}:{faults[0].column}: ")
    assert pickle.loads(pickle.dumps(raised.value)).faults == faults
    with pytest.raises(usher.StudyError, match='neither a study\'s name nor a file; did you mean "aaa-hol"'):
        usher.study("aaa-hul")


def test_a_replication_is_the_same_wherever_it_runs(small: usher.Study, results: usher.Results) -> None:
    plan = small.plan()
    alone = usher.run_point(plan, "loss=5 %", 1)
    rows = [row for row in results.rows if row["loss"] == "5 %" and row["replication"] == 1]
    assert alone == {row["metric"]: row["value"] for row in rows}
    again = pickle.loads(pickle.dumps(plan))
    assert again.hash == plan.hash
    assert usher.run_point(again, plan.points[1], 1) == alone


def test_another_process_computes_what_this_one_does(small: usher.Study, tmp_path: Path) -> None:
    plan = small.plan()
    (tmp_path / "plan").write_bytes(pickle.dumps(plan))
    code = "import pickle, usher; print(usher.run_point(pickle.load(open('plan', 'rb')), 2, 0))"
    printed = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=True)
    assert printed.stdout.strip() == str(usher.run_point(plan, 2, 0))


def test_a_plan_of_another_build_is_refused(small: usher.Study, monkeypatch: pytest.MonkeyPatch) -> None:
    kept = pickle.dumps(small.plan())
    monkeypatch.setattr(_study, "build", lambda: "0.0.1 0123456789abcdef")
    with pytest.raises(usher.VersionError, match=r"usher 0\.2\.0 there, usher 0\.0\.1 here|there, 0\.0\.1 here"):
        pickle.loads(kept)


def test_a_point_that_is_not_there_is_said(small: usher.Study) -> None:
    plan = small.plan()
    with pytest.raises(usher.StudyError, match="no point has loss=7 %; values there are 0 %, 5 %, 10 %"):
        usher.run_point(plan, "loss=7 %")
    with pytest.raises(usher.StudyError, match="there is no point 3: the plan has 3 points, numbered from 0"):
        usher.run_point(plan, 3)


@pytest.mark.parametrize(
    ("value", "written"),
    [
        (numpy.int64(3), "3"),
        (numpy.uint8(3), "3"),
        (numpy.float64(0.5), "0.5"),
        (numpy.float32(0.5), "0.5"),
        (numpy.bool_(True), "true"),
        (numpy.str_("3 %"), "3 %"),
        (numpy.array(3), "3"),
        (numpy.arange(1, 4), "1,2,3"),
        ([numpy.int64(1), "2 %", 2.5], "1,2 %,2.5"),
        (Decimal("2.5"), "2.5"),
        (Decimal("0.1234567890123456789012345"), "0.1234567890123456789012345"),
        (Decimal("1E+3"), "1E+3"),
        (10**30, "1" + "0" * 30),
        (Fraction(1, 4), "0.25"),
        (False, "false"),
    ],
)
def test_numbers_of_other_packages_are_numbers(small: usher.Study, value: Any, written: str) -> None:
    assert small.set(loss=value).changes == (f"loss={written}",)
    assert small.set({"loss": value}).changes == (f"loss={written}",)


def test_numbers_of_other_packages_plan_and_run(small: usher.Study) -> None:
    plan = small.set(loss=numpy.linspace(0, 10, 3)).plan(seed=numpy.int64(7), replications=numpy.int32(1))
    assert [point.settings["loss"] for point in plan.points] == ["0 %", "5 %", "10 %"]
    assert [point.settings["loss"] for point in small.set(loss=Decimal("1E+1")).plan().points] == ["10 %"]
    assert plan.replications == (3, 3)
    one = usher.run_point(plan, numpy.int64(1), numpy.uint8(0))
    assert one == usher.run_point(plan, 1)
    assert plan.seed(numpy.int64(1), numpy.int64(2)) == plan.seed(1, 2)
    assert plan.run(jobs=numpy.int64(1), progress=False).complete


@pytest.mark.parametrize(
    ("asked", "says"),
    [
        (lambda s: s.set(loss=None), "loss=None: give a number, a text"),
        (lambda s: s.set(loss=b"1 %"), "loss=b'1 %': give a number, a text"),
        (lambda s: s.set(loss=[[1, 2], [3]]), r"loss=\[1, 2\]: give a number"),
        (lambda s: s.set(loss=numpy.zeros((2, 2))), r"loss=array\(.*: give a number"),
        (lambda s: s.set(5), '5: write "name=value", or give a mapping'),
        (lambda s: s.set(loss=[]), "write name=value"),
        (lambda s: s.set(loss=10**5000), "loss=a number of 16610 bits: give a number"),
        (lambda s: s.set(loss=[Fraction(10**400)]), r"loss=Fraction\(10+, 1\): give a number"),
        (lambda s: s.set(loss=Fraction(10**5000)), "loss=a Fraction: give a number"),
        (lambda s: s.set(loss=Decimal("sNaN")), r"loss=Decimal\('sNaN'\): give a number"),
        (lambda s: s.plan(seed=1 << 20000), "seed=a number of 20001 bits: give 18446744073709551615 or less"),
        (lambda s: s.plan(seed=-(1 << 20000)), "seed=a number of 20001 bits: give 0 or more"),
        (lambda s: s.plan(seed=Fraction(10**5000)), "seed=a Fraction: give a whole number"),
        (lambda s: s.plan(seed=-1), "seed=-1: give 0 or more"),
        (lambda s: s.plan(seed=1 << 64), "seed=18446744073709551616: give 18446744073709551615 or less"),
        (lambda s: s.plan(seed=1.0), "seed=1.0: give a whole number, 0 or more"),
        (lambda s: s.plan(seed="1"), "seed='1': give a whole number"),
        (lambda s: s.plan(seed=True), "seed=True: give a whole number"),
        (lambda s: s.plan(replications=0), "replications=0: give 1 or more"),
        (lambda s: s.plan(replications=-3), "replications=-3: give 1 or more"),
        (lambda s: s.plan(replications=1 << 32), "replications=4294967296: give 4294967295 or less"),
        (lambda s: s.run(jobs=0), "jobs=0: give 1 or more"),
        (lambda s: s.run(jobs=1 << 20), "jobs=1048576: give 65535 or less"),
        (lambda s: usher.sweep(s.plan(), jobs=-1), "jobs=-1: give 1 or more"),
        (lambda s: usher.sweep(s.plan(), "ray", jobs=0), "jobs=0: give 1 or more"),
        (lambda s: usher.sweep(s.plan(), "dask", jobs=-2), "jobs=-2: give 1 or more"),
        (lambda s: usher.run_point(s.plan(), -1), "point=-1: give 0 or more"),
        (lambda s: usher.run_point(s.plan(), numpy.int64(3)), "there is no point 3: the plan has 3 points, numbered from 0"),
        (lambda s: usher.run_point(s.plan(), 1 << 70), "point=1180591620717411303424: give"),
        (lambda s: usher.run_point(s.plan(), 1.5), "point=1.5: give a whole number"),  # type: ignore[arg-type]
        (lambda s: usher.run_point(s.plan(), 0, -1), "replication=-1: give 0 or more"),
        (lambda s: usher.run_point(s.plan(), 0, 1 << 32), "replication=4294967296: give 4294967295 or less"),
        (lambda s: s.plan().seed(0, -1), "replication=-1: give 0 or more"),
        (lambda s: usher.run_point(s.plan(), usher.Point(9, "", {}, {})), "there is no point 9"),
        (lambda _: usher.plan("no.toml", jobs=0), "jobs=0: give 1 or more"),
        (lambda _: usher.plan("no.toml", seed=-1), "seed=-1: give 0 or more"),
        (lambda _: usher.plan("no.toml", replications=0), "replications=0: give 1 or more"),
        (lambda _: usher.plan("no.toml", logins=-1), "logins=-1: give 1 or more"),
    ],
)
def test_a_number_that_cannot_be_is_said(small: usher.Study, asked: Callable[[Any], object], says: str) -> None:
    with pytest.raises(usher.StudyError, match=says):
        asked(small)
