"""Launchers: how far a node can confine a job, said honestly.

`plain` has sessions, a subreaper and, as root, process-id namespaces. `cgroup` adds a cgroup a run:
freezing and killing by the kernel, and limits for the controllers that are delegated. `systemd` has
the same by transient units. Each says what it can do; nothing else is promised.
"""

from __future__ import annotations

import contextlib
import os
from dataclasses import dataclass

from dlsched.core.errors import BadInput
from dlsched.protocol.messages import DesiredRun

CONTROLLERS = ("memory", "cpu", "pids")


@dataclass(frozen=True, slots=True, kw_only=True)
class Launcher:
    """One way to start jobs on this node."""

    name: str
    namespaces: bool = False
    cgroup_root: str = ""  # where runs' cgroups are made
    controllers: tuple[str, ...] = ()

    @property
    def capabilities(self) -> tuple[str, ...]:
        """What it can do: supervise, signal, freeze, kill-tree, limits, devices, fence."""
        found = ["supervise", "signal", "freeze"]
        if self.namespaces or self.cgroup_root:
            found.append("kill-tree")
        if "memory" in self.controllers:
            found.append("limits")
        if self.name == "systemd":
            found.append("devices")
        if self.namespaces:
            found.append("fence")
        return tuple(found)

    def make_cgroup(self, folder: str, desired: DesiredRun) -> str:
        """A run's own cgroup with its limits; empty where there are none.

        Raises:
            OSError: when it cannot be made.
        """
        if not self.cgroup_root:
            return ""
        path = os.path.join(self.cgroup_root, folder)
        for each in (path, os.path.join(path, "keeper"), os.path.join(path, "job")):
            with contextlib.suppress(FileExistsError):
                os.mkdir(each)
        if self.controllers:
            _enable(path, self.controllers)
        limits = desired.limits
        job = os.path.join(path, "job")
        if limits.memory_bytes and "memory" in self.controllers:
            _set(job, "memory.max", str(limits.memory_bytes))
            _set(job, "memory.oom.group", "1")
        if limits.cpus and "cpu" in self.controllers:
            _set(job, "cpu.max", f"{limits.cpus * 100_000} 100000")
        return path


def _set(path: str, name: str, value: str) -> None:
    with open(os.path.join(path, name), "w", encoding="ascii") as file:
        file.write(value)


def _enable(path: str, controllers: tuple[str, ...]) -> None:
    for each in controllers:
        with contextlib.suppress(OSError):
            _set(path, "cgroup.subtree_control", f"+{each}")


def cgroup_mount() -> str:
    """Where the unified hierarchy is mounted; empty: nowhere."""
    with open("/proc/self/mountinfo", encoding="utf-8", errors="surrogateescape") as file:
        for line in file:
            head, _, tail = line.partition(" - ")
            if tail.startswith("cgroup2 "):
                return head.split()[4]
    return ""


def own_cgroup() -> str:
    """The path of this process's cgroup in the unified hierarchy."""
    with open("/proc/self/cgroup", encoding="utf-8") as file:
        for line in file:
            if line.startswith("0::"):
                return line[3:].strip()
    return "/"


def find_cgroup(node: str) -> tuple[str, tuple[str, ...]]:
    """Where this agent may make cgroups, and with which controllers; empty: nowhere."""
    mount = cgroup_mount()
    if not mount or not os.path.exists(os.path.join(mount, "cgroup.procs")):
        return "", ()
    base = os.path.normpath(mount + "/" + own_cgroup())
    if not os.access(base, os.W_OK):
        return "", ()
    with open(os.path.join(base, "cgroup.controllers"), encoding="ascii") as file:
        offered = tuple(each for each in file.read().split() if each in CONTROLLERS)
    root = os.path.join(base, f"dlsched-{node}")
    try:
        os.makedirs(root, exist_ok=True)
        _enable(base, offered)
        _enable(root, offered)
        with open(os.path.join(root, "cgroup.subtree_control"), encoding="ascii") as file:
            given = tuple(each for each in file.read().split() if each in CONTROLLERS)
        if not os.path.exists(os.path.join(root, "cgroup.freeze")):
            return "", ()
    except OSError:
        return "", ()
    return root, given


def systemd_is_there() -> bool:
    """Whether process 1 is systemd."""
    return os.path.isdir("/run/systemd/system") and os.geteuid() == 0


def choose(wanted: str, node: str, *, namespaces: bool) -> Launcher:
    """The launcher that was asked for, or the best there is.

    Raises:
        BadInput: when the one that was asked for cannot be had.
    """
    if wanted == "systemd" and not systemd_is_there():
        raise BadInput("launcher systemd: process 1 is not systemd")
    if wanted in ("systemd", "auto") and systemd_is_there():
        return Launcher(name="systemd", namespaces=namespaces)
    if wanted in ("cgroup", "auto"):
        root, controllers = find_cgroup(node)
        if root and (wanted == "cgroup" or controllers):
            return Launcher(
                name="cgroup", namespaces=namespaces, cgroup_root=root, controllers=controllers
            )
        if wanted == "cgroup":
            raise BadInput("launcher cgroup: no writable cgroup v2 with a freezer here")
    return Launcher(name="plain", namespaces=namespaces)
