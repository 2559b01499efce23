"""From an allocation to commands: what must change between what runs and what should run.

A round lease that stays as it is yields no command, so a quiet round costs nothing. Rows that
lose GPUs come first, so that these are free before another row starts on them.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from dlsched.core.allocation import Allocation, Grant
from dlsched.core.cluster.occupancy import Placement
from dlsched.core.units import UnitTable


class Verb(StrEnum):
    """What is done to a unit."""

    STOP = "stop"  # its target is reached: it ends well
    SUSPEND = "suspend"
    MIGRATE = "migrate"  # to other GPUs, as many
    RESIZE = "resize"  # to another number of GPUs
    START = "start"  # for the first time
    RESUME = "resume"


@dataclass(frozen=True, slots=True)
class Command:
    """One change.

    Attributes:
        verb: what to do.
        row: the unit.
        before: the GPUs it leaves, None when it holds none.
        after: the GPUs it gets, None when it gets none.
        grant: what it gets besides GPUs, None for "as asked".
    """

    verb: Verb
    row: int
    before: Placement | None = None
    after: Placement | None = None
    grant: Grant | None = None


def diff(allocation: Allocation, units: UnitTable) -> list[Command]:
    """The commands that carry an allocation out, from the units as they were before it.

    Returns:
        stops, then rows that lose or change GPUs in the order in which these were taken back, then
        rows that start, in the order in which they were placed.
    """
    commands = [
        Command(Verb.STOP, row, grant=grant)
        for row, grant in allocation.grants.items()
        if grant.complete
    ]
    for row, before in allocation.suspended.items():
        if row in allocation.grants and allocation.grants[row].complete:
            continue  # it leaves by ending
        after = allocation.launched.get(row)
        if after is None:
            commands.append(Command(Verb.SUSPEND, row, before))
        else:
            verb = Verb.MIGRATE if after.gpus == before.gpus else Verb.RESIZE
            commands.append(Command(verb, row, before, after, allocation.grants.get(row)))
    for row, after in allocation.launched.items():
        if row not in allocation.suspended:
            verb = Verb.RESUME if units.starts[row] else Verb.START
            commands.append(Command(verb, row, None, after, allocation.grants.get(row)))
    return commands
