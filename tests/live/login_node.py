"""A user's shell on a local cluster, with the commands of Slurm on its path."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

from dlsched.client.job_records import Job
from dlsched.system import slurm_commands
from dlsched.torture.local_cluster import LocalCluster
from tests.live.terminal import Terminal
from tests.other_users import BECOME

__all__ = ["LoginNode"]

WITHIN_S = 120
SCRIPTS = Path(__file__).parent / "slurm" / "scripts"


class LoginNode:
    """A user's shell on a cluster, with the commands of Slurm on its path."""

    def __init__(self, cluster: LocalCluster) -> None:
        self.cluster = cluster
        self.home = cluster.folder / "user"
        self.home.mkdir()
        commands = cluster.folder / "commands"
        commands.mkdir()
        slurm_commands.install(str(commands))
        self.path = f"{commands}:{Path(sys.executable).parent}:{os.environ['PATH']}"

    def run(self, line: str) -> subprocess.CompletedProcess[str]:
        """Run one line of a shell; one that does not end fails with the stacks of its programs."""
        process = subprocess.Popen(
            ["bash", "-c", line],
            cwd=self.home,
            env={**self.cluster.environment, "PATH": self.path, "PYTHONFAULTHANDLER": "1"},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        try:
            out, err = process.communicate(timeout=WITHIN_S)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGABRT)  # Python prints where each thread is
            out, err = process.communicate()
            raise AssertionError(f"{line}: no end in {WITHIN_S} s\n{out}\n{err}") from None
        return subprocess.CompletedProcess(line, process.returncode, out, err)

    def terminal(self, line: str) -> Terminal:
        """A line typed on a terminal of its own."""
        env = {**self.cluster.environment, "PATH": self.path}
        return Terminal(["sh", "-c", f"exec {line}"], cwd=self.home, env=env)

    def terminal_of(self, uid: int, *words: str) -> Terminal:
        """A command of dlsched on a terminal of another user."""
        env = {**self.cluster.environment, "XDG_CONFIG_HOME": "/"}
        program = BECOME + "from dlsched.cli.main import run\nrun()\n"
        argv = [sys.executable, "-c", program, str(uid), *words]
        return Terminal(argv, cwd=Path("/"), env=env)

    def typed(self, line: str) -> str:
        """What a line prints that must succeed."""
        done = self.run(line)
        assert done.returncode == 0, f"{line}: {done.stderr}"
        return done.stdout

    def submit(self, name: str, *options: str) -> int:
        """The id of a script that was submitted as users do it."""
        shutil.copy(SCRIPTS / name, self.home / name)
        told = self.typed(f"sbatch {' '.join(options)} {name}").split()
        assert told[:3] == ["Submitted", "batch", "job"]
        return int(told[3])

    def ended(self, name: str, *options: str, state: str = "COMPLETED") -> tuple[Job, str]:
        """A script that was submitted, once it has ended, and its output."""
        job = self.submit(name, *options)
        path = self.home / f"slurm-{job}.out"
        try:
            found = self.cluster.until(job, "COMPLETED", "FAILED", "CANCELLED", within=90)
        except AssertionError as error:
            raise AssertionError(f"{error}\n{path.read_text() if path.exists() else ''}") from None
        text = path.read_text() if path.exists() else ""
        assert found.state == state, f"{text}\n{self.cluster.story(job)}"
        return found, text
