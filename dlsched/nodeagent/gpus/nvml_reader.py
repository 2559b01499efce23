"""Reads the GPUs through the driver's library; runs in a process of its own.

An optional call may be missing from a driver or not be supported by a GPU: then its value is None.
A GPU has a problem if a required call for it fails; the others are read all the same.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from types import MappingProxyType
from typing import Any

import pynvml

from dlsched.nodeagent.gpus.backend import Gpu, GpuProcess, GpuState, Inventory
from dlsched.protocol.messages import GpuId

_ABSENT = {
    pynvml.NVML_ERROR_NOT_SUPPORTED,
    pynvml.NVML_ERROR_FUNCTION_NOT_FOUND,
    pynvml.NVML_ERROR_NO_DATA,
    pynvml.NVML_ERROR_NOT_FOUND,
    pynvml.NVML_ERROR_NO_PERMISSION,
    pynvml.NVML_ERROR_ARGUMENT_VERSION_MISMATCH,
}
_MISMATCH = getattr(pynvml, "NVMLLibraryMismatchError", pynvml.NVMLError)  # no NVMLError itself
_RECOVERY = 230  # NVML_FI_DEV_GET_GPU_RECOVERY_ACTION
_RECOVERY_WORDS = {1: "needs a reset", 2: "needs a reboot", 3: "drain P2P", 4: "drain and reset"}
_XID_CRITICAL = 0x8
_SLOWED = ((0x40, "too hot"), (0x80, "power brake"), (0x08, "hardware"))  # nvml.h, clock reasons
_EVENT_WAIT_MS = 1
_SHOWN_S = 60.0  # for so long an error of a program is reported
# What an Xid error of the driver concerns, and its name; data, to be edited.
APPLICATION, GPU, NODE = "application", "gpu", "node"
XID_MEANING = MappingProxyType(
    {
        13: (APPLICATION, "graphics engine exception"),
        31: (APPLICATION, "memory page fault"),
        43: (APPLICATION, "a program was stopped"),
        45: (APPLICATION, "preemptive cleanup"),
        48: (GPU, "double-bit ECC error"),
        63: (GPU, "row remapping recorded"),
        64: (GPU, "row remapping failed"),
        74: (GPU, "NVLink error"),
        79: (NODE, "fell off the bus"),
        92: (GPU, "many single-bit ECC errors"),
        94: (GPU, "contained ECC error"),
        95: (NODE, "uncontained ECC error"),
        119: (NODE, "GSP does not answer"),
        120: (NODE, "GSP error"),
    }
)


def meaning_of_xid(xid: int) -> tuple[str, str]:
    """Return what an Xid error concerns and its name; an unknown one concerns the GPU."""
    scope, words = XID_MEANING.get(xid, (GPU, "unknown error"))
    return scope, f"Xid {xid}: {words}"


def optional(call: Callable[..., Any], *arguments: Any) -> Any:
    """Return the result of a call, or None where the driver or the GPU does not support it."""
    try:
        return call(*arguments)
    except pynvml.NVMLError as error:
        if error.value in _ABSENT:
            return None
        raise
    except (AttributeError, TypeError, _MISMATCH):  # an older or newer binding than the driver
        return None


def text(value: Any) -> str:
    """Return a name as text; some bindings return bytes."""
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value)


def short_type(name: str) -> str:
    """Return a short GPU type: `NVIDIA H100 80GB HBM3` is `h100`, `Tesla V100-SXM2-32GB` `v100`."""
    for word in name.replace("-", " ").split():
        small = word.lower()
        if small not in ("nvidia", "tesla", "quadro", "geforce", "rtx", "graphics"):
            return small
    return name.lower()


class NvmlReader:
    """Keeps the library open, and earlier values of counters of which only a change matters."""

    def __init__(self) -> None:
        """Open the library; raises what the library raises when there is no driver."""
        pynvml.nvmlInit()
        self._ecc: dict[GpuId, int] = {}
        self._xids: dict[GpuId, list[int]] = {}
        self._misuses: dict[GpuId, tuple[int, float]] = {}  # the newest Xid of a program, and when
        self._events: Any = None
        self._register_events()

    def _handles(self) -> list[tuple[int, Any]]:
        found = []
        for index in range(pynvml.nvmlDeviceGetCount()):
            try:
                found.append((index, pynvml.nvmlDeviceGetHandleByIndex(index)))
            except pynvml.NVMLError:
                continue  # it fell off the bus: the agent misses its UUID
        return found

    def _register_events(self) -> None:
        self._events = optional(pynvml.nvmlEventSetCreate)
        if self._events is None:
            return
        for _, handle in self._handles():
            supported = optional(pynvml.nvmlDeviceGetSupportedEventTypes, handle)
            if supported is None or supported & _XID_CRITICAL:
                optional(pynvml.nvmlDeviceRegisterEvents, handle, _XID_CRITICAL, self._events)

    # -- what they are -------------------------------------------------------------------------

    def inventory(self) -> Inventory:
        """Return the GPUs and the links between them."""
        found, problem = [], ""
        handles = self._handles()
        for index, handle in handles:
            try:
                uuid = GpuId(text(pynvml.nvmlDeviceGetUUID(handle)))
                numa = optional(getattr(pynvml, "nvmlDeviceGetNumaNodeId", _missing), handle)
                mig = optional(pynvml.nvmlDeviceGetMigMode, handle)
                if mig is not None and mig[0]:
                    problem = f"GPU {index} is in MIG mode"
                found.append(
                    Gpu(
                        uuid=uuid,
                        index=index,
                        type=short_type(text(pynvml.nvmlDeviceGetName(handle))),
                        memory_bytes=int(pynvml.nvmlDeviceGetMemoryInfo(handle).total),
                        numa_node=-1 if numa is None else int(numa),
                        minor=optional(pynvml.nvmlDeviceGetMinorNumber, handle),
                        linked=self._linked(handle, handles),
                    )
                )
            except pynvml.NVMLError as error:
                problem = f"GPU {index} cannot be read: {error}"
        driver = optional(pynvml.nvmlSystemGetDriverVersion)
        return Inventory(
            gpus=tuple(found), driver="" if driver is None else text(driver), problem=problem
        )

    def _linked(self, handle: Any, handles: list[tuple[int, Any]]) -> tuple[GpuId, ...]:
        found = []
        for _, other in handles:
            status = optional(
                pynvml.nvmlDeviceGetP2PStatus, handle, other, pynvml.NVML_P2P_CAPS_INDEX_NVLINK
            )
            if status == pynvml.NVML_P2P_STATUS_OK:
                found.append(GpuId(text(pynvml.nvmlDeviceGetUUID(other))))
        return tuple(found)

    # -- how they are --------------------------------------------------------------------------

    def states(self) -> tuple[GpuState, ...]:
        """Return the present state of each GPU."""
        self._take_events()
        found = []
        for index, handle in self._handles():
            try:
                uuid = GpuId(text(pynvml.nvmlDeviceGetUUID(handle)))
            except pynvml.NVMLError:
                continue
            try:
                found.append(self._state(uuid, handle))
            except pynvml.NVMLError as error:
                found.append(GpuState(uuid=uuid, problem=f"GPU {index} cannot be read: {error}"))
        return tuple(found)

    def _state(self, uuid: GpuId, handle: Any) -> GpuState:
        memory = pynvml.nvmlDeviceGetMemoryInfo(handle)
        rates = optional(pynvml.nvmlDeviceGetUtilizationRates, handle)
        warmth = optional(pynvml.nvmlDeviceGetTemperature, handle, pynvml.NVML_TEMPERATURE_GPU)
        problem, node_problem, after_job = self._health(uuid, handle)
        return GpuState(
            uuid=uuid,
            utilization=None if rates is None else rates.gpu / 100,
            memory_used_bytes=int(memory.used),
            memory_free_bytes=int(memory.free),
            temperature_c=None if warmth is None else float(warmth),
            processes=self._processes(handle),
            problem=problem,
            node_problem=node_problem,
            after_job=after_job,
            slow=_slow(handle),
            misused=self._misused(uuid),
        )

    def _processes(self, handle: Any) -> tuple[GpuProcess, ...] | None:
        plain = _processes_of("Compute", handle)
        shared = _processes_of("MPSCompute", handle)
        if plain is None:
            return None
        found = {}
        for each in [*plain, *(shared or [])]:
            used = each.usedGpuMemory
            found[int(each.pid)] = None if used is None else int(used)
        return tuple(GpuProcess(pid=pid, memory_bytes=used) for pid, used in found.items())

    def _health(self, uuid: GpuId, handle: Any) -> tuple[str, str, str]:
        problems: list[str] = []
        node_problem, after_job = "", ""
        for number in self._xids.get(uuid, []):
            scope, words = meaning_of_xid(number)
            problems.append(words)
            if scope == NODE:
                node_problem = words
        errors = optional(
            pynvml.nvmlDeviceGetTotalEccErrors,
            handle,
            pynvml.NVML_MEMORY_ERROR_TYPE_UNCORRECTED,
            pynvml.NVML_VOLATILE_ECC,
        )
        if errors is not None:
            first = self._ecc.setdefault(uuid, int(errors))
            if int(errors) > first:
                problems.append(f"{int(errors) - first} uncorrected ECC errors")
        rows = optional(pynvml.nvmlDeviceGetRemappedRows, handle)
        if rows is not None:
            _, _, pending, failed = rows
            if failed:
                problems.append("row remapping failed")
            elif pending:
                after_job = "row remapping waits for a reset"
        retired = optional(pynvml.nvmlDeviceGetRetiredPagesPendingStatus, handle)
        if retired:
            after_job = after_job or "retired pages wait for a reset"
        action = self._recovery(handle)
        if action:
            problems.append(action)
        return "; ".join(problems), node_problem, after_job

    def _recovery(self, handle: Any) -> str:
        values = optional(pynvml.nvmlDeviceGetFieldValues, handle, [_RECOVERY])
        if not values or values[0].nvmlReturn != 0:
            return ""
        number = int(values[0].value.uiVal)
        return _RECOVERY_WORDS.get(number, f"recovery action {number}") if number else ""

    def _take_events(self) -> None:
        if self._events is None:
            return
        while True:
            try:
                event = pynvml.nvmlEventSetWait_v2(self._events, _EVENT_WAIT_MS)
            except (pynvml.NVMLError, AttributeError):
                return  # nothing more, or no events here
            if event.eventType & _XID_CRITICAL:
                try:
                    uuid = GpuId(text(pynvml.nvmlDeviceGetUUID(event.device)))
                except pynvml.NVMLError:
                    continue
                number = int(event.eventData)
                if meaning_of_xid(number)[0] == APPLICATION:
                    self._misuses[uuid] = (number, time.monotonic())
                elif number not in (seen := self._xids.setdefault(uuid, [])):
                    seen.append(number)

    def _misused(self, uuid: GpuId) -> str:
        """Return the error of a program on a GPU, while it is new."""
        number, at = self._misuses.get(uuid, (0, -math.inf))
        if time.monotonic() - at > _SHOWN_S:
            return ""
        return f"{meaning_of_xid(number)[1]}, an error of the program"


def _slow(handle: Any) -> str:
    """Return why the hardware lowers a GPU's clocks; empty when it does not."""
    reasons = optional(getattr(pynvml, "nvmlDeviceGetCurrentClocksEventReasons", _missing), handle)
    if reasons is None:
        reasons = optional(
            getattr(pynvml, "nvmlDeviceGetCurrentClocksThrottleReasons", _missing), handle
        )
    words = [word for bit, word in _SLOWED if int(reasons or 0) & bit]
    return f"slowed down: {', '.join(words)}" if words else ""


def _processes_of(kind: str, handle: Any) -> Any:
    """Return a GPU's processes of a kind by the newest call that the driver has."""
    for version in ("", "_v2"):
        name = f"nvmlDeviceGet{kind}RunningProcesses{version}"
        found = optional(getattr(pynvml, name, _missing), handle)
        if found is not None:
            return found
    return None


def _missing(*_: Any) -> None:
    """Stand in for a call that this binding does not have."""
