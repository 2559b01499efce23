"""A real Slurm on loopback, to compare with: two nodes of four pretended GPUs.

It has no accounting and no munge, and runs as root. Debian's packages `slurmctld`, `slurmd` and
`slurm-client` are needed.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path

from dlsched.torture.local_cluster import eventually, free_port
from tests.live.login_node import WITHIN_S

__all__ = ["RealSlurm", "why_not"]

_NODES = ("n1", "n2")
_CONFIG = """ClusterName=real
SlurmctldHost=localhost(127.0.0.1)
SlurmctldPort={port}
AuthType=auth/none
CredType=cred/none
SlurmUser=root
SlurmdUser=root
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool-%n
SlurmctldPidFile={folder}/ctld.pid
SlurmdPidFile={folder}/slurmd-%n.pid
SlurmctldLogFile={folder}/ctld.log
SlurmdLogFile={folder}/slurmd-%n.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
MpiDefault=none
SwitchType=switch/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
GresTypes=gpu
ReturnToService=2
SlurmdParameters=config_overrides
JobCompType=jobcomp/none
AccountingStorageType=accounting_storage/none
JobAcctGatherType=jobacct_gather/none
PartitionName=gpu Nodes=n[1-2] Default=YES MaxTime=7-0 State=UP
PartitionName=cpu Nodes=n[1-2] MaxTime=INFINITE State=UP
"""


def why_not() -> str:
    """Why there can be no real Slurm here; empty: there can."""
    missing = [name for name in ("slurmctld", "slurmd", "srun") if not shutil.which(name)]
    if missing:
        return f"{', '.join(missing)}: not installed"
    return "" if os.geteuid() == 0 else "Slurm's daemons run as root here"


class RealSlurm:
    """Slurm's daemons, and a user's shell with Slurm's own commands."""

    def __init__(self, folder: Path) -> None:
        """Begin with nothing that runs; `folder` is empty."""
        self.folder, self.home = folder, folder / "user"
        self._daemons: list[subprocess.Popen[bytes]] = []

    @contextlib.contextmanager
    def running(self) -> Iterator[RealSlurm]:
        """Start the daemons, wait until both nodes are idle, and end them at the end."""
        for name in ("state", "dev", "user", *(f"spool-{node}" for node in _NODES)):
            (self.folder / name).mkdir()
        lines = _CONFIG.format(port=free_port(), folder=self.folder)
        for node in _NODES:
            lines += (
                f"NodeName={node} NodeHostname={socket.gethostname().split('.')[0]} "
                f"NodeAddr=127.0.0.1 Port={free_port()} CPUs=16 RealMemory=20000 "
                "Gres=gpu:a100:4 State=UNKNOWN\n"
            )
        (self.folder / "slurm.conf").write_text(lines)
        for gpu in range(4):
            (self.folder / "dev" / f"nvidia{gpu}").touch()
        gres = f"NodeName=n[1-2] Name=gpu Type=a100 File={self.folder}/dev/nvidia[0-3]"
        (self.folder / "gres.conf").write_text(f"{gres} Flags=nvidia_gpu_env\n")
        try:
            self._start("slurmctld", "-D")
            for node in _NODES:
                self._start("slurmd", "-D", "-N", node)
            eventually(
                "both nodes are idle",
                lambda: set(self.run("sinfo -h -o %T").stdout.split()) == {"idle"},
                within=60,
            )
            yield self
        finally:
            self.run("scancel --user=root")
            for daemon in reversed(self._daemons):
                daemon.send_signal(signal.SIGTERM)
            for daemon in self._daemons:
                daemon.wait(timeout=30)

    @property
    def _environment(self) -> dict[str, str]:
        plain = {key: text for key, text in os.environ.items() if not key.startswith("SLURM")}
        return {**plain, "SLURM_CONF": str(self.folder / "slurm.conf"), "PATH": "/usr/bin:/bin"}

    def _start(self, *argv: str) -> None:
        with open(self.folder / f"{len(self._daemons)}.out", "wb") as out:
            self._daemons.append(
                subprocess.Popen(
                    argv,
                    env={**self._environment, "PATH": os.environ["PATH"]},
                    stdin=subprocess.DEVNULL,
                    stdout=out,
                    stderr=out,
                    start_new_session=True,
                )
            )

    def run(self, line: str) -> subprocess.CompletedProcess[str]:
        """Run one line of a shell with Slurm's commands."""
        return subprocess.run(
            ["bash", "-c", line],
            cwd=self.home,
            env=self._environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=WITHIN_S,
            check=False,
        )
