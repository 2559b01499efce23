"""Ranks of which one fails, or hangs, in the middle of a training.

    python failing_program.py fail|exit|hang|evaluate|ddp RANK STEP [GATE]

`ddp` fails as `fail` does, in a training with PyTorch. With GATE, no rank goes on from that step
before there is a file of this name and the run has lasted too long to pause after it has failed.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path

from dlsched.job import attach
from dlsched.protocol.ledger.ends import pause_after

began_at = time.monotonic()  # its run has executed since before
what, bad_rank, bad_step = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
gate = Path(sys.argv[4]) if len(sys.argv) > 4 else None


def may_be_repeated() -> bool:
    """Whether the run, if it fails now, is repeated in place on a machine of any speed."""
    return time.monotonic() - began_at > pause_after(1)


def read_batch(rank: int, step: int) -> float:
    """Give a batch, unless this is the rank and the step at which something goes wrong."""
    while step == bad_step and gate is not None and not (gate.exists() and may_be_repeated()):
        time.sleep(0.05)
    mark = Path(f"went-wrong-{job.runtime.job}")
    if rank == bad_rank and step == bad_step and not mark.exists():
        mark.touch()
        if what in ("fail", "ddp"):
            raise ValueError("shard 17 is truncated")
        if what == "exit":
            sys.exit(7)
        if what == "hang":
            time.sleep(3600)
    return 1.0


with attach(every_steps=5) as job:
    learn = float
    if what == "ddp":
        import torch
        from torch.nn.parallel import DistributedDataParallel

        from dlsched.job.torch import init_process_group

        init_process_group(job)
        model = DistributedDataParallel(torch.nn.Linear(8, 1))

        def learn(value: float) -> float:  # type: ignore[misc]
            """Give the loss of a batch."""
            loss = model(torch.full((4, 8), value)).pow(2).mean()
            loss.backward()
            return float(loss)

    job.checkpoint.register("nothing", save=lambda file: file.write(b"x"), load=lambda file: None)
    for step in range(job.restore(), bad_step + 20):
        time.sleep(0.05)
        loss = learn(read_batch(job.rank, step))
        if what == "evaluate" and step == bad_step:
            with job.evaluating():
                time.sleep(9.0)
        if not job.step(loss=loss):
            break
