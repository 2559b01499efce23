"""CUDA checkpoints of a job's processes, by the driver's own tool `cuda-checkpoint`.

A checkpoint moves device memory to host memory and releases the GPUs; a restore reverses both. The
calls run in a process of their own, as root, in the job's process-id namespace. Each lock has a
time limit. A failure before the first checkpoint unlocks all processes, so the job runs on; a later
failure leaves a job that must be killed, and the outcome says so.
"""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

LOCK_TIMEOUT_S = 10.0
STEP_LIMIT_S = 120.0  # for one checkpoint or restore, which copies a whole GPU's memory
_HEADROOM, _RESERVE = 1.02, 512 * 1024**2


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """The outcome of a suspension or a resumption."""

    done: bool
    why: str = ""
    lost: bool = False  # the processes cannot go on
    lock_s: float = 0.0
    copy_s: float = 0.0


def holders(pids: Iterable[int], device_prefix: str) -> list[int]:
    """Return the processes that have a GPU open."""
    return [pid for pid in pids if _holds(pid, device_prefix)]


def none_holds(pids: Iterable[int], device_prefix: str) -> bool:
    """Whether certainly no process has a GPU open: one that cannot be inspected may have one."""
    for pid in pids:
        try:
            os.listdir(f"/proc/{pid}/fd")
        except (FileNotFoundError, ProcessLookupError):
            continue
        except OSError:
            return False
        if _holds(pid, device_prefix):
            return False
    return True


def _holds(pid: int, prefix: str) -> bool:
    folder = f"/proc/{pid}/fd"
    try:
        names = os.listdir(folder)
    except OSError:
        return False
    for name in names:
        try:
            target = os.readlink(f"{folder}/{name}")
        except OSError:
            continue
        if target.startswith(prefix) and not target.endswith("ctl"):
            return True
    return False


def may_suspend(pids: Sequence[int], gpu_bytes: int, available_bytes: int) -> str:
    """Return why these processes cannot be checkpointed; empty when they can.

    `available_bytes` of host memory are free for the job's GPU memory.
    """
    if not pids:
        return "no process has a GPU open"
    if len(pids) > 1:
        return f"{len(pids)} processes have a GPU open"
    if gpu_bytes > available_bytes:
        return "not enough host memory for the GPUs' memory"
    return ""


def may_resume(saved_bytes: int, free_bytes: int) -> bool:
    """Whether a restore has room on the GPUs; one that fails without it is final."""
    return free_bytes >= saved_bytes * _HEADROOM + _RESERVE


def available_memory() -> int:
    """Return the host memory that is available, in bytes."""
    with open("/proc/meminfo", encoding="utf-8") as file:
        for line in file:
            if line.startswith("MemAvailable:"):
                return int(line.split()[1]) * 1024
    return 0


def suspend(tool: str, pids: Sequence[int], lock_timeout_s: float = LOCK_TIMEOUT_S) -> Outcome:
    """Lock all processes, then checkpoint each."""
    begun = time.monotonic()
    locked: list[int] = []
    for pid in pids:
        limit = str(int(lock_timeout_s * 1000))
        why = _act(tool, pid, "lock", lock_timeout_s + 2, "--timeout", limit)
        if why:
            for each in [*locked, pid]:
                _act(tool, each, "unlock", lock_timeout_s)
            return Outcome(done=False, why=why, lost=not _alive(pid))
        locked.append(pid)
    lock_s = time.monotonic() - begun
    for place, pid in enumerate(pids):
        why = _act(tool, pid, "checkpoint", STEP_LIMIT_S)
        if why:
            if place == 0:
                unlocked = [not _act(tool, each, "unlock", lock_timeout_s) for each in pids]
                return Outcome(done=False, why=why, lost=not all(unlocked) or not _alive(pid))
            return Outcome(done=False, why=why, lost=True)
    return Outcome(done=True, lock_s=lock_s, copy_s=time.monotonic() - begun - lock_s)


def resume(tool: str, pids: Sequence[int]) -> Outcome:
    """Restore each process, then unlock each."""
    begun = time.monotonic()
    for action in ("restore", "unlock"):
        for pid in pids:
            why = _act(tool, pid, action, STEP_LIMIT_S)
            if why:
                return Outcome(done=False, why=why, lost=True)
    return Outcome(done=True, copy_s=time.monotonic() - begun)


def _alive(pid: int) -> bool:
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            return file.read().rpartition(b")")[2].split()[0] not in (b"Z", b"X")
    except OSError:
        return False


def _act(tool: str, pid: int, action: str, limit_s: float, *more: str) -> str:
    """Run the tool once; return why it failed, or an empty text."""
    command = [tool, "--action", action, "--pid", str(pid), *more]
    try:
        running = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            start_new_session=True,
        )
    except OSError as error:
        return f"{tool}: {error.strerror}"
    try:
        _, errors = running.communicate(timeout=limit_s)
    except subprocess.TimeoutExpired:
        os.killpg(running.pid, signal.SIGKILL)
        running.communicate()
        return f"cuda-checkpoint {action} of process {pid} hangs"
    if running.returncode == 0:
        return ""
    lines = errors.decode("utf-8", "replace").strip().splitlines()
    return f"cuda-checkpoint {action} of process {pid}: {lines[-1] if lines else 'failed'}"
