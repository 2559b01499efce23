"""Pretended GPUs: stable names and the memory of their type, without any device."""

from __future__ import annotations

import re
import uuid

from dlsched.core.errors import BadInput
from dlsched.nodeagent.gpus.backend import Gpu, GpuState, Inventory
from dlsched.protocol.messages import GpuId

GIB = 1024**3
MEMORY_GIB = {
    "k80": 12,
    "p100": 16,
    "v100": 32,
    "t4": 16,
    "a10": 24,
    "a100": 80,
    "l40s": 48,
    "h100": 80,
    "h200": 141,
    "b200": 180,
}
MOST = 64
_NAMESPACE = uuid.UUID("5f0c8a58-3bb5-5d2e-9a3c-6d6c73636865")
_PART = re.compile(r"(\d{1,3}):([A-Za-z0-9][A-Za-z0-9._-]{0,31})")


def fake_uuid(node: str, index: int) -> GpuId:
    """Return the UUID of a pretended GPU: the same at every start of a node of this name."""
    return GpuId(f"GPU-{uuid.uuid5(_NAMESPACE, f'{node}/{index}')}")


class FakeGpus:
    """Pretended GPUs of one node."""

    def __init__(self, node: str, text: str) -> None:
        """Read `8:v100` or `4:v100+4:a100`; `0` is a node without GPUs.

        Raises:
            BadInput: when the text is anything else.
        """
        types: list[str] = []
        for part in text.split("+") if text != "0" else []:
            match = _PART.fullmatch(part)
            if match is None:
                raise BadInput(f"--fake-gpus {text!r}: N:TYPE is expected, joined by +")
            types += [match.group(2).lower()] * int(match.group(1))
        if len(types) > MOST:
            raise BadInput(f"--fake-gpus {text!r}: at most {MOST} on a node")
        names = [fake_uuid(node, k) for k in range(len(types))]
        self._inventory = Inventory(
            gpus=tuple(
                Gpu(
                    uuid=name,
                    index=index,
                    type=kind,
                    memory_bytes=MEMORY_GIB.get(kind, 16) * GIB,
                    minor=index,  # of a stand-in for its device node, where there is one
                    linked=tuple(n for n, t in zip(names, types, strict=True) if t == kind),
                )
                for index, (name, kind) in enumerate(zip(names, types, strict=True))
            ),
            driver="fake",
        )

    def inventory(self) -> Inventory:
        """Return the GPUs."""
        return self._inventory

    def states(self) -> tuple[GpuState, ...]:
        """Return that all GPUs are healthy."""
        return tuple(GpuState(uuid=gpu.uuid) for gpu in self._inventory.gpus)

    def close(self) -> None:
        """Do nothing."""
