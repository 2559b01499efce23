"""Faults, each of which strikes once and is healed before it returns."""

from __future__ import annotations

import contextlib
import json
import os
import random
import signal
import sqlite3
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from dlsched.torture.local_cluster import LocalCluster
from dlsched.torture.relay import Relay

FAULTS = (
    "daemon-killed",
    "agent-killed",
    "keeper-killed",
    "daemon-paused",
    "agent-paused",
    "link-cut",
    "database-away",
    "disk-full",
    "clock-step",
)
LONGEST_LOCK_S = 3.0
STEP_S = 3600.0
NEXT_KEEPER_S, LOOK_S = 10.0, 0.05


@dataclass(frozen=True, slots=True, kw_only=True)
class Struck:
    """A fault that has struck.

    Attributes:
        what: one line.
        jobs: those whose processes it has ended.
    """

    what: str
    jobs: frozenset[int] = frozenset()


Strike = Callable[[random.Random], Struck]


@dataclass(frozen=True, slots=True, kw_only=True)
class Faults:
    """The faults that can strike here, and why others cannot."""

    strikes: Mapping[str, Strike]
    left_out: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class LocalFaults:
    """Faults of a cluster of this machine's own processes.

    Attributes:
        cluster: the cluster.
        links: to the daemon, of each node.
        pause_s: how long processes stand still and links are cut.
        disk: a small file system with what the daemon or a node stores; None: there is none.
        clock: the file with the offset of the daemon's wall clock; None: it cannot be changed.
        restart_database: restarts the server as a crash does; None: the database is a file.
    """

    cluster: LocalCluster
    links: Mapping[str, Relay]
    pause_s: float
    disk: Path | None = None
    clock: Path | None = None
    restart_database: Callable[[], None] | None = None

    def daemon_killed(self, rng: random.Random) -> Struck:
        """SIGKILL, and a new daemon a moment later."""
        self.cluster.kill("daemon")
        time.sleep(rng.uniform(0.0, 1.0))
        self.cluster.start_daemon()
        return Struck(what="the daemon was killed and started again")

    def agent_killed(self, rng: random.Random) -> Struck:
        """SIGKILL, and a new agent a moment later."""
        name = rng.choice(self.cluster.names)
        self.cluster.kill(name)
        time.sleep(rng.uniform(0.0, 1.0))
        self.cluster.start_agent(name)
        return Struck(what=f"the agent of {name} was killed and started again")

    def keeper_killed(self, rng: random.Random) -> Struck:
        """SIGKILL of the keeper of a job that runs, or of the next one that starts."""
        until = time.monotonic() + NEXT_KEEPER_S
        while time.monotonic() < until:
            found = self._keepers()
            if found:
                job, pid = rng.choice(found)
                with contextlib.suppress(ProcessLookupError):  # it has just ended
                    os.kill(pid, signal.SIGKILL)
                    return Struck(what=f"a keeper of job {job} was killed", jobs=frozenset((job,)))
            time.sleep(LOOK_S)
        return Struck(what="no keeper was there to be killed")

    def _keepers(self) -> list[tuple[int, int]]:
        """The job and the process id of each keeper."""
        found = []
        for record in sorted(self.cluster.folder.glob("n*/state/jobs/*/run.json")):
            try:
                keeper = json.loads(record.read_text()).get("keeper") or {}
                pid = int(keeper.get("pid") or 0)
            except (OSError, ValueError):
                continue  # it has just ended
            if pid and Path(f"/proc/{pid}").exists():
                found.append((int(record.parent.name.split(".")[0]), pid))
        return found

    def daemon_paused(self, rng: random.Random) -> Struck:
        """SIGSTOP, and SIGCONT after the pause."""
        del rng
        return self._pause("daemon", "the daemon")

    def agent_paused(self, rng: random.Random) -> Struck:
        """SIGSTOP, and SIGCONT after the pause."""
        name = rng.choice(self.cluster.names)
        return self._pause(name, f"the agent of {name}")

    def _pause(self, name: str, what: str) -> Struck:
        process = self.cluster.processes[name]
        process.send_signal(signal.SIGSTOP)
        try:
            time.sleep(self.pause_s)
        finally:
            process.send_signal(signal.SIGCONT)
        return Struck(what=f"{what} stood still for {self.pause_s:g} s")

    def link_cut(self, rng: random.Random) -> Struck:
        """Both ways, or one of them."""
        name = rng.choice(self.cluster.names)
        up, down = rng.choice([(True, True), (True, False), (False, True)])
        self.links[name].cut(up=up, down=down)
        time.sleep(self.pause_s)
        self.links[name].heal()
        self.links[name].sever()
        ways = "both ways" if up and down else "to the daemon" if up else "from the daemon"
        return Struck(what=f"the link of {name} was cut {ways} for {self.pause_s:g} s")

    def database_away(self, rng: random.Random) -> Struck:
        """The server crashes and starts again; a file is locked by another program."""
        if self.restart_database is not None:
            self.restart_database()
            return Struck(what="the database crashed and was started again")
        held = min(self.pause_s, LONGEST_LOCK_S) * rng.uniform(0.5, 1.0)
        path = self.cluster.database.removeprefix("sqlite:///")
        connection = sqlite3.connect(path, timeout=10.0, isolation_level=None)
        try:
            connection.execute("BEGIN EXCLUSIVE")
            time.sleep(held)
            connection.execute("ROLLBACK")
        except sqlite3.OperationalError as error:
            return Struck(what=f"the database could not be locked: {error}")
        finally:
            connection.close()
        return Struck(what=f"the database was locked for {held:.1f} s")

    def disk_full(self, rng: random.Random) -> Struck:
        """Not a byte is free for a while."""
        del rng
        assert self.disk is not None
        filler = self.disk / "filler"
        try:
            with filler.open("wb", buffering=0) as file:
                _fill(file.write)
            time.sleep(self.pause_s)
        finally:
            filler.unlink(missing_ok=True)
        return Struck(what=f"the disk of the state was full for {self.pause_s:g} s")

    def clock_step(self, rng: random.Random) -> Struck:
        """The daemon's wall clock jumps by an hour, ahead or back."""
        assert self.clock is not None
        step = rng.choice([STEP_S, -STEP_S])
        self.clock.write_text(f"{step:+.0f}\n")
        return Struck(what=f"the daemon's wall clock is {step:+.0f} s off from now on")


