"""A training of plain Python: it counts, and says what it resumes, does and saves.

Its words are the number of steps and the seconds of each.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path

from dlsched.job import attach


def main(steps: int, pause: float, *options: str) -> None:
    """Count to `steps`.

    Options are `every=N` (steps between checkpoints), `keep=N`, and `gate=PATH`: half way it waits
    until that file exists, or until it is to stop; with `fails=PATH` it fails there unless that
    file exists.
    """
    given: dict[str, str] = dict(each.split("=") for each in options)
    every = int(given["every"]) if "every" in given else None
    gate = Path(given["gate"]) if "gate" in given else None
    fails = Path(given["fails"]) if "fails" in given else None
    counted = [0]
    with attach(every_s=None, every_steps=every, keep=int(given.get("keep", 2))) as job:
        job.checkpoint.register(
            "count",
            save=lambda file: file.write(str(counted[0]).encode()),
            load=lambda file: counted.__setitem__(0, int(file.read())),
        )
        first = job.restore()
        print(f"from {first} with {counted[0]}", flush=True)
        saved = job.checkpoint.saved_step
        for _ in range(first, steps):
            while gate is not None and counted[0] == steps // 2 and not gate.exists():
                job.deadline()  # takes the keeper's messages
                if not job.lease:
                    break
                time.sleep(0.02)
            if fails is not None and counted[0] == steps // 2 and not fails.exists():
                sys.exit(3)
            counted[0] += 1
            time.sleep(pause)
            go_on = job.step(loss=1 / counted[0])
            if job.checkpoint.saved_step != saved:
                saved = job.checkpoint.saved_step
                print(f"saved {saved}", flush=True)
            if not go_on:
                break
    print(f"done {counted[0]}", flush=True)


if __name__ == "__main__":
    main(int(sys.argv[1]), float(sys.argv[2]), *sys.argv[3:])
