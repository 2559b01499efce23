"""What systemd is asked for: one transient service a run, and what is true of systemd here.

A unit's name is `dls-JOB-RUN-RANK.service`, so that a drop-in in `dls-.service.d` holds for all.
Device rules are the unit's own properties, and so survive a reload of systemd; limits are promised
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
END = "unit-end"  # in a run's records: how systemd saw the end of a keeper that left no word
_BESIDE_GPUS = ("ctl", "-uvm", "-uvm-tools", "-modeset")
_NETWORK = "/dev/infiniband/*"
_OPEN_FILES = 65536
_PROBE_S = 20.0
# Strict rules: /dev/zero opens only where systemd's rules are not put into force.
_PROBE = "! (: </dev/zero) 2>/dev/null"
_TELL = (
    'test -e "$1/run.json" && test ! -e "$1/exit.json" && umask 077 && '
    'echo "$SERVICE_RESULT" "$EXIT_CODE" "$EXIT_STATUS" >"$1/$2.new" && mv "$1/$2.new" "$1/$2"'
)


def unit_name(desired: DesiredRun, rank: int) -> str:
    """A run's unit on one node."""
    return f"dls-{int(desired.key.job)}-{int(desired.key.run)}-{rank}.service"


def can_be_asked() -> bool:
    """Whether there is a program to ask systemd for units with."""
    return shutil.which("systemd-run") is not None


def enforces_devices() -> bool:
    """Whether a unit's device rules are in force here, by trying; False when no unit starts."""
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
    """The device nodes that a run may open, beside the harmless ones of every unit."""
    numbers = [minors.get(gpu) for gpu in granted]
    paths = [f"{prefix}{number}" for number in numbers if number is not None]
    if numbers:
        paths += [prefix + name for name in _BESIDE_GPUS]
    paths += sorted(glob.glob(_NETWORK))
    return [path for path in paths if os.path.exists(path)]


def properties(
    desired: DesiredRun, *, records: str, allowed: Iterable[str], oom_score_adj: int
) -> list[str]:
    """A run's unit."""
    limits = desired.limits
    found = [
        f"Description=Job {int(desired.key.job)}, run {int(desired.key.run)}",
        "Delegate=yes",
        "KillMode=mixed",
        f"TimeoutStopSec={max(desired.grace_s, 1.0):.0f}",
        "OOMPolicy=continue",  # the keeper tells of it
        f"OOMScoreAdjust={oom_score_adj}",
        f"LimitNOFILE={_OPEN_FILES}",
        "LimitMEMLOCK=infinity",  # of RDMA
        "DevicePolicy=closed",
        "DeviceAllow=char-pts rw",
        *(f"DeviceAllow={path} rw" for path in allowed),
        f"ExecStopPost=-:/bin/sh -c {_quoted(_TELL)} sh {_quoted(records)} {END}",
    ]
    if limits.memory_bytes:
        found.append(f"MemoryMax={limits.memory_bytes}")
    if limits.cpus:
        found.append(f"CPUQuota={limits.cpus * 100}%")
    return found


def _quoted(text: str) -> str:
    """One word of a command line as systemd reads it."""
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'


def told_end(records: str) -> str:
    """What systemd says of a keeper's end, in words; empty when it says nothing."""
    try:
        with open(os.path.join(records, END), encoding="ascii", errors="replace") as file:
            result, how, status = file.read(200).split()
    except (OSError, ValueError):
        return ""
    return f"systemd: {result} ({how} {status})"
