"""How long a step waits for a checkpoint: `python benchmarks/background_saves.py`.

A model of 1 GB is saved by steps in turn: while the step waits, and in the background. Both are
measured in one run, on the same disk. The first save in the background also allocates its memory.
"""

from __future__ import annotations

import argparse
import os
import shutil
import statistics
import sys
import tempfile
import time
from pathlib import Path

if __package__ in (None, ""):  # run as a script: the project's own folder comes first
    sys.path.insert(0, str(Path(__file__).parent.parent))

from benchmarks.measure import heading
from dlsched.job import Job, attach

LAYERS = 64


def pauses(job: Job, saves: int) -> dict[str, list[tuple[float, float]]]:
    """Return the times of steps that save, by how: "waits", "first", "background".

    Each is the seconds that passed, and the CPU seconds of the thread that trains: the latter do
    not depend on what else the machine does.
    """
    found: dict[str, list[tuple[float, float]]] = {"waits": [], "first": [], "background": []}
    for turn in range(2 * saves):
        job.checkpoint.background = turn % 2 == 1
        how = "waits" if turn % 2 == 0 else "background" if turn > 1 else "first"
        begun, worked = time.perf_counter(), time.thread_time()
        job.step()  # it saves, by every_steps
        found[how].append((time.perf_counter() - begun, time.thread_time() - worked))
        job.checkpoint.close()  # waits until the background has written
    return found


def main() -> None:
    """Measure, and print a table in Markdown."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--gigabytes", type=float, default=1.0, help="of weights")
    parser.add_argument("--saves", type=int, default=5, help="of each kind")
    parser.add_argument("--folder", default=None, help="of the checkpoints")
    given = parser.parse_args()
    import torch  # noqa: PLC0415

    from dlsched.job.torch import register_training  # noqa: PLC0415

    numbers = int(given.gigabytes * 1e9 / 4 / LAYERS)
    weights = torch.nn.ParameterList(torch.randn(numbers) for _ in range(LAYERS))
    folder = Path(tempfile.mkdtemp(prefix="saves", dir=given.folder))
    try:
        with attach(folder=folder, every_s=None, every_steps=1, environment={}) as job:
            register_training(job, model=weights)
            found = pauses(job, given.saves)
    finally:
        shutil.rmtree(folder)
    print(heading())
    print(f"\n{os.cpu_count()} cores, {given.gigabytes:g} GB of weights\n")
    print("| a step that saves | s, median | of waiting | CPU s | of waiting |")
    print("| --- | --- | --- | --- | --- |")
    rows = {
        how: [statistics.median(each) for each in zip(*found[how], strict=True)] for how in found
    }
    for how, middle in rows.items():
        parts = (f"{a:.2f} | {a / b:.3f}" for a, b in zip(middle, rows["waits"], strict=True))
        print(f"| {how} | {' | '.join(parts)} |")


if __name__ == "__main__":
    main()
