"""Ranks of PyTorch of which rank 1 fails at once; the others wait for it.

    python gloo_program.py raise|exit|kill|crash|late|cleanup

They do not use the job library. With `late`, the others raise an error of their own too; with
`cleanup`, they have left before rank 1 does.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys
import time
import traceback

import torch.distributed as dist

what = sys.argv[1]
dist.init_process_group("gloo")
dist.barrier()
if dist.get_rank() == 1:
    time.sleep(0.5)  # the others wait for this rank by then
    if what == "exit":
        sys.exit(7)
    if what == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    if what == "crash":
        ctypes.string_at(0)
    try:
        raise ValueError("shard 17 is truncated")
    except ValueError:
        if what != "cleanup":
            raise
        traceback.print_exc()
        dist.destroy_process_group()
        time.sleep(600)  # the scheduler ends it, because another rank has failed
try:
    dist.barrier()
except RuntimeError:
    if what == "late":
        raise KeyError("no barrier") from None
    raise
