"""A whole cluster of real processes on loopback: one daemon, some agents, their keepers and jobs.

Only the GPUs are made up. Processes are killed, paused and started again by tests; whatever is
still there at the end is ended by its own id.
"""

from __future__ import annotations

import atexit
import contextlib
import json
import os
import secrets
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, TypeVar

import psutil

from dlsched.client.daemon_client import Client, filter_of
from dlsched.client.job_records import Job
from dlsched.client.records import Node
from dlsched.core.errors import DlschedError

__all__ = ["LocalCluster", "eventually"]

T = TypeVar("T")

UP = ("idle", "mixed", "full", "spare")
QUICK = {"beat_s": 0.3, "prepare_s": 30.0, "unkillable_s": 30.0}
"""Nodes are heard often; no time-out ends what is only slow on a machine with other work."""


WITHIN_S = 120.0
"""How long a test waits for what it is sure of: as long as a slow machine at work may take."""


def eventually(what: str, condition: Callable[[], T], within: float = WITHIN_S) -> T:
    """The first true value of a condition; a failure says what was waited for."""
    deadline = time.monotonic() + within
    last: BaseException | None = None
    while True:
        try:
            found = condition()
            if found:
                return found
            last = None
        except DlschedError as error:  # the daemon may be away for a moment
            last = error
        if time.monotonic() > deadline:
            raise AssertionError(
                f"{what}: not within {within:g} s" + (f" ({last})" if last else "")
            )
        time.sleep(0.02)


Table = Mapping[str, object]


def _toml(tables: Mapping[str, Table | Sequence[Table]]) -> str:
    lines = []
    for name, values in tables.items():
        one = isinstance(values, Mapping)
        for each in [values] if isinstance(values, Mapping) else values:
            lines.append(f"[{name}]" if one else f"[[{name}]]")
            lines += [f"{key} = {json.dumps(value)}" for key, value in each.items()]
    return "\n".join(lines) + "\n"


def free_port() -> int:
    """A port that is this process's own while it lives: no other cluster of a test gets it.

    It is below those from which clients connect. One of them could take it while a daemon is away.
    """
    clients = Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()
    while True:
        port = 10_000 + secrets.randbelow(max(int(clients[0]), 30_000) - 10_000)
        mine = socket.socket(socket.AF_UNIX)  # a name that the kernel frees at our end
        with socket.socket() as probe:
            try:
                mine.bind(f"\0dlsched-port-{port}")
                probe.bind(("127.0.0.1", port))
            except OSError:
                mine.close()
                continue
        atexit.register(mine.close)
        return port