def _fill(write: Callable[[bytes], object]) -> None:
    for size in (65536, 4096, 1):
        try:
            while True:
                write(bytes(size))
        except OSError:
            continue


def faults_of(here: LocalFaults, left_out: Mapping[str, str]) -> Faults:
    """The faults that can strike a local cluster."""
    strikes: dict[str, Strike] = {
        "daemon-killed": here.daemon_killed,
        "agent-killed": here.agent_killed,
        "keeper-killed": here.keeper_killed,
        "daemon-paused": here.daemon_paused,
        "agent-paused": here.agent_paused,
        "link-cut": here.link_cut,
        "database-away": here.database_away,
        "disk-full": here.disk_full,
        "clock-step": here.clock_step,
    }
    return Faults(
        strikes={name: strikes[name] for name in FAULTS if name not in left_out},
        left_out=left_out,
    )


def site_faults(commands: Mapping[str, Sequence[str]], limit_s: float) -> Faults:
    """The faults for which a site names a command; the others are left out."""

    def strike_of(name: str, words: Sequence[str]) -> Strike:
        def strike(rng: random.Random) -> Struck:
            del rng
            try:
                done = subprocess.run(words, timeout=limit_s, check=False, stdin=subprocess.DEVNULL)
            except (OSError, subprocess.TimeoutExpired) as error:
                return Struck(what=f"{name}: the command failed: {error}")
            return Struck(what=f"{name}: its command ended with {done.returncode}")

        return strike

    why = "a cluster of other machines: name a command, --fault {}=COMMAND"
    return Faults(
        strikes={name: strike_of(name, words) for name, words in commands.items()},
        left_out={name: why.format(name) for name in FAULTS if name not in commands},
    )
