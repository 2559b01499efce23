"""What is done when an estimate was wrong: a second copy of the task, where it helps.

Schedulers do not prevent conflicts: two tasks that are sent to one node simply queue there. Only a
harmful conflict is corrected, by a copy elsewhere; when one copy starts, the other is taken back.

Paper: sections 3.5 and 4; its section 5 counts the triggers.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Trigger(StrEnum):
    """Why a task is looked at again."""

    WORSE = "wait-is-worse"  # than at the decision
    SLOW = "wait-above-mean"  # of its stage, as expected now
    WAITED = "waited-above-mean"  # of its stage, until now
    STRAGGLER = "straggler"  # it runs, and a fresh copy would be done before it


@dataclass(frozen=True, slots=True, kw_only=True)
class Tolerance:
    """How much worse than expected is significant: both must hold.

    Attributes:
        factor: times the wait at the decision.
        seconds: more than it.
    """

    factor: float = 1.5
    seconds: float = 30.0


def trigger(
    told: float, waited: float, left: float, mean: float | None, tolerance: Tolerance
) -> Trigger | None:
    """Why a waiting task is looked at again; None: it is left alone.

    Args:
        told: the wait that was expected at the decision, in seconds.
        waited: so far.
        left: still to wait, as its node says now.
        mean: of the waits of its stage; None: no task of it has started yet.
        tolerance: what counts as significantly worse.
    """
    expected = waited + left
    if expected > tolerance.factor * told and expected > told + tolerance.seconds:
        return Trigger.WORSE
    if mean is not None and expected > mean:
        return Trigger.WAITED if waited > mean else Trigger.SLOW
    return None


def is_straggler(left: float, fresh: float) -> bool:
    """Whether a copy is to run beside a running task.

    Args:
        left: seconds that the task still needs, by its progress.
        fresh: seconds until a copy would be done elsewhere, by the means of its stage.
    """
    return left > fresh
