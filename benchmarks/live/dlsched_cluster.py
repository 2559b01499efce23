"""dlsched on this machine for as long as a comparison takes: one daemon, four agents, loopback."""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import psutil

if __package__ in (None, ""):
    sys.path.insert(0, str(Path(__file__).parents[2]))

from dlsched.torture.local_cluster import LocalCluster

__all__ = ["DlschedCluster", "InstalledCluster"]

MEMORY = Path("/dev/shm")


class InstalledCluster(LocalCluster):
    """Four nodes with default timings and sockets in memory, as below /run; GPUs are made up."""

    def __init__(self) -> None:
        super().__init__(
            nodes=4,
            gpus="8:v100",
            round={"interval_s": 60.0},
            timing={"beat_s": 5.0, "reply_age_s": 5.0, "prepare_s": 30.0, "unkillable_s": 60.0},
        )
        self._memory = tempfile.TemporaryDirectory(prefix="dls", dir=MEMORY)

    def _agent_settings(self, name: str) -> dict[str, object]:
        return super()._agent_settings(name) | {"run_dir": f"{self._memory.name}/{name}"}

    def __exit__(self, *error: Any) -> None:
        super().__exit__(*error)
        self._memory.cleanup()


class DlschedCluster:
    """The daemons as they are installed."""

    def __init__(self) -> None:
        self._cluster = InstalledCluster()

    def __enter__(self) -> DlschedCluster:
        self._cluster.__enter__()
        return self

    def __exit__(self, *_: object) -> None:
        self._cluster.__exit__(None, None, None)

    @property
    def environment(self) -> Mapping[str, str]:
        """For every command that talks to this cluster, as a user on the daemon's machine."""
        local = {"DLSCHED_DAEMON": f"unix:{self._cluster.folder}/d.sock"}
        return self._cluster.environment | local

    def _own(self) -> list[psutil.Process]:
        """The daemon, the agents and all of their processes, but not the jobs'."""
        found = []
        for process in self._cluster.processes.values():
            parent = psutil.Process(process.pid)
            found += [parent, *parent.children(recursive=True)]
        return found

    def cpu_s(self) -> float:
        """CPU seconds of the daemons so far, with the children that they have waited for."""
        total = 0.0
        for process in self._own():
            try:
                spent = process.cpu_times()
            except psutil.Error:
                continue
            total += spent.user + spent.system + spent.children_user + spent.children_system
        return total

    def memory_mb(self) -> dict[str, float]:
        """Resident memory of the daemon and of an agent, alone and with their workers."""
        figures = {}
        for name, label in (("daemon", "daemon"), ("n1", "agent")):
            parent = psutil.Process(self._cluster.processes[name].pid)
            family = [parent, *parent.children(recursive=True)]
            figures[f"memory: {label} MB"] = parent.memory_info().rss / 1e6
            figures[f"memory: {label} with its workers MB"] = (
                sum(p.memory_info().rss for p in family) / 1e6
            )
        return figures
