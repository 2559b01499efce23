"""Slurm on this machine for as long as a comparison takes: one controller, four nodes, loopback.

Uses the distribution's own packages (`apt-get install slurm-wlm`) and its defaults but for what
a machine of two cores and no accounting needs. Everything lives in one folder and ends with it.
"""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Mapping
from pathlib import Path

__all__ = ["SlurmCluster", "obstacle"]

NODES = 4
GPUS = 8

CONFIGURATION = """\
ClusterName=bench
SlurmctldHost=localhost(127.0.0.1)
SlurmctldPort={controller}
SlurmUser=root
AuthType=auth/munge
AuthInfo=socket={folder}/munge/munge.socket
CredType=cred/munge
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool/%n
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd-%n.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/slurmd-%n.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
MpiDefault=none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
GresTypes=gpu
MaxArraySize=20001
MaxJobCount=40000
ReturnToService=2
SlurmdParameters=config_overrides
{extra}
{nodes}
PartitionName=main Nodes=ALL Default=YES MaxTime=INFINITE OverSubscribe=FORCE:64 State=UP
"""


def obstacle() -> str:
    """Why Slurm cannot be started here; empty when it can."""
    missing = [name for name in ("slurmctld", "slurmd", "munged") if shutil.which(name) is None]
    if missing:
        return f"{', '.join(missing)} not installed: apt-get install slurm-wlm"
    return "" if os.geteuid() == 0 else "needs root"


def _free_ports(count: int) -> list[int]:
    sockets = [socket.socket() for _ in range(count)]
    for each in sockets:
        each.bind(("127.0.0.1", 0))
    ports = [each.getsockname()[1] for each in sockets]
    for each in sockets:
        each.close()
    return ports


class SlurmCluster:
    """One controller and its nodes; `environment` is what Slurm's commands need to find it."""

    def __init__(self, folder: Path, extra: str = "") -> None:
        self.folder = folder
        self.extra = extra
        self.processes: list[subprocess.Popen[bytes]] = []

    @property
    def environment(self) -> Mapping[str, str]:
        """For every command that talks to this cluster."""
        return {**os.environ, "SLURM_CONF": str(self.folder / "slurm.conf")}

    def __enter__(self) -> SlurmCluster:
        for name in ("state", "spool", "munge"):
            (self.folder / name).mkdir(parents=True)
        controller, *ports = _free_ports(NODES + 1)
        nodes = "\n".join(
            f"NodeName=n{k + 1} NodeHostname=localhost NodeAddr=127.0.0.1 Port={port} CPUs=64 "
            f"RealMemory=8000 Gres=gpu:v100:{GPUS} State=UNKNOWN"
            for k, port in enumerate(ports)
        )
        text = CONFIGURATION.format(
            folder=self.folder, controller=controller, nodes=nodes, extra=self.extra
        )
        (self.folder / "slurm.conf").write_text(text)
        for k in range(GPUS):  # any file will do: nothing here opens it
            (self.folder / f"gpu{k}").touch()
        (self.folder / "gres.conf").write_text(
            f"NodeName=n[1-{NODES}] Name=gpu Type=v100 File={self.folder}/gpu[0-{GPUS - 1}]\n"
        )
        try:
            self._start_munge()
            self._start("slurmctld", "-D", "-i")
            for k in range(NODES):
                (self.folder / "spool" / f"n{k + 1}").mkdir()
                self._start("slurmd", "-D", "-N", f"n{k + 1}")
            self._wait_for_nodes()
        except BaseException:
            self.__exit__()
            raise
        return self

    def _start_munge(self) -> None:
        home = self.folder / "munge"
        home.chmod(0o755)
        key = home / "key"
        key.write_bytes(os.urandom(128))
        key.chmod(0o400)
        self.processes.append(
            subprocess.Popen(
                [
                    *("munged", "--foreground", "--force", f"--socket={home}/munge.socket"),
                    *(f"--key-file={key}", f"--pid-file={home}/pid", f"--seed-file={home}/seed"),
                    *(f"--log-file={home}/log",),
                ],
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
            )
        )
        _until((home / "munge.socket").exists, "munged")

    def _start(self, *command: str) -> None:
        log = (self.folder / "output.log").open("ab")
        self.processes.append(
            subprocess.Popen(command, env=self.environment, stdout=log, stderr=log)
        )

    def _wait_for_nodes(self) -> None:
        def idle() -> bool:
            done = subprocess.run(
                ["sinfo", "-h", "-t", "idle", "-o", "%D"],
                env=self.environment,
                capture_output=True,
                text=True,
                check=False,
            )
            return done.stdout.strip() == str(NODES)

        _until(idle, "the nodes")

    def cpu_s(self) -> float:
        """CPU seconds of the cluster's own daemons so far."""
        ticks = 0
        for process in self.processes:
            fields = Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()
            ticks += int(fields[11]) + int(fields[12])
        return ticks / os.sysconf("SC_CLK_TCK")

    def __exit__(self, *_: object) -> None:
        for process in reversed(self.processes):
            process.send_signal(signal.SIGTERM)
        for process in reversed(self.processes):
            try:
                process.wait(20)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def _until(condition: object, what: str, within: float = 60.0) -> None:
    assert callable(condition)
    deadline = time.monotonic() + within
    while not condition():
        if time.monotonic() > deadline:
            raise TimeoutError(f"{what} did not come up within {within:g} s")
        time.sleep(0.05)
