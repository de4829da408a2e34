"""Sweeps on a cluster of Ray or Dask.

The driver is here. It has the stopping rule and the journal, as for a run on this machine. It requests one replication at a time
for each core of the cluster. The cluster's engine places the tasks, and repeats them after the death of a worker.
"""

from __future__ import annotations

import os
import pickle
import signal
import threading
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Literal, Protocol

from usher import _native
from usher._arguments import Number, some
from usher._errors import BackendError, UsherError, VersionError
from usher._results import Results
from usher._run import JOBS, Progress, run
from usher._study import Plan, build
from usher._work import work

Backend = Literal["local", "ray", "dask"]
"""The engine that computes replications."""

LOOK = 0.5
"""Seconds between two checks for the end of the sweep."""

TRIES = 4
"""Number of tries of a replication if its workers die."""


SELDOM = {
    "distributed.worker.profile.enabled": False,
    "distributed.admin.tick.interval": "1s",
    "distributed.admin.tick.cycle": "10s",
    "distributed.admin.system-monitor.interval": "10s",
}
"""Settings of Dask for a cluster on this machine. Its profiler does not see replications and takes 6 % of a core in each process.
Its monitors sample fifty times a second for a dashboard that is off."""


class Cluster(Protocol):
    """A cluster that computes replications."""

    def cores(self) -> int:
        """Returns the number of replications that it computes at once."""
        ...

    def compute(self, point: int, replication: int, stopped: Callable[[], bool]) -> _native.Record:
        """Computes a replication of the point with this index. Many threads call it. Raises an exception when `stopped` is true."""
        ...

    def close(self) -> None:
        """Releases the resources of this sweep."""
        ...


def _engine(name: str, package: str) -> Any:
    """Returns the package of an engine. Raises `BackendError` with a remedy if it is missing."""
    try:
        return __import__(package)
    except ImportError as missing:
        raise BackendError(f'backend="{name}" needs the package {package}: pip install "usher[{name}]"') from missing


@contextmanager
def _own_termination() -> Iterator[None]:
    """Keeps the handler of SIGTERM, which Ray replaces in every program that imports it."""
    # Only the main thread may say.
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.getsignal(signal.SIGTERM)
    try:
        yield
    finally:
        # None: it was set by other than Python.
        if before is not None:
            signal.signal(signal.SIGTERM, before)


@contextmanager
def _held(late: list[int]) -> Iterator[None]:
    """Records signals instead of raising exceptions, which would leave a cluster half closed."""
    # Only the main thread hears any.
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {each: signal.getsignal(each) for each in (signal.SIGINT, signal.SIGTERM)}
    held = {each: handler for each, handler in before.items() if callable(handler)}
    for each in held:
        signal.signal(each, lambda number, _: late.append(number))
    try:
        yield
    finally:
        for each, handler in held.items():
            signal.signal(each, handler)


class Ray:
    """A cluster of Ray."""

    def __init__(self, payload: bytes, address: str | None) -> None:
        with _own_termination():
            self._ray = _engine("ray", "ray")
            self._own = not self._ray.is_initialized()
            if self._own:
                try:
                    self._ray.init(address=address, log_to_driver=False, configure_logging=False, include_dashboard=False)
                except ConnectionError as refused:
                    raise BackendError(f"cannot reach a cluster of Ray at {address or 'this machine'}: {refused}") from refused
        # Of a task whose worker or node dies Ray begins another try.
        self._task = self._ray.remote(max_retries=TRIES - 1)(work)
        self._arguments = (build(), payload)

    def cores(self) -> int:
        return int(self._ray.cluster_resources().get("CPU", 1))

    def compute(self, point: int, replication: int, stopped: Callable[[], bool]) -> _native.Record:
        errors = self._ray.exceptions
        task = self._task.remote(*self._arguments, point, replication)
        while not self._ray.wait([task], timeout=LOOK)[0]:
            if stopped():
                self._ray.cancel(task, force=True)
                raise UsherError("the sweep was ended")
        try:
            record: _native.Record = self._ray.get(task)
        except (errors.WorkerCrashedError, errors.NodeDiedError, errors.OutOfMemoryError) as died:
            raise UsherError(f"{TRIES} workers died while computing it: {died}") from died
        except errors.RayTaskError as failed:
            if isinstance(failed.cause, (UsherError, ImportError)):
                raise failed.cause from failed
            raise
        return record

    def close(self) -> None:
        if self._own:
            self._ray.shutdown()


