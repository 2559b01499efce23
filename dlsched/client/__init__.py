"""The client: what a user's program needs to talk to the daemon, and nothing heavier than gRPC.

with Client() as cluster:
    job = cluster.submit(["python", "train.py"], gpus="a100:8", time="2h")
    cluster.wait(job)
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dlsched.client.cluster import Client as Client

__all__ = ["Client"]

_WHERE = {"Client": "dlsched.client.cluster"}


def __getattr__(name: str) -> Any:
    """Import when asked for: the pure parts below must not load gRPC."""
    if name in _WHERE:
        return getattr(importlib.import_module(_WHERE[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
