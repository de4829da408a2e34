"""How many servers a deployment needs."""

from __future__ import annotations

from decimal import Decimal
from pathlib import Path

import numpy
import pytest

import usher
from usher._sizing import _toml

PROFILE = Path(__file__).parents[2] / "studies/founding/profiles/ike-gateway-2026-11.toml"


def test_a_plan_says_how_many_servers_there_have_to_be(tmp_path: Path) -> None:
    told: list[tuple[int, int, int]] = []
    demand = {"users": numpy.int64(100_000), "within": "1 min"}
    sized = usher.plan(
        profile=PROFILE,
        any_version=True,
        mix={"ike-psk": numpy.float64(1)},
        demand=demand,
        target="99 % within 200 ms",
        quick=True,
        logins=50,
        progress=lambda *come: told.append(come),
    )
    assert any(said.startswith("The profile is of usher 0.2.0. ") for said in sized.answer["assumptions"])
    assert sized.answer["target"] == {"share": 0.99, "within_s": 0.2}
    assert sized.answer["demand_per_s"] == pytest.approx(100_000 / 60)
    assert sized.servers is not None
    assert sized.capacity is not None
    assert sized.servers * sized.capacity >= sized.answer["demand_per_s"]
    assert told
    assert "<html" in sized.report(tmp_path / "plan.html").read_text(encoding="utf-8")
    # The same in a file, whose folder the profile is named from.
    (tmp_path / "profile.toml").write_text(PROFILE.read_text(encoding="utf-8"), encoding="utf-8")
    file = tmp_path / "plan.toml"
    file.write_text(
        'profile = "profile.toml"\nany_version = true\nmix = { ike-psk = 1 }\ndemand = { users = 100000, within = "1 min" }\n'
        'target = { share = "99 %", within = "200 ms" }\n',
        encoding="utf-8",
    )
    assert usher.plan(file, quick=True, logins=50, progress=False).answer == sized.answer


def test_numbers_of_other_packages_are_those_of_a_plan() -> None:
    given = {"a": numpy.float64(1), "b": [numpy.float32(0.5), Decimal("0.10"), True], "c": numpy.int8(3), "d": "1 %"}
    assert _toml(given) == '{ "a" = 1.0, "b" = [0.5, 0.10, true], "c" = 3, "d" = "1 %" }'
    with pytest.raises(usher.StudyError, match="a number of 16610 bits: a plan takes"):
        usher.plan(profile=PROFILE, mix={"ike-psk": 10**5000})


def test_what_a_plan_lacks_is_said() -> None:
    with pytest.raises(usher.StudyError, match="give either a plan file or settings"):
        usher.plan()
    with pytest.raises(usher.StudyError, match=r'the plan:1:1: .*did you mean "profile"'):
        usher.plan(profil="profile.toml")
    with pytest.raises(usher.StudyError, match="the methods of the logins are missing"):
        usher.plan(profile=PROFILE, demand={"rate": "10 /s"})