class Dask:
    """A cluster of Dask."""

    def __init__(self, payload: bytes, address: str | None) -> None:
        self._distributed = _engine("dask", "distributed")
        try:
            if address is None:
                # Replications let go of Python's lock, but a worker that dies takes all its threads' with it.
                with _engine("dask", "dask").config.set(SELDOM):
                    self._client = self._distributed.Client(threads_per_worker=1, dashboard_address=None)
            else:
                self._client = self._distributed.Client(address, set_as_default=False)
        except OSError as refused:
            raise BackendError(f"cannot reach a scheduler of Dask at {address}: {refused}") from refused
        self._own = address is None
        self._arguments = (build(), payload)
        self._name = f"usher-{uuid.uuid4().hex}"

    def cores(self) -> int:
        self._client.wait_for_workers(1)
        return sum(self._client.nthreads().values())

    def compute(self, point: int, replication: int, stopped: Callable[[], bool]) -> _native.Record:
        name = f"{self._name}-{point}-{replication}"
        task = self._client.submit(work, *self._arguments, point, replication, key=name, pure=False)
        # A result that is waited for with a timeout may be cut off while it is fetched, which distributed 2026.8 does not survive.
        done = threading.Event()
        task.add_done_callback(lambda _: done.set())
        while not (done.wait(LOOK) or task.done()):
            if stopped():
                task.cancel()
                raise UsherError("the sweep was ended")
        try:
            record: _native.Record = task.result()
            return record
        except self._distributed.scheduler.KilledWorker as died:
            raise UsherError(f"{TRIES} workers died while computing it: {died}") from died

    def close(self) -> None:
        cluster = self._client.cluster
        self._client.close()
        if self._own and cluster is not None:
            cluster.close()


CLUSTERS: dict[str, Callable[[bytes, str | None], Cluster]] = {"ray": Ray, "dask": Dask}


def sweep(
    plan: Plan,
    backend: Backend = "local",
    *,
    address: str | None = None,
    jobs: Number | None = None,
    out: str | os.PathLike[str] | None = None,
    force: bool = False,
    progress: Progress = None,
) -> Results:
    """Runs a plan on a cluster. The rows are the same bytes as those of `Plan.run`, with any number of workers.

    `backend` is `"ray"` or `"dask"`; `"local"` needs neither. `address` is the cluster's, such as `"ray://head:10001"` or `"auto"`
    for Ray and `"tcp://head:8786"` for Dask. Without it, a new cluster starts on this machine. `jobs` is the number of replications
    to request at once; the default is one for each core of the cluster, and one that waits. The other arguments are those of
    `Plan.run`: with `out`, a sweep continues from the folder's journal after its driver died.

    Workers need the same wheel of usher. If a worker dies, its replications are computed again. Raises `BackendError` if the engine
    or its cluster is missing, `VersionError` if a worker has another build.
    """
    results, late = swept(plan, backend, address=address, jobs=jobs, out=out, force=force, progress=progress)
    for each in late:
        signal.raise_signal(each)
    return results


def swept(
    plan: Plan,
    backend: Backend,
    *,
    address: str | None,
    jobs: Number | None,
    out: str | os.PathLike[str] | None,
    force: bool,
    progress: Progress,
) -> tuple[Results, list[int]]:
    """The same, and the signals that came after the sweep, while its cluster was closing."""
    late: list[int] = []
    if backend == "local":
        return run(plan, jobs=jobs, out=out, force=force, progress=progress), late
    if backend not in CLUSTERS:
        raise BackendError(f'there is no backend "{backend}"; choose one of local, {", ".join(CLUSTERS)}')
    jobs = some("jobs", jobs, 1, JOBS)
    _, called, state = plan.__reduce__()[1]
    cluster = CLUSTERS[backend](pickle.dumps((called, state)), address)
    stop = _native.Stop()
    fatal: list[Exception] = []

    def replicate(point: int, replication: int) -> _native.Record:
        try:
            return cluster.compute(point, replication, stop.is_set)
        except Exception as error:
            # What another replication may survive is this one's failure alone.
            if type(error) is not UsherError:
                fatal.append(error)
                stop.set()
            raise

    try:
        at_once = jobs or cluster.cores() + 1
        results = run(plan, jobs=at_once, out=out, force=force, progress=progress, stop=stop, replicate=replicate, quiet=fatal)
    finally:
        with _held(late):
            cluster.close()
    for error in fatal[:1]:
        raise _told(error, backend) from error
    return results, late


def _told(error: Exception, backend: str) -> Exception:
    if isinstance(error, VersionError):
        return error
    if isinstance(error, ImportError):
        return BackendError(
            f"a worker of {backend} has no usher, or another version ({error}): install the same wheel on every worker"
        )
    return BackendError(f"{backend} failed: {type(error).__name__}: {error}")
