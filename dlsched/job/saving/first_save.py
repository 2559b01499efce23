"""What the first checkpoint of a run will need, held against the room and the grace beforehand."""

from __future__ import annotations

import contextlib
import math
import sys
from dataclasses import dataclass

from dlsched.job.saving.checkpoint_folder import CheckpointFolder
from dlsched.job.saving.save_errors import room_in
from dlsched.job.saving.states import States

TRIED_BYTES = 16 << 20  # are written to learn how long the first checkpoint will take
LARGE_BYTES = 4 * TRIED_BYTES  # of a checkpoint for which that is worth while
GIB = 1 << 30


@dataclass(frozen=True, slots=True, kw_only=True)
class FirstSave:
    """What the first checkpoint will need and has, as far as it is known.

    Attributes:
        save_bytes: that it needs.
        room_bytes: that are free where it will be.
        save_s: that it will take about.
    """

    save_bytes: int | None = None
    room_bytes: int | None = None
    save_s: float | None = None


def foresee(folder: CheckpointFolder, states: States, run: int, restored_bytes: int) -> FirstSave:
    """Foresee what the first checkpoint of a run needs; print that there is no room for it.

    The seconds follow from those of a small trial, unless earlier checkpoints were measured.

    Args:
        folder: of the checkpoints.
        states: that it will have.
        run: the number of the run.
        restored_bytes: of the checkpoint at which the run has begun; 0: of none.
    """
    size = restored_bytes or states.known_bytes()
    if not size:
        return FirstSave()
    free = room_in(folder.root)
    room = int(free) if math.isfinite(free) else None
    if free < size:
        print(
            f"dlsched.job: a checkpoint needs {size / GIB:.3g} GiB, and {free / GIB:.3g} GiB are "
            f"free in {folder.root}",
            file=sys.stderr,
        )
    elif size >= LARGE_BYTES and not restored_bytes:
        with contextlib.suppress(OSError):  # the first save will tell
            save_s = folder.seconds_to_write(run, TRIED_BYTES) * size / TRIED_BYTES
            return FirstSave(save_bytes=size, room_bytes=room, save_s=save_s)
    return FirstSave(save_bytes=size, room_bytes=room)
