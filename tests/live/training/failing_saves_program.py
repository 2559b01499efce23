"""A training whose checkpoints fail, by the words after its steps and their length.

python failing_saves_program.py STEPS PAUSE_S BYTES
    [FILE_LIMIT | broken RANK | slow SECONDS | large | never]

Every step saves BYTES. Files may have FILE_LIMIT bytes at most after step 2; rank RANK cannot save
after step 2; a save takes SECONDS, or its size is known, and it comes at a stop only; or nothing is
saved, and the program does not leave when it is asked to stop. While the file `mended` is in the
working directory, no save fails.
"""

from __future__ import annotations

import resource
import sys
import time
from pathlib import Path
from typing import BinaryIO

from dlsched.job import attach

steps, pause, size = int(sys.argv[1]), float(sys.argv[2]), int(sys.argv[3])
what, number = ([*sys.argv[4:], "", "0"])[:2]
MENDED = Path("mended")

with attach(every_steps=None if what in ("slow", "large") else 1, every_s=None) as job:

    def save(file: BinaryIO) -> None:
        """Write the state, or fail."""
        if what == "slow":
            time.sleep(float(number))
        if what == "broken" and job.steps > 2 and job.rank == int(number) and not MENDED.exists():
            raise RuntimeError("a state of its own cannot be written")
        file.write(bytes(size))

    if what != "never":
        known = (lambda: size) if what == "large" else None
        job.checkpoint.register(
            "state", save=save, load=lambda file: None, each_rank=True, size=known
        )
    begins = job.restore()
    print("begins at", begins, flush=True)
    for _ in range(begins, steps):
        if what.isdigit():
            most = resource.RLIM_INFINITY
            if job.steps > 1 and not MENDED.exists():
                most = int(what)
            resource.setrlimit(resource.RLIMIT_FSIZE, (most, resource.RLIM_INFINITY))
        time.sleep(pause)
        if not job.step():
            time.sleep(600 if what == "never" else 0)
            break
