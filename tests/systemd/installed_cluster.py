"""The packaged daemon and one agent on a machine, with certificates, and users who submit."""

from __future__ import annotations

import json
import shlex
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from machine import PROGRAM, WITHIN_S, Machine

DAEMON, AGENT = "dlsched-daemon.service", "dlsched-agent.service"
USER = "ada"
_AGENT_TOML = """\
address = "127.0.0.1:7818"
fake_gpus = "2:v100"
device_prefix = "/dev/gpu"
"""


@dataclass(frozen=True)
class Cluster:
    """What a user and an administrator do with it."""

    machine: Machine

    def as_user(self, *command: str, check: bool = True, user: str = USER) -> str:
        """What a command of a logged-in user says."""
        line = shlex.join(command)
        return self.machine.run("runuser", "-l", user, "-c", line, check=check).stdout

    def dlsched(self, *words: str, check: bool = True) -> str:
        """The program's output for root, which is an operator."""
        return self.machine.run(PROGRAM, *words, check=check).stdout

    def submit(self, script: str, *options: str) -> int:
        """A job of the user, in his home; its id."""
        words = ("submit", "--parsable", "-o", "out.%j", *options, "--wrap", script)
        return int(self.as_user(PROGRAM, *words))

    def begun(self, script: str, *options: str) -> int:
        """A job with a running script."""
        job = self.submit(f"echo begun; {script}", *options)
        self.machine.eventually("cat", self.output_path(job), says="begun")
        return job

    def output_path(self, job: int) -> str:
        """Where a job writes."""
        return f"/home/{USER}/out.{job}"

    def output(self, job: int) -> str:
        """What it has written."""
        return self.machine.run("cat", self.output_path(job)).stdout

    def wait(self, job: int) -> int:
        """Its exit code, when it has ended."""
        return self.machine.run(PROGRAM, "wait", str(job), check=False).returncode

    def show(self, job: int) -> dict[str, Any]:
        """All about it."""
        found: dict[str, Any] = json.loads(self.dlsched("show", "--json", str(job)))["jobs"][0]
        return found

    def run_end(self, job: int) -> str:
        """How the last of its runs ended, in words."""
        runs = self.show(job)["runs"]
        return f"{runs[-1]['end']} {runs[-1].get('detail') or ''}".strip()

    def end_all(self) -> None:
        """No job left, neither in the queue nor on the node."""
        jobs = json.loads(self.dlsched("queue", "--all", "--json"))["jobs"]
        if jobs:
            self.dlsched("cancel", "-y", *(str(job["job_id"]) for job in jobs))
        until(lambda: not self._units_of_jobs())

    def _units_of_jobs(self) -> str:
        units = ("systemctl", "list-units", "--all", "--plain", "--no-legend", "dls-*.service")
        return self.machine.run(*units).stdout

    def main_pid(self, unit: str) -> int:
        """The main process of a unit."""
        return int(self.machine.show(unit, "MainPID"))

    def leaf(self, job: int, name: str) -> str:
        """A cgroup file of a job's first run."""
        return f"/sys/fs/cgroup/dlsched.slice/{unit_of(job)}/{name}"


def unit_of(job: int) -> str:
    """Of a one-node job's first run."""
    return f"dls-{job}-1-0.service"


def until(condition: Callable[[], bool], within: float = WITHIN_S) -> None:
    """Wait for something to become true."""
    deadline = time.monotonic() + within
    while not condition():
        assert time.monotonic() < deadline, "never came true"
        time.sleep(0.05)


def start(machine: Machine, install: Callable[[Machine], None] = Machine.install) -> Cluster:
    """Install the program, set up as `docs/deploying.md` says, and start."""
    install(machine)
    init = ("--cluster", "lab", "--node", "n1", "--daemon-host", "127.0.0.1")
    machine.run(PROGRAM, "admin", "init", "/etc/dlsched", *init)
    machine.run("sh", "-c", "cp -r /etc/dlsched/nodes/n1/. /etc/dlsched/")
    toml = machine.run("cat", "/etc/dlsched/agent.toml").stdout
    machine.write("/etc/dlsched/agent.toml", _AGENT_TOML + toml)
    machine.run("useradd", "-m", "-s", "/bin/sh", USER)
    started = machine.run("systemctl", "start", DAEMON, AGENT, check=False)
    if started.returncode:
        why = machine.run("journalctl", "-u", "dlsched-*", "-o", "cat").stdout
        raise AssertionError(f"{started.stderr}{why}")
    found = Cluster(machine)
    machine.eventually(PROGRAM, "nodes", says="idle")
    return found
