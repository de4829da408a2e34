"""Shared parts of the benches in this folder: options, programs, namespaces, shares of a processor, and intervals."""

import argparse
import contextlib
import importlib.machinery
import importlib.util
import json
import math
import os
import pathlib
import shutil
import signal
import socket
import statistics
import subprocess
import sys
import time

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[1]
CHARON = "/usr/lib/ipsec/charon"
BUILD_USHER = "cargo build --release -p usher"
# Student's t for 95 %, both sides, by degrees of freedom from 1; with more the last value is a little too wide.
STUDENT_T = [12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179, 2.160, 2.145, 2.131,
             2.120, 2.110, 2.101, 2.093, 2.086, 2.080, 2.074, 2.069, 2.064, 2.060, 2.056, 2.052, 2.048, 2.045]
# Servers are in /usr/sbin, which is not on everybody's path.
os.environ["PATH"] += ":/usr/sbin:/sbin"


def load_bench(name):
    """Another bench of this folder, as a module."""
    loader = importlib.machinery.SourceFileLoader(f"peers_{name}", str(HERE / name))
    module = importlib.util.module_from_spec(importlib.util.spec_from_loader(loader.name, loader))
    loader.exec_module(module)
    return module


# -- Options and limits


class OptionParser(argparse.ArgumentParser):
    """The options that benches share: the cases and --json, --smoke, and the program that is measured."""

    def __init__(self, text, cases=(), what="case"):
        super().__init__(description=text, formatter_class=argparse.RawDescriptionHelpFormatter)
        self.known_cases, self.what, self.programs = list(cases), what, {}
        if cases:
            self.add_argument("cases", nargs="*", metavar=what.upper(), help=f"of {', '.join(cases)} [default: all]")
            self.add_argument("--json", action="store_true", help="an object a line")
        self.add_argument("--smoke", action="store_true",
                          help="run the whole path of each case with the smallest amounts, and judge no limit")

    def add_program(self, name="usher", built="usher", build=BUILD_USHER):
        """An option that names a program of ours; the file of the release build is the default."""
        self.add_argument(f"--{name}", metavar="PROGRAM", default=ROOT / "target" / "release" / built,
                          help=f"the program [default: target/release/{built}]")
        self.programs[name] = build

    def read(self, needed=(), as_root=False):
        """The command line. Exits where a case is unknown or a program is missing."""
        options = self.parse_args()
        if self.known_cases:
            unknown = [case for case in options.cases if case not in self.known_cases]
            if unknown:
                self.error(f"there is no {self.what} {', '.join(unknown)}; there are {', '.join(self.known_cases)}")
            options.cases = options.cases or self.known_cases
        if as_root and os.geteuid() != 0:
            sys.exit("this makes network namespaces, and so needs root")
        for name, build in self.programs.items():
            found = shutil.which(getattr(options, name))
            if not found:
                sys.exit(f"no program at {getattr(options, name)}; build it first: {build}")
            setattr(options, name, os.path.abspath(found))
        for program in needed:
            if not shutil.which(program):
                sys.exit(f"{program} is missing: run scripts/setup test")
        # The bench ends its programs and namespaces on its way out.
        signal.signal(signal.SIGTERM, lambda *_: sys.exit("ended by SIGTERM"))
        return options


class LimitJudge:
    """Compares figures with their limits; a smoke run compares none."""

    def __init__(self, smoke):
        self.smoke, self.any_missed = smoke, False

    def is_met(self, holds):
        """True where a limit is met; None in a smoke run."""
        if self.smoke:
            return None
        self.any_missed |= not holds
        return bool(holds)

    @staticmethod
    def verdict(met):
        return {None: "smoke: not judged", True: "met", False: "MISSED"}[met]

    def exit_status(self):
        return 1 if self.any_missed else 0


def interval(ratios):
    """Geometric mean of ratios and its 95 % interval, which one ratio alone does not have."""
    logarithms = [math.log(ratio) for ratio in ratios]
    mean = statistics.fmean(logarithms)
    if len(ratios) == 1:
        return math.exp(mean), 0.0, math.inf
    t = STUDENT_T[min(len(ratios) - 1, len(STUDENT_T)) - 1]
    half = t * statistics.stdev(logarithms) / math.sqrt(len(ratios))
    return tuple(math.exp(mean + sign * half) for sign in (0, -1, 1))


# -- Programs


