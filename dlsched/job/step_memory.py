"""What memory a process holds between its steps, and the most within one.

On a GPU PyTorch counts it; a process holds more there than it has allocated, `CONTEXT` bytes, which
count as held all the time. Without a GPU it is the resident memory of the process, as the kernel
counts it. The CUDA part has not been tried on a GPU yet.
"""

from __future__ import annotations

import contextlib
import ctypes
import sys
from pathlib import Path
from typing import Any, Protocol

CONTEXT = 512 * 1024**2  # bytes of a CUDA context and its libraries: 300 to 600 MiB


class StepMemory(Protocol):
    """Measures the memory of steps, one after another."""

    def held(self) -> int:
        """The bytes that this process holds now."""

    def begin(self, most: int | None) -> None:
        """A step begins, in which this process may hold so many bytes."""

    def end(self, *, give_back: bool) -> tuple[int, int]:
        """A step has ended.

        Args:
            give_back: return what it has freed, so that other processes can have it.

        Returns:
            The bytes that are held now, and the most that were held during the step.
        """


def step_memory() -> StepMemory:
    """Return what measures this process: its GPU where PyTorch uses one, else its own memory."""
    torch = sys.modules.get("torch")
    if torch is not None and hasattr(torch, "cuda") and torch.cuda.is_initialized():
        return CudaMemory(torch)
    return ResidentMemory()


class CudaMemory:
    """The memory of PyTorch's current GPU."""

    def __init__(self, torch: Any) -> None:
        """Measure with this module `torch`."""
        self._cuda = torch.cuda

    def held(self) -> int:
        """The bytes that this process holds now."""
        return int(self._cuda.memory_allocated()) + CONTEXT

    def begin(self, most: int | None) -> None:
        """Limit the allocator, and count the most anew."""
        if most is not None:
            total = self._cuda.get_device_properties(self._cuda.current_device()).total_memory
            part = min(1.0, max(most - CONTEXT, 0) / total)
            self._cuda.set_per_process_memory_fraction(part)
        self._cuda.reset_peak_memory_stats()

    def end(self, *, give_back: bool) -> tuple[int, int]:
        """Wait for the GPU, and give unused blocks back if others need them."""
        self._cuda.synchronize()
        most = int(self._cuda.max_memory_allocated()) + CONTEXT
        if give_back:
            self._cuda.empty_cache()
        return self.held(), most


class ResidentMemory:
    """The resident memory of this process."""

    def held(self) -> int:
        """The bytes that this process holds now."""
        return _status("VmRSS:")

    def begin(self, most: int | None) -> None:
        """Have the kernel count the most anew; there is no limit to set."""
        del most
        with contextlib.suppress(OSError):  # then it counts since the start of the process
            Path("/proc/self/clear_refs").write_text("5", encoding="ascii")

    def end(self, *, give_back: bool) -> tuple[int, int]:
        """Give freed pages back if others need them."""
        most = _status("VmHWM:")
        if give_back:
            with contextlib.suppress(OSError, AttributeError):  # a C library without it
                ctypes.CDLL(None).malloc_trim(0)
        held = self.held()
        return held, max(most, held)


def _status(name: str) -> int:
    """Return a line of /proc/self/status, in bytes; 0 where there is none."""
    with contextlib.suppress(OSError):
        for line in Path("/proc/self/status").read_bytes().splitlines():
            if line.startswith(name.encode()):
                return int(line.split()[1]) * 1024
    return 0
