"""The client of the daemon, for Python programs and for the command line; it needs only gRPC.

Example:
    from dlsched.client import Client

    with Client() as cluster:
        job = cluster.submit(["python", "train.py"], gpus="a100:8", time="2h")
        print(cluster.wait_for(job).state)
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dlsched.client.daemon_client import Client as Client

__all__ = ["Client"]

_MODULES = {"Client": "dlsched.client.daemon_client"}


def __getattr__(name: str) -> Any:
    """Import a name when it is used first: the other modules here work without gRPC."""
    if name in _MODULES:
        return getattr(importlib.import_module(_MODULES[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
