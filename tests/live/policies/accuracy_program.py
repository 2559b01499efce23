"""A training that makes as many steps as a file says: `python accuracy_program.py FOLDER`.

Its accuracy is step / 100. It waits for FOLDER/steps to become larger, and ends when the scheduler
asks for it; then it leaves FOLDER/saved with the steps that it has saved.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path

from dlsched.job import attach

folder = Path(sys.argv[1])
done = 0
with attach() as job:
    going = True
    while going:
        time.sleep(0.05)
        done = min(done + 1, int((folder / "steps").read_text()))
        going = job.step(loss=1.0 / (done + 1), accuracy=done / 100)
    (folder / "saved").write_text(str(done))