def words_of(command):
    return command.split() if isinstance(command, str) else [str(word) for word in command]


def run(command, **options):
    """Runs a program and returns its output. Exits with its complaint where it fails."""
    words = words_of(command)
    done = subprocess.run(words, capture_output=True, text=True, **options)
    if done.returncode != 0:
        sys.exit(f"{' '.join(words)}: {done.stdout[-2000:]}{done.stderr[-3000:]}")
    return done.stdout


def write(path, text):
    """Writes a file that its owner alone may read, as configurations with secrets must be."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(str(text))
    path.chmod(0o600)


def free_port(kind=socket.SOCK_DGRAM):
    with socket.socket(socket.AF_INET, kind) as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def accepts(path):
    """A condition for `wait_until`: the Unix socket at this path takes connections."""

    def holds():
        with socket.socket(socket.AF_UNIX) as client:
            return client.connect_ex(str(path)) == 0

    return holds


def says(log, text):
    """A condition for `wait_until`: the log has this text."""
    return lambda: log.exists() and text in log.read_text(errors="replace")


def wait_until(what, holds, process=None, log=None):
    """Waits until a condition holds, and exits with the log where it does not within 30 seconds."""
    deadline = time.monotonic() + 30
    while not holds():
        if (process and process.poll() is not None) or time.monotonic() > deadline:
            text = log.read_text(errors="replace")[-3000:] if log and log.exists() else ""
            sys.exit(f"{what}: this did not happen\n{text}")
        time.sleep(0.02)


def stop(*processes, patience=20):
    """Ends programs by SIGTERM, and kills them where they take too long."""
    for process in processes:
        process.terminate()
    for process in processes:
        try:
            process.wait(patience)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def start(command, log, is_ready, **options):
    """Starts a program that is up once a condition holds."""
    words = words_of(command)
    with open(log, "w") as out:
        process = subprocess.Popen(words, stdout=out, stderr=subprocess.STDOUT, **options)
    try:
        wait_until(f"{' '.join(words)} comes up", is_ready, process, log)
    except BaseException:
        stop(process)
        raise
    return process


@contextlib.contextmanager
def running(command, log, is_ready, **options):
    """A program that is up while the block runs."""
    process = start(command, log, is_ready, **options)
    try:
        yield process
    finally:
        stop(process)


def open_fifo(path):
    return open(os.open(path, os.O_RDWR | os.O_NONBLOCK), "r+b", buffering=0)


@contextlib.contextmanager
def perf_recording(files, *words):
    """Samples processes into files while the block runs: by process number the file."""
    recorders = []
    try:
        for pid, file in files.items():
            # A recorder writes to the second of these once it samples.
            requests, acknowledgements = (pathlib.Path(f"{file}.{name}") for name in ("control", "acknowledged"))
            for fifo in (requests, acknowledgements):
                os.mkfifo(fifo)
            command = ["perf", "record", "-q", "-e", "cpu-clock", *words, "-D", "-1", "-o", file, "-p", pid,
                       f"--control=fifo:{requests},{acknowledgements}"]
            recorder = subprocess.Popen(words_of(command), stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
            recorders.append(recorder)
            # Opened for both directions, so that neither waits for a recorder that has failed.
            with open_fifo(requests) as to, open_fifo(acknowledgements) as answers:
                to.write(b"enable\n")
                wait_until(f"perf samples process {pid}", lambda: b"ack" in (answers.read(100) or b""), recorder)
        yield
    finally:
        for recorder in recorders:
            recorder.send_signal(signal.SIGINT)
        complaints = [recorder.communicate(timeout=120)[1] for recorder in recorders]
    for file, complaint in zip(files.values(), complaints):
        if not pathlib.Path(file).exists():
            sys.exit(f"perf recorded nothing: {complaint.strip()}")


@contextlib.contextmanager
def processor_share(processes, share, period_us=20_000):
    """Gives processes this share of a processor while the block runs, by a control group of their own."""
    if share >= 1:
        yield
        return
    root, quota_us = pathlib.Path("/sys/fs/cgroup"), int(period_us * share)
    if (root / "cgroup.controllers").exists():
        (root / "cgroup.subtree_control").write_text("+cpu")
        settings = {"cpu.max": f"{quota_us} {period_us}"}
    else:
        root /= "cpu"
        settings = {"cpu.cfs_period_us": period_us, "cpu.cfs_quota_us": quota_us}
    group = root / f"usher-bench-{os.getpid()}"
    group.mkdir()
    try:
        for file, value in settings.items():
            (group / file).write_text(str(value))
        for process in processes:
            (group / "cgroup.procs").write_text(str(process))
        yield
    finally:
        for process in (group / "cgroup.procs").read_text().split():
            with contextlib.suppress(OSError):
                (root / "cgroup.procs").write_text(process)
        wait_until(f"{group} is empty", lambda: not (group / "cgroup.procs").read_text())
        group.rmdir()


def realtime_words():
    """Words before a command that give it real-time priority; none where the system refuses that."""
    words = ["chrt", "--rr", "1"]
    return words if subprocess.run([*words, "true"], capture_output=True).returncode == 0 else []


def pem(kind, files):
    """Certificates ("x509") or keys ("pkey") in DER, as PEM."""
    return "".join(run(["openssl", kind, "-inform", "DER", "-in", file]) for file in files)


# -- Networks


def namespace(end):
    return f"usher-bench-{os.getpid()}-{end}"


def within(end, command, processor=None):
    """A command in an end's namespace, on this processor."""
    pinned = ["taskset", "-c", str(processor)] if processor is not None else []
    return ["ip", "netns", "exec", namespace(end), *pinned, *words_of(command)]


