"""The task of a cluster's worker."""

from __future__ import annotations

import functools
import pickle

from usher import _native
from usher._study import Plan, restored, same_build


@functools.lru_cache(maxsize=4)
def _plan(made_by: str, payload: bytes) -> Plan:
    called, state = pickle.loads(payload)
    return restored(made_by, called, state)


def work(made_by: str, payload: bytes, point: int, replication: int) -> _native.Record:
    """Computes a replication of a plan from a driver with this build. Raises `VersionError` if this worker has another build.

    The payload is the driver's pickle of the plan's study and settings: only texts and numbers.
    """
    same_build(made_by)
    return _plan(made_by, payload)._native.replicate(point, replication)
