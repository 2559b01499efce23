"""A training without PyTorch that is resized in place; the ranks of a later run wait for a file."""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path

from dlsched.job import attach


def main(seen: str, gate: Path, samples: int) -> None:
    """Use each sample once."""
    total = [0]
    with attach(every_s=None, every_steps=5) as job:
        job.checkpoint.register(
            "total",
            save=lambda file: file.write(str(total[0]).encode()),
            load=lambda file: total.__setitem__(0, int(file.read())),
        )
        sampler = job.sampler(samples, seed=1, pad=False)
        while job.runtime.follows and not gate.exists():
            time.sleep(0.02)
        job.restore()
        with Path(f"{seen}.{job.runtime.run}.{job.rank}").open("a", buffering=1) as file:
            for chosen in sampler.batches(1, epochs=1):
                total[0] += 1
                line = {"step": job.steps + 1, "total": total[0], "used": chosen}
                print(json.dumps(line), file=file)
                if not job.step():
                    break
                time.sleep(0.01 if gate.exists() else 0.2)


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]), int(sys.argv[3]))
