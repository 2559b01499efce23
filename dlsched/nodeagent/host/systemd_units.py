"""The transient systemd service of each run, and what systemd can do on this machine.

A unit's name is `dls-JOB-RUN-RANK.service`, so that a drop-in in `dls-.service.d` applies to all.
Device rules are properties of the unit, and so survive a reload of systemd. Limits are promised
only where the unified hierarchy has the controllers.
"""

from __future__ import annotations

import glob
import os
import shutil
import subprocess
from collections.abc import Iterable, Mapping

from dlsched.protocol.messages import DesiredRun, GpuId

SLICE = "dlsched.slice"
END = "unit-end"  # in a run's records: how a keeper without an exit record ended
_BESIDE_GPUS = ("ctl", "-uvm", "-uvm-tools", "-modeset")
_NETWORK = "/dev/infiniband/*"
_OPEN_FILES = 65536
_LEAST_MEMORY = 64 << 20  # bytes; a unit holds the keeper, too, which must not end for lack of it
_PROBE_S = 20.0
# Under strict rules /dev/zero can be opened only where the kernel does not enforce them.
_PROBE = "! (: </dev/zero) 2>/dev/null"
_RECORD_END = (
    'test -e "$1/run.json" && test ! -e "$1/exit.json" && umask 077 && '
    'echo "$SERVICE_RESULT" "$EXIT_CODE" "$EXIT_STATUS" >"$1/$2.new" && mv "$1/$2.new" "$1/$2"'
)


def unit_name(desired: DesiredRun, rank: int) -> str:
    """Return the name of a run's unit on one of its nodes."""
    return f"dls-{int(desired.key.job)}-{int(desired.key.run)}-{rank}.service"


def can_run_units() -> bool:
    """Whether there is the program that starts transient units."""
    return shutil.which("systemd-run") is not None


def enforces_devices() -> bool:
    """Whether device rules of units are enforced here; tried with a unit, False if it fails."""
    what = "--description=dlsched asks whether device rules are in force"
    rules = ("-p", "DevicePolicy=strict", "-p", "DeviceAllow=/dev/null rw")
    command = ["systemd-run", "--quiet", "--wait", "--collect", f"--slice={SLICE}", what, *rules]
    try:
        done = subprocess.run(
            [*command, "/bin/sh", "-c", _PROBE],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=_PROBE_S,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return False
    return done.returncode == 0


def devices(granted: Iterable[GpuId], minors: Mapping[GpuId, int | None], prefix: str) -> list[str]:
    """Return the device nodes that a run may open, beside those that every unit may.

    `minors` has the minor number of each GPU's device node; `prefix` is of the paths of these
    nodes.
    """
    numbers = [minors.get(gpu) for gpu in granted]
    paths = [f"{prefix}{number}" for number in numbers if number is not None]
    if numbers:
        paths += [prefix + name for name in _BESIDE_GPUS]
    paths += sorted(glob.glob(_NETWORK))
    return [path for path in paths if os.path.exists(path)]


def properties(
    desired: DesiredRun, *, records: str, allowed: Iterable[str], oom_score_adj: int
) -> list[str]:
    """Return the properties of a run's unit.

    Args:
        desired: the run.
        records: the folder of its records.
        allowed: device nodes that it may open.
        oom_score_adj: of the keeper.
    """
    limits = desired.limits
    found = [
        f"Description=Job {int(desired.key.job)}, run {int(desired.key.run)}",
        "Delegate=yes",
        "KillMode=mixed",
        f"TimeoutStopSec={max(desired.grace_s, 1.0):.0f}",
        "OOMPolicy=continue",  # the keeper reports it
        f"OOMScoreAdjust={oom_score_adj}",
        f"LimitNOFILE={_OPEN_FILES}",
        "LimitMEMLOCK=infinity",  # for RDMA
        "DevicePolicy=closed",
        "DeviceAllow=char-pts rw",
        *(f"DeviceAllow={path} rw" for path in allowed),
        f"ExecStopPost=-:/bin/sh -c {_quoted(_RECORD_END)} sh {_quoted(records)} {END}",
    ]
    if limits.memory_bytes:
        found.append(f"MemoryMax={max(limits.memory_bytes, _LEAST_MEMORY)}")
    if limits.cpus:
        found.append(f"CPUQuota={limits.cpus * 100}%")
    return found


def _quoted(text: str) -> str:
    """Return one word of a command line as systemd reads it."""
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'


def recorded_end(records: str) -> str:
    """Return how systemd says that a keeper has ended; empty when it has recorded nothing."""
    try:
        with open(os.path.join(records, END), encoding="utf-8", errors="replace") as file:
            result, how, status = file.read(200).split()
    except (OSError, ValueError):
        return ""
    return f"systemd: {result} ({how} {status})"
