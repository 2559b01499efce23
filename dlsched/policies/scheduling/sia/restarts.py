"""What a move costs a job, as a factor: the part of its life that it would not have lost.

    r = max(T − N·S, 0) / (T + S)

T seconds since its submit, N restarts so far, S seconds that one takes. Whatever it does not have
now is worth r times as much. A job younger than S (one that cannot adapt: with less service than
S) loses nothing, since nothing has been gained yet.
"""

from __future__ import annotations

import numpy as np

from dlsched.core.arrays import Bools, Floats, Ints
from dlsched.policies.scheduling.sia.configurations import NONE

__all__ = ["charge_moves", "restart_factor"]


def restart_factor(
    age: Floats, restarts: Ints, restart_s: Floats, service: Floats | None = None
) -> Floats:
    """The factor r of each job.

    Args:
        age: seconds since the submit.
        restarts: how often it has been started again.
        restart_s: seconds that a restart costs it.
        service: what is held against `restart_s` to see whether it is young; its age when None.
    """
    young = (age if service is None else service) < restart_s
    kept = np.maximum(age - restarts * restart_s, 0.0) / np.maximum(age + restart_s, 1e-9)
    return np.where(young, 1.0, kept)


def charge_moves(worth: Floats, now: Ints, factor: Floats, *, single: bool = False) -> Floats:
    """G with what a job does not have now scaled by r; who has nothing moves for nothing.

    Args:
        worth: G, [job, configuration].
        now: what each job has, NONE for nothing.
        factor: r.
        single: multiply in single precision, as the published code does.
    """
    some: Bools = now != NONE
    scale = np.where(some, factor, 1.0)[:, None]
    if single:
        charged = (worth.astype(np.float32) * scale.astype(np.float32)).astype(np.float64)
    else:
        charged = worth * scale
    at = np.flatnonzero(some)
    charged[at, now[at]] = worth[at, now[at]]
    return charged
