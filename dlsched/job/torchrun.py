"""torchrun for jobs with changing GPUs: `python -m dlsched.job.torchrun train.py …` on each node.

The scheduler gives the numbers of nodes and ranks, this node's place and the address of the first
node. All other options are torchrun's. torchrun exits with 1 when any rank fails; this program
exits with 143 when the ranks have stopped because they were asked to, so that the scheduler knows
that nothing has failed.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from typing import Any

from dlsched.job.errors import JobError
from dlsched.job.runtime import PREEMPTED, Runtime


def options(environment: Mapping[str, str]) -> list[str]:
    """Return torchrun's options for this node; none without a scheduler.

    Raises:
        JobError: in a batch script of a job on several nodes, which runs on the first one alone.
    """
    runtime = Runtime.of(environment)
    if not runtime.job:
        return []
    nodes = environment.get("DLSCHED_NNODES", "1")
    gpus = environment.get("DLSCHED_GPUS_ON_NODE", "")
    here = f"--nproc-per-node={gpus if gpus not in ('', '0') else 1}"
    if not environment.get("NODE_RANK"):  # a batch script
        if nodes != "1":
            raise JobError(
                f"the job has {nodes} nodes, and a batch script runs on the first one: start it on "
                f"each with --launch node, or with 'dlsched run --ntasks-per-node 1' in it"
            )
        return ["--standalone", here]
    return [
        f"--nnodes={nodes}",
        here,
        f"--node-rank={runtime.node_rank}",
        f"--master-addr={runtime.master_addr}",
        f"--master-port={runtime.master_port}",
    ]


def main(words: Sequence[str] | None = None) -> int:
    """Start this node's ranks and wait for them; return the exit code."""
    from torch.distributed import run  # noqa: PLC0415
    from torch.distributed.elastic.multiprocessing.api import SignalException  # noqa: PLC0415
    from torch.distributed.elastic.multiprocessing.errors import ChildFailedError  # noqa: PLC0415

    launcher: Any = run

    try:
        given = launcher.parse_args(
            [*options(os.environ), *(sys.argv[1:] if words is None else words)]
        )
    except JobError as error:
        print(f"dlsched.job.torchrun: {error}", file=sys.stderr)
        return 2
    try:
        launcher.run(given)
    except ChildFailedError as error:
        _, first = error.get_first_failure()
        if first.exitcode == PREEMPTED:
            return PREEMPTED
        print(error, file=sys.stderr)
        return first.exitcode if first.exitcode > 0 else 128 - first.exitcode
    except SignalException as error:
        return 128 + int(error.sigval)
    return 0


if __name__ == "__main__":
    sys.exit(main())