@contextlib.contextmanager
def namespaces(ends):
    """Network namespaces with these names, whose loopback is up, while the block runs."""
    try:
        for end in ends:
            run(f"ip netns add {namespace(end)}")
            run(f"ip -n {namespace(end)} link set lo up")
        yield
    finally:
        for end in ends:
            subprocess.run(["ip", "netns", "del", namespace(end)], capture_output=True)


def add_cable(end, device, other_end, other_device):
    """Joins two namespaces by a veth pair that is up."""
    run(f"ip -n {namespace(end)} link add {device} type veth peer name {other_device} netns {namespace(other_end)}")
    for there, name in ((end, device), (other_end, other_device)):
        run(f"ip -n {namespace(there)} link set {name} up")


def stream_mbit_s(sender, receiver, address, amount, reverse=False):
    """Mbit/s of one stream of TCP that iperf3 sends to an address, or with `reverse` pulls from there.

    An end is a namespace and a processor; `amount` are the words of iperf3 for the length of the stream."""
    listening = subprocess.Popen(within(receiver[0], f"iperf3 -s -1 --forceflush -B {address}", receiver[1]), text=True,
                                 stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    try:
        lines = iter(listening.stdout.readline, "")
        if not any("Server listening" in line for line in lines):
            sys.exit(f"iperf3 does not listen at {address} of {receiver[0]}")
        client = ["iperf3", "-c", address, "-J", *amount, *(["-R"] if reverse else [])]
        answer = json.loads(run(within(sender[0], client, sender[1])))
        return answer["end"]["sum_received"]["bits_per_second"] / 1e6
    finally:
        stop(listening)


def swanctl(folder, *words):
    """Runs swanctl on the charon of this folder and returns its output."""
    done = subprocess.run(words_of(["swanctl", *words, "--uri", f"unix://{folder}/vici"]), capture_output=True, text=True,
                          env={**os.environ, "STRONGSWAN_CONF": str(folder / "strongswan.conf")})
    return done.stdout + done.stderr


@contextlib.contextmanager
def charon(end, folder, plugins, connections, processor=None, settings="", plugin_settings=""):
    """strongSwan's charon in an end's namespace, with a /run of its own, while the block runs."""
    write(folder / "strongswan.conf", f"""charon {{
 load = {plugins}
 install_routes = no
 install_virtual_ip = no
 filelog {{ log {{ path = {folder}/log
   default = 0
   flush_line = yes }} }}
 plugins {{ vici {{ socket = unix://{folder}/vici }}
   {plugin_settings} }}
 {settings}
}}
""")
    write(folder / "swanctl.conf", connections)
    (folder / "run").mkdir()
    script = f"mount --bind {folder}/run /run && STRONGSWAN_CONF={folder}/strongswan.conf exec {CHARON}"
    # `ip`, `taskset` and `sh` become charon.
    command = within(end, ["sh", "-c", script], processor)
    with running(command, folder / "output", accepts(folder / "vici")) as process:
        loaded = swanctl(folder, "--load-all", "--file", folder / "swanctl.conf")
        if "successfully loaded" not in loaded:
            sys.exit(f"swanctl --load-all: {loaded}")
        yield process
