"""The node agent: the process on each node that carries out what the leader wants of the node.

`main` is the agent. Each run has a keeper, a small process that the *zygote* forks. It is the
parent of the job, outlives the agent and writes down how the run ended. Modules that a keeper
imports (`keeper.keeper_process` and all it needs) use only light modules of the standard library,
`dlsched.protocol` and `dlsched.system`.
"""

from __future__ import annotations

from collections.abc import Sequence

__all__ = ["main"]


def main(argv: Sequence[str]) -> int:
    """Run an agent until it is asked to leave; return its exit code."""
    from dlsched.nodeagent.agent.main import run_agent  # noqa: PLC0415  # keepers import this package too

    return run_agent(argv)
