"""A training that reports: numbers of its own, as often as the library sends them.

python reporting_program.py STEPS PAUSE_S [NAN_FROM]
"""

from __future__ import annotations

import math
import sys
import time

from dlsched.job import attach

steps, pause = int(sys.argv[1]), float(sys.argv[2])
nan_from = int(sys.argv[3]) if len(sys.argv) > 3 else steps
with attach() as job:
    for step in range(job.restore(), steps):
        time.sleep(pause)
        loss = math.nan if step >= nan_from else 2.0 / (step + 1)
        many = {f"m{k}": float(k) for k in range(40)} if step == 0 else {}
        if not job.step(loss=loss, accuracy=step / steps, samples=64, **many):
            break
