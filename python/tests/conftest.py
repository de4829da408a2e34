"""A study that is small enough to be run again and again."""

from __future__ import annotations

import pytest

import usher
from samples import SMALL


@pytest.fixture(scope="session")
def small() -> usher.Study:
    return usher.read(SMALL, "small")


@pytest.fixture(scope="session")
def results(small: usher.Study) -> usher.Results:
    return small.run(progress=False)
