"""Runs a training that waits after given steps until it is asked to stop, and notes its losses.

    python held_program.py FOLDER STEPS PROGRAM [ARGUMENT...]

STEPS is 5,12: the first run waits after step 5, the second after step 12, later ones nowhere. The
file FOLDER/held-RUN says that a run waits. FOLDER/losses gets the loss of each step, as rank 0
tells it to the job library. The training's own program is not changed.
"""

from __future__ import annotations

import runpy
import sys
import time
from pathlib import Path

from dlsched.job import Job

folder, steps, *sys.argv = Path(sys.argv[1]), sys.argv[2], *sys.argv[3:]
HELD = dict(enumerate((int(step) for step in steps.split(",") if step), 1))
SELDOM = {"dlsched.job.elastic": "LOSS_EVERY_S", "dlsched.job.frameworks.lightning": "REPORT_S"}
plain_step = Job.step


def step(job: Job, **numbers: float) -> bool:
    """Note a step, after a pause where this run is to be stopped."""
    for name, seconds in SELDOM.items():  # between two losses that a loop tells
        if name in sys.modules:
            setattr(sys.modules[name], seconds, 0.0)
    run = job.runtime.run
    if job.steps + 1 == HELD.get(run):
        (folder / f"held-{run}").touch()
        while job.lease and not (folder / f"let-go-{run}").exists():
            job.deadline()  # takes the keeper's messages
            time.sleep(0.02)
        (folder / f"let-go-{run}").touch()  # for ranks that are not told before the others
    if job.rank == 0 and numbers.get("loss") is not None:
        with (folder / "losses").open("a") as losses:
            print(job.steps + 1, repr(float(numbers["loss"])), file=losses)
    return plain_step(job, **numbers)


Job.step = step  # type: ignore[method-assign]
runpy.run_path(sys.argv[0], run_name="__main__")
