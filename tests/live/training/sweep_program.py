"""A training of a sweep: its loss says how far a learning rate is from the best one, 0.3.

python sweep_program.py LR FOLDER

The rate comes as an argument and as the variable `lr`. It trains until FOLDER has a file `enough`.
"""

from __future__ import annotations

import math
import os
import sys
import time
from pathlib import Path

from dlsched.job import attach

rate, enough = float(sys.argv[1]), Path(sys.argv[2]) / "enough"
variables = dict(os.environ)
assert variables["lr"] == sys.argv[1]
print(f"rate {variables['lr']} note {variables['note']}")
with attach() as job:
    while not enough.exists():
        time.sleep(0.02)
        diverges = rate > 1 and job.steps > 5
        loss = math.nan if diverges else abs(rate - 0.3) + 1.0 / (job.steps + 1)
        if not job.step(loss=loss, rate=rate):
            break