class LocalCluster:
    """One daemon and its agents; leaves nothing behind."""

    def __init__(
        self,
        database: str = "",
        *,
        nodes: int = 3,
        gpus: str | Sequence[str] = "4:v100",
        round: Mapping[str, object] | None = None,
        tables: Mapping[str, Table | Sequence[Table]] | None = None,
        timing: Mapping[str, float] | None = None,
        agents_under: Sequence[str] = (),
    ) -> None:
        self._agents_under = agents_under  # a program that starts them, with its arguments
        self._home = tempfile.TemporaryDirectory(prefix="dls")  # short: sockets live below it
        self.folder = Path(self._home.name)
        self.database = database or f"sqlite:///{self.folder}/dlsched.db"
        self.names = [f"n{k + 1}" for k in range(nodes)]
        each = [gpus] * nodes if isinstance(gpus, str) else gpus
        self.gpus = dict(zip(self.names, each, strict=True))
        self.port = free_port()
        self.timing = {**QUICK, **(timing or {})}
        self.sections: dict[str, Any] = {
            "daemon": {
                "database": self.database,
                "listen": [f"unix:{self.folder}/d.sock", f"127.0.0.1:{self.port}"],
                "metrics": "127.0.0.1:0",
            },
            "round": {"interval_s": 0.5, "policy": "fifo", **(round or {})},
            "trust": {"mode": "insecure-loopback"},
            "timing": dict(self.timing),
        }
        for name, values in (tables or {}).items():
            is_table = isinstance(values, Mapping)
            self.sections[name] = self.sections.get(name, {}) | values if is_table else values
        self.processes: dict[str, subprocess.Popen[bytes]] = {}
        self.daemon_environment: dict[str, str] = {}  # of the next daemons, added to ours
        self.daemons = [self.port]  # ports at which agents look for a leader
        self.reached_at: dict[str, int] = {}  # by node, where it looks elsewhere
        self.out = self.folder / "out"
        self.out.mkdir()

    # -- processes -------------------------------------------------------------------------------

    def __enter__(self) -> LocalCluster:
        try:
            self.write_config()
            self.start_daemon()
            for name in self.names:
                self.start_agent(name)
            self.wait_until_up()
        except BaseException:
            self.__exit__(None, None, None)
            raise
        return self

    def write_config(self) -> Path:
        """Write what the daemon reads."""
        path = self.folder / "dlsched.toml"
        path.write_text(_toml(self.sections))
        return path

    @property
    def environment(self) -> dict[str, str]:
        """For the cluster's programs and its users' commands."""
        found = {k: v for k, v in os.environ.items() if not k.startswith(("DLSCHED_", "SLURM_"))}
        return found | {
            "DLSCHED_DAEMON": f"127.0.0.1:{self.port}",
            "DLSCHED_DAEMON_WAIT": "60s",
            "DLSCHED_INSECURE_LOOPBACK": "yes",
            "HOME": str(self.folder),
            "XDG_CONFIG_HOME": str(self.folder / "config"),
            "PYTHONUNBUFFERED": "1",
            "OMP_NUM_THREADS": "1",
        }

    def _start(
        self, name: str, *words: str, under: Sequence[str] = (), **environment: str
    ) -> subprocess.Popen[bytes]:
        log = (self.folder / f"{name}.log").open("ab")
        with log:
            process = subprocess.Popen(
                [*under, sys.executable, "-m", *words],
                env={**self.environment, **environment},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd=self.folder,
                start_new_session=True,
            )
        self.processes[name] = process
        return process

    def start_daemon(
        self, name: str = "daemon", *, config: str = "dlsched.toml", **environment: str
    ) -> subprocess.Popen[bytes]:
        """Start the daemon (again), or another one."""
        words = ("dlsched.daemon", "--config", str(self.folder / config))
        return self._start(name, *words, **{**self.daemon_environment, **environment})

    def start_agent(self, name: str, **environment: str) -> subprocess.Popen[bytes]:
        """Start a node's agent (again)."""
        home = self.folder / name
        home.mkdir(exist_ok=True)
        config = home / "agent.toml"
        lines = [
            f"{key} = {json.dumps(value)}" for key, value in self._agent_settings(name).items()
        ]
        config.write_text("\n".join(lines) + "\n" + _toml(self._agent_tables(name)))
        words = ("dlsched.nodeagent", "--config", str(config))
        return self._start(name, *words, under=self._agents_under, **environment)

    def _agent_settings(self, name: str) -> dict[str, object]:
        home = self.folder / name
        ports = [self.reached_at[name]] if name in self.reached_at else self.daemons
        return {
            "name": name,
            "daemon": [f"127.0.0.1:{port}" for port in ports],
            "listen": "127.0.0.1:0",
            "state_dir": str(home / "state"),
            "run_dir": str(home / "run"),
            "fake_gpus": self.gpus[name],
            "launcher": "plain",
            "insecure_loopback": True,
            "minimum_uid": 0,
            "allow_root": True,
        }

    def _agent_tables(self, name: str) -> dict[str, Mapping[str, Any]]:
        """The tables of a node's agent's settings; a cluster of its own kind adds some."""
        del name
        return {"timing": self.timing}

    def kill(self, name: str) -> None:
        """SIGKILL the daemon or an agent."""
        process = self.processes.pop(name)
        process.kill()
        process.wait(60)

    def power_off(self, name: str) -> None:
        """End a node as a power cut does: its agent, its keepers and its jobs at once."""
        mine = f"{self.folder}/{name}/"
        stopped: set[psutil.Process] = set()
        while True:  # no process may write down how another ended
            fresh = [each for each in self._of(mine) if each not in stopped]
            if not fresh:
                break
            for process in fresh:
                with contextlib.suppress(psutil.NoSuchProcess):
                    process.suspend()
            stopped.update(fresh)
        self.kill(name)
        for process in stopped:
            with contextlib.suppress(psutil.NoSuchProcess):
                process.kill()

    def confirm_down(self, name: str) -> None:
        """Confirm that a node is down, as soon as it has been silent for long enough."""
        words = ("admin", "node-down", name, "--confirmed")
        eventually(f"{name} is silent", lambda: self.run(*words).returncode == 0)

    @staticmethod
    def _of(folder: str) -> list[psutil.Process]:
        found = []
        for process in psutil.process_iter():
            try:
                words = [*process.cmdline(), *process.environ().values()]
                if any(folder in word for word in words):
                    found.append(process)
            except (psutil.Error, OSError):
                continue
        return found

    def wait_until_up(self, within: float = WITHIN_S) -> None:
        """Until every node can take work."""

        def up() -> bool:
            for name, process in self.processes.items():
                if process.poll() is not None:
                    raise RuntimeError(f"{name} ended with {process.returncode}: {self.log(name)}")
            with self.client() as client:
                states = {node.name: node.state for node in client.nodes()}
            return all(states.get(name) in UP for name in self.names)

        try:
            eventually("all nodes are up", up, within)
        except AssertionError as error:
            logs = "\n".join(f"{name}: {self.log(name)}" for name in self.processes)
            raise AssertionError(f"{error}\n{logs}") from None

    def log(self, name: str, size: int = 3000) -> str:
        """The end of what a process wrote."""
        path = self.folder / f"{name}.log"
        return path.read_text(errors="replace")[-size:] if path.exists() else ""

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for process in self.processes.values():
            process.send_signal(signal.SIGCONT)
            process.kill()
        for process in self.processes.values():
            process.wait(60)
        while left := self.remaining():
            for each in left:
                with contextlib.suppress(psutil.NoSuchProcess):
                    each.kill()
            psutil.wait_procs(left, timeout=60)
        self._home.cleanup()

    def remaining(self, word: str = "") -> list[psutil.Process]:
        """Keepers, jobs and whatever else has this cluster's folder as its home or writes there.

        With a word: those that have it on their command line.
        """
        found = []
        for process in psutil.process_iter():
            try:
                is_meant = not word or word in process.cmdline()
                if is_meant and process.pid != os.getpid() and self._is_ours(process):
                    found.append(process)
            except (psutil.Error, OSError):
                continue
        return found

    def _is_ours(self, process: psutil.Process) -> bool:
        if process.environ().get("HOME") == str(self.folder):
            return True
        output = os.readlink(f"/proc/{process.pid}/fd/2")  # keepers have hardly any environment
        return output.startswith(f"{self.folder}/")

    # -- users -----------------------------------------------------------------------------------

    def client(self) -> Client:
        """A user's connection."""
        return Client(f"127.0.0.1:{self.port}", insecure_loopback=True, wait="2s")

    def cli(self, *words: str, check: bool = True, stdin: str | None = None) -> str:
        """What a command prints."""
        done = self.run(*words, stdin=stdin)
        if check and done.returncode:
            raise AssertionError(f"dlsched {' '.join(words)}: {done.returncode} {done.stderr}")
        return done.stdout

    def run(
        self, *words: str, stdin: str | None = None, umask: int = -1
    ) -> subprocess.CompletedProcess[str]:
        """A command's exit code, output and errors."""
        return subprocess.run(
            [sys.executable, "-m", "dlsched", *words],
            env=self.environment,
            capture_output=True,
            text=True,
            cwd=self.folder,
            input=stdin,
            timeout=WITHIN_S,
            check=False,
            umask=umask,
        )

    def submit(self, script: str, **options: object) -> int:
        """Submit a shell script."""
        options.setdefault("output", f"{self.out}/%j.out")
        options.setdefault("chdir", self.folder)
        with self.client() as client:
            return client.submit(script=f"#!/bin/sh\n{script}\n".encode(), **options)  # type: ignore[arg-type]  # options are texts

    def output(self, job: int) -> str:
        """What a job has written so far."""
        path = self.out / f"{job}.out"
        return path.read_text() if path.exists() else ""

    def job(self, job: int) -> Job:
        """A job as `show` has it."""
        with self.client() as client:
            return client.show(filter_of([str(job)]))[0].job

    def jobs(self, ids: Sequence[int]) -> Iterator[Job]:
        """Several jobs."""
        with self.client() as client:
            for start in range(0, len(ids), 500):
                chosen = filter_of([str(job) for job in ids[start : start + 500]])
                yield from (detail.job for detail in client.show(chosen))

    def until(self, job: int, *states: str, within: float = WITHIN_S) -> Job:
        """A job once it is in one of some states."""

        def arrived() -> Job | None:
            found = self.job(job)
            return found if found.state in states else None

        try:
            found = eventually(f"job {job} is {' or '.join(states)}", arrived, within)
        except AssertionError as error:
            raise AssertionError(f"{error}\n{self.story(job)}") from None
        assert found is not None
        return found

    def until_begun(self, job: int) -> Job:
        """A job once every node of its run executes it, whatever becomes of daemon and agents.

        RUNNING alone says less: the daemon has released the run, and its nodes hear of it later.
        """

        def begun() -> Job | None:
            found = self.job(job)
            if found.state != "RUNNING":
                return None
            records = self.folder.glob(f"*/state/jobs/{job}.{found.run}.*/released")
            return found if len([*records]) == len(found.nodes) else None

        try:
            found = eventually(f"all nodes execute job {job}", begun)
        except AssertionError as error:
            raise AssertionError(f"{error}\n{self.story(job)}") from None
        assert found is not None
        return found

    def story(self, job: int) -> str:
        """What `show` says of a job, and the last words of all processes."""
        done = self.run("show", str(job))
        logs = "\n".join(f"{name}:\n{self.log(name)}" for name in self.processes)
        return f"{done.stdout}{done.stderr}\n{logs}"

    def shared_gpus(self) -> list[str]:
        """The GPUs that the daemon shows with more than one job, in words."""
        with self.client() as client:
            return [
                f"GPU {gpu.index} of {node.name} has jobs {gpu.jobs}"
                for node in client.nodes()
                for gpu in node.devices
                if len(gpu.jobs) > 1
            ]

    def node(self, name: str) -> Node:
        """A node as `nodes` has it."""
        with self.client() as client:
            return client.nodes([name])[0]
