"""Copies of a training's state in the memory of the host, to be written while it goes on."""

from __future__ import annotations

import copy
import ctypes
import os
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import torch

MOST_THREADS = 4  # that copy; memory is hardly faster with more


class HostCopies:
    """Copies of one state after another; each uses the memory of the one before."""

    def __init__(self) -> None:
        """Hold no memory yet."""
        self._buffers: dict[tuple[object, ...], torch.Tensor] = {}
        self._due: list[tuple[torch.Tensor, torch.Tensor]] = []  # a buffer, and what it will hold

    def of(self, state: Any) -> Any:
        """Return a copy of lists and dicts of tensors; it is valid until the next call."""
        used: dict[tuple[object, ...], torch.Tensor] = {}
        copied = self._copy(state, (), used, {})
        self._buffers = used
        self._copy_memory()
        if any(each.is_pinned() for each in used.values()):
            torch.cuda.synchronize()
        return copied

    def _copy(
        self,
        state: Any,
        path: tuple[object, ...],
        used: dict[tuple[object, ...], torch.Tensor],
        same: dict[object, torch.Tensor],
    ) -> Any:
        """Return a copy of a part of a state.

        Args:
            state: the part.
            path: its keys.
            used: gets the buffers of all tensors, by path.
            same: the copies by tensor: tied weights stay one tensor.
        """
        if isinstance(state, torch.Tensor):
            where = (state.data_ptr(), state.storage_offset(), state.shape, state.stride())
            key = (where, state.dtype, state.device)
            if state.numel() == 0 or key not in same:
                same[key] = used[path] = self._filled(state.detach(), path)
            return same[key]
        if isinstance(state, dict):
            copied = copy.copy(state)  # a state_dict has its versions beside its items
            for name, part in state.items():
                copied[name] = self._copy(part, (*path, name), used, same)
            return copied
        if type(state) in (list, tuple):
            parts = (self._copy(part, (*path, k), used, same) for k, part in enumerate(state))
            return type(state)(parts)
        return copy.deepcopy(state)

    def _filled(self, tensor: torch.Tensor, path: tuple[object, ...]) -> torch.Tensor:
        buffer = self._buffers.get(path)
        if buffer is None or buffer.shape != tensor.shape or buffer.dtype != tensor.dtype:
            buffer = torch.empty(tensor.shape, dtype=tensor.dtype, pin_memory=tensor.is_cuda)
        if tensor.is_cpu and tensor.is_contiguous() and tensor.layout is torch.strided:
            self._due.append((buffer, tensor))
            return buffer
        return buffer.copy_(tensor, non_blocking=tensor.is_cuda)

    def _copy_memory(self) -> None:
        """Copy what is due, byte by byte, in several threads.

        PyTorch's own copy takes three times as long, and its threads wait for each other after each
        tensor.
        """
        due, self._due = self._due, []
        with ThreadPoolExecutor(min(MOST_THREADS, len(os.sched_getaffinity(0)))) as threads:
            list(threads.map(_copy_bytes, due))


def _copy_bytes(pair: tuple[torch.Tensor, torch.Tensor]) -> None:
    buffer, tensor = pair
    ctypes.memmove(buffer.data_ptr(), tensor.data_ptr(), tensor.nbytes)
