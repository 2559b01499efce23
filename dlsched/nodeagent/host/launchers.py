"""Launchers: how far a node can confine a job.

`plain` has sessions, a subreaper and, as root, process-id namespaces. `cgroup` adds one cgroup for
each run: the kernel freezes and kills it, and limits what the delegated controllers can. `systemd`
has the same by transient units, which also confine a job to the devices of its GPUs. Each launcher
names its capabilities; the agent promises no others.
"""

from __future__ import annotations

import contextlib
import os
from dataclasses import dataclass

from dlsched.core.errors import BadInput
from dlsched.nodeagent.host import cgroups, systemd_units
from dlsched.nodeagent.host.cgroups import cgroup_mount, own_cgroup
from dlsched.protocol.messages import DesiredRun

CONTROLLERS = ("memory", "cpu", "pids")


@dataclass(frozen=True, slots=True, kw_only=True)
class Launcher:
    """One way to start jobs on this node."""

    name: str
    namespaces: bool = False
    cgroup_root: str = ""  # the folder of the runs' cgroups
    controllers: tuple[str, ...] = ()
    devices: bool = False  # systemd enforces device rules

    @property
    def capabilities(self) -> tuple[str, ...]:
        """The capabilities: supervise, signal, freeze, kill-tree, limits, devices, fence."""
        found = ["supervise", "signal", "freeze"]
        if self.namespaces or self.cgroup_root:
            found.append("kill-tree")
        if "memory" in self.controllers:
            found.append("limits")
        if self.devices:
            found.append("devices")
        if self.namespaces or self.name == "systemd":  # systemd ends a unit with its keeper
            found.append("fence")
        return tuple(found)

    @property
    def makes_cgroups(self) -> bool:
        """Whether the agent makes a cgroup for each run; else there is none, or systemd does."""
        return bool(self.cgroup_root) and self.name != "systemd"

    def make_cgroup(self, folder: str, desired: DesiredRun) -> str:
        """Make a run's cgroup, of this name, with its limits; return its path.

        Raises:
            OSError: when it cannot be made.
        """
        path = os.path.join(self.cgroup_root, folder)
        with contextlib.suppress(FileExistsError):
            try:
                os.mkdir(path)
            except FileNotFoundError:  # another program has tidied up empty cgroups
                os.makedirs(path)
                cgroups.enable(self.cgroup_root, self.controllers)
        cgroups.make_leaves(path)
        cgroups.enable(path, self.controllers)
        limits = desired.limits
        job = os.path.join(path, "job")
        if limits.memory_bytes and "memory" in self.controllers:
            cgroups.write(job, "memory.max", str(limits.memory_bytes))
            cgroups.write(job, "memory.oom.group", "1")
        if limits.cpus and "cpu" in self.controllers:
            cgroups.write(job, "cpu.max", f"{limits.cpus * 100_000} 100000")
        return path


def find_cgroup(node: str) -> tuple[str, tuple[str, ...]]:
    """Return where this agent may make cgroups, and the controllers there; empty: nowhere."""
    mount = cgroup_mount()
    if not mount or not os.path.exists(os.path.join(mount, "cgroup.procs")):
        return "", ()
    base = os.path.normpath(mount + "/" + own_cgroup())
    if not os.access(base, os.W_OK):
        return "", ()
    offered = tuple(each for each in cgroups.controllers(base) if each in CONTROLLERS)
    root = os.path.join(base, f"dlsched-{node}")
    try:
        os.makedirs(root, exist_ok=True)
        cgroups.enable(base, offered)
        cgroups.enable(root, offered)
        with open(os.path.join(root, "cgroup.subtree_control"), encoding="utf-8") as file:
            given = tuple(each for each in file.read().split() if each in CONTROLLERS)
        if not os.path.exists(os.path.join(root, "cgroup.freeze")):
            return "", ()
    except OSError:
        return "", ()
    return root, given


def systemd_is_there() -> bool:
    """Whether process 1 is systemd, and this process is root."""
    return os.path.isdir("/run/systemd/system") and os.geteuid() == 0


def find_systemd(*, namespaces: bool) -> Launcher:
    """Return the launcher that systemd is on this machine."""
    mount = cgroup_mount()
    return Launcher(
        name="systemd",
        namespaces=namespaces,
        cgroup_root=os.path.join(mount, systemd_units.SLICE) if mount else "",
        controllers=tuple(each for each in cgroups.controllers(mount) if each in CONTROLLERS),
        devices=systemd_units.enforces_devices(),
    )


def choose_launcher(wanted: str, node: str, *, namespaces: bool) -> Launcher:
    """Return the launcher that is wanted, or the best of this machine.

    `wanted` is plain, cgroup, systemd or auto; `namespaces` says whether a keeper can have a
    process-id namespace.

    Raises:
        BadInput: when the launcher that is wanted does not work here.
    """
    if wanted == "systemd" and not systemd_is_there():
        raise BadInput("launcher systemd: process 1 is not systemd")
    if wanted == "systemd" and not systemd_units.can_run_units():
        raise BadInput("launcher systemd: systemd-run is not installed")
    if wanted in ("systemd", "auto") and systemd_is_there() and systemd_units.can_run_units():
        return find_systemd(namespaces=namespaces)
    if wanted in ("cgroup", "auto"):
        root, controllers = find_cgroup(node)
        if root and (wanted == "cgroup" or controllers):
            return Launcher(
                name="cgroup", namespaces=namespaces, cgroup_root=root, controllers=controllers
            )
        if root:  # not used: leave nothing behind
            with contextlib.suppress(OSError):
                os.rmdir(root)
        if wanted == "cgroup":
            raise BadInput("launcher cgroup: no writable cgroup v2 with a freezer here")
    return Launcher(name="plain", namespaces=namespaces)
