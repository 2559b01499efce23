"""What an Xid error of the driver means for its GPU and its node; data, to be edited."""

from __future__ import annotations

from types import MappingProxyType

APPLICATION, GPU, NODE = "application", "gpu", "node"
MEANING = MappingProxyType(
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


def meaning(xid: int) -> tuple[str, str]:
    """Whose fault it is, and what it is called; an unknown one is the GPU's."""
    scope, words = MEANING.get(xid, (GPU, "unknown error"))
    return scope, f"Xid {xid}: {words}"
