"""The node agent: one process a node that carries out what the leader wants of it.

`main` is the agent. Each run has a keeper, a small process forked by the *zygote*: it is the parent
of the job, outlives the agent and writes down how the run ended. Modules that a keeper imports
(`keeping` and all it needs) use the standard library's light modules and `dlsched.protocol` only.
"""

from __future__ import annotations

from collections.abc import Sequence

__all__ = ["main"]


def main(argv: Sequence[str]) -> int:
    """Run an agent until it is asked to leave; the exit code."""
    from dlsched.nodeagent.start import start  # noqa: PLC0415  # keepers import this package too

    return start(argv)
