"""Sweeps by a real cluster of two workers on loopback, Ray's and Dask's: workers and drivers that die, bytes compared."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import psutil
import pytest

import usher
from samples import SMALL
from usher import _sweep
from usher.__main__ import Interrupt, main

# What is computed matters less than how often: a tenth of the time, and as many replications.
SHORT = {"run.duration": "20 s"}

FILES = ["results.csv", "results.parquet", "summary.csv", "summary.parquet", "claims.json"]


class Started(NamedTuple):
    """A cluster of two workers."""

    backend: _sweep.Backend
    address: str
    workers: Callable[[], list[int]]
    """The processes that compute replications now."""


def ray_cluster() -> Iterator[Started]:
    import ray

    os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
    context = ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False, _node_ip_address="127.0.0.1")

    def workers() -> list[int]:
        return [child.pid for child in psutil.Process().children(recursive=True) if child.name().startswith("ray::work")]

    yield Started("ray", context.address_info["gcs_address"], workers)
    ray.shutdown()


def dask_cluster() -> Iterator[Started]:
    from distributed import Client, LocalCluster

    with (
        LocalCluster(n_workers=2, threads_per_worker=1, host="127.0.0.1", dashboard_address=None, silence_logs=50) as cluster,
        Client(cluster) as client,
    ):
        yield Started("dask", cluster.scheduler_address, lambda: list(client.run(os.getpid).values()))


@pytest.fixture(scope="module", params=[ray_cluster, dask_cluster], ids=["ray", "dask"])
def cluster(request: pytest.FixtureRequest) -> Iterator[Started]:
    yield from request.param()


@pytest.fixture(scope="module")
def local(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("local") / "run"
    usher.study("aaa-hol").set(SHORT).run(quick=True, out=folder, progress=False)
    return folder


def same(folder: Path, other: Path) -> None:
    for name in FILES:
        assert (folder / name).read_bytes() == (other / name).read_bytes(), name


def test_a_worker_that_dies_costs_no_row(cluster: Started, local: Path, tmp_path: Path) -> None:
    killed: list[int] = []

    def kill(done: int, expected: int, _: int) -> None:
        if done > expected // 4 and not killed:
            killed.extend(cluster.workers()[:1])
            os.kill(killed[0], signal.SIGKILL)

    plan = usher.study("aaa-hol").set(SHORT).plan(quick=True)
    swept = usher.sweep(plan, cluster.backend, address=cluster.address, out=tmp_path / "run", progress=kill)
    assert killed
    assert swept.complete
    assert not swept.failures
    same(tmp_path / "run", local)


def test_a_driver_that_dies_goes_on_from_its_journal(cluster: Started, tmp_path: Path) -> None:
    study = tmp_path / "small.toml"
    study.write_text(SMALL.replace('duration = "5 s"', 'duration = "60 s"'), encoding="utf-8")
    command = [sys.executable, "-m", "usher", "sweep", str(study), "--backend", cluster.backend, "--address", cluster.address]
    folder = tmp_path / "swept"
    command += ["--set", "loss=" + ",".join(map(str, range(30))), "--replications", "4", "--out", str(folder)]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as driver:
        while driver.poll() is None and finished(folder) < 10:
            time.sleep(0.02)
        driver.kill()
    assert 10 <= finished(folder) < 120
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert f"30 points, 120 replications by {cluster.backend}" in done.stdout
    again = usher.study(study).set(loss=range(30)).run(replications=4, out=tmp_path / "here", progress=False)
    assert again.complete
    same(folder, tmp_path / "here")


@pytest.mark.parametrize("backend", ["ray", "dask"])
@pytest.mark.parametrize("sent", [signal.SIGTERM, signal.SIGINT])
def test_a_driver_that_is_told_to_end_ends_its_cluster(backend: str, sent: signal.Signals, tmp_path: Path) -> None:
    study = tmp_path / "small.toml"
    study.write_text(SMALL.replace('duration = "5 s"', 'duration = "60 s"'), encoding="utf-8")
    folder = tmp_path / "swept"
    command = [sys.executable, "-m", "usher", "sweep", str(study), "--backend", backend, "--replications", "400"]
    command += ["--out", str(folder), "--jobs", "2", "--json"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as driver:
        while driver.poll() is None and finished(folder) < 3:
            time.sleep(0.05)
        begun = psutil.Process(driver.pid).children(recursive=True)
        driver.send_signal(sent)
        # A second one is what a terminal's Ctrl-C gives beside the program's own.
        driver.send_signal(signal.SIGTERM)
        _, said = driver.communicate()
    assert driver.returncode == 130, said
    error = json.loads(said.splitlines()[-1])["error"]
    assert error["exit_code"] == 130
    assert "are partial: interrupted" in error["message"]
    assert begun
    _, left = psutil.wait_procs(begun, timeout=30)
    assert not left
    assert 3 <= finished(folder) < 1200


class Late:
    """Computes here. As it is let go of, it hears this signal."""

    def __init__(self, plan: usher.Plan, signals: list[signal.Signals]) -> None:
        self._plan = plan
        self._signals = signals
        self.closed = False

    def cores(self) -> int:
        return 1

    def compute(self, point: int, replication: int, _: Callable[[], bool]) -> Any:
        return self._plan._native.replicate(point, replication)

    def close(self) -> None:
        for each in self._signals:
            signal.raise_signal(each)
        self.closed = True


@pytest.fixture
def handlers() -> Iterator[None]:
    before = {each: signal.getsignal(each) for each in (signal.SIGINT, signal.SIGTERM)}
    yield
    for each, handler in before.items():
        signal.signal(each, handler)


@pytest.mark.usefixtures("handlers")
def test_a_cluster_is_let_go_of_whatever_signals_come(
    small: usher.Study, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    late = Late(small.plan(replications=1), [signal.SIGINT])
    monkeypatch.setitem(_sweep.CLUSTERS, "ray", lambda *_: late)
    with pytest.raises(KeyboardInterrupt):
        usher.sweep(small.plan(replications=1), "ray", progress=False)
    assert late.closed
    # The program's sweep is done by then.
    study = tmp_path / "small.toml"
    study.write_text(SMALL, encoding="utf-8")
    late._signals = [signal.SIGTERM, signal.SIGINT]
    late.closed = False
    for each in late._signals:
        signal.signal(each, Interrupt())
    assert main(["sweep", str(study), "--backend", "ray", "--replications", "1", "--out", str(tmp_path / "o"), "--plain"]) == 0
    assert late.closed
    assert "3 points, 3 replications by ray" in capsys.readouterr().out


@pytest.mark.usefixtures("handlers")
def test_a_second_signal_changes_nothing_whoever_sets_handlers() -> None:
    interrupt = Interrupt()
    signal.signal(signal.SIGTERM, interrupt)
    with pytest.raises(KeyboardInterrupt), _sweep._own_termination():
        signal.raise_signal(signal.SIGTERM)
    assert signal.getsignal(signal.SIGTERM) is interrupt
    signal.raise_signal(signal.SIGTERM)


def test_what_ray_ends_the_program_by_is_an_interrupt(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    def begins(*_: object) -> None:
        sys.exit(signal.SIGTERM)

    monkeypatch.setitem(_sweep.CLUSTERS, "ray", begins)
    assert main(["sweep", "aaa-hol", "--backend", "ray", "--json"]) == 130
    assert json.loads(capsys.readouterr().err)["error"] == {"exit_code": 130, "message": "aaa-hol: interrupted"}


def test_why_a_sweep_failed_is_told_to_programs(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    assert main(["sweep", "aaa-hol", "--backend", "ray", "--json"]) == 1
    error = json.loads(capsys.readouterr().err)["error"]
    assert error["exit_code"] == 1
    assert "needs the package ray" in error["message"]
    assert main(["sweep", "aaa-hol", "--backend", "local", "--seed", "-1", "--json"]) == 2
    assert json.loads(capsys.readouterr().err)["error"] == {"exit_code": 2, "message": "seed=-1: give 0 or more"}


def finished(folder: Path) -> int:
    journal = folder / "journal"
    return journal.read_text(encoding="utf-8").count("\n") - 1 if journal.exists() else 0


def test_a_worker_with_another_version_is_refused(cluster: Started, small: usher.Study, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_sweep, "build", lambda: "0.0.1 0123456789abcdef")
    with pytest.raises(usher.VersionError, match=r"usher 0\.0\.1 there, \S+ here: their rows may differ; install the same wheel"):
        usher.sweep(small.plan(), cluster.backend, address=cluster.address, progress=False)


def test_a_replication_that_cannot_be_run_is_this_ones_failure(
    cluster: Started, small: usher.Study, monkeypatch: pytest.MonkeyPatch
) -> None:
    compute: Any = _sweep.CLUSTERS[cluster.backend].compute  # type: ignore[attr-defined]

    def fails_once(self: object, point: int, replication: int, stopped: object) -> Any:
        if (point, replication) == (1, 1):
            raise usher.UsherError("out of luck")
        return compute(self, point, replication, stopped)

    monkeypatch.setattr(_sweep.CLUSTERS[cluster.backend], "compute", fails_once)
    with pytest.warns(usher.PartialResults, match="1 replications failed, the first at loss=5 %, replication 1"):
        swept = usher.sweep(small.plan(), cluster.backend, address=cluster.address, progress=False)
    assert swept.failures == [("loss=5 %", 1, "out of luck")]
    assert [ran.complete for ran in swept.points] == [True, False, True]


def test_a_journal_of_another_plan_is_refused(cluster: Started, small: usher.Study, tmp_path: Path) -> None:
    small.run(replications=1, out=tmp_path / "run", progress=False)
    with pytest.raises(usher.FolderError, match="holds a run of another plan"):
        usher.sweep(small.plan(), cluster.backend, address=cluster.address, out=tmp_path / "run", progress=False)


def test_a_backend_that_is_not_there_is_said(
    small: usher.Study, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(usher.BackendError, match='no backend "spark"; choose one of local, ray, dask'):
        usher.sweep(small.plan(), "spark")  # type: ignore[arg-type]
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(usher.BackendError, match=r'pip install "usher\[ray\]"'):
        usher.sweep(small.plan(), "ray")
    assert main(["sweep", "aaa-hol", "--backend", "ray"]) == 1
    assert "needs the package ray" in capsys.readouterr().err
    assert main(["sweep", "aaa-hul", "--backend", "dask"]) == 2
    assert 'did you mean "aaa-hol"' in capsys.readouterr().err
