"""Parts that misbehave as the testing deciders do not, registered in a worker by module."""

from __future__ import annotations

import os
from typing import Any

from dlsched.core.context import RoundContext
from dlsched.core.occupancy import Placement
from dlsched.core.options import NoOptions
from dlsched.core.scheduling import SchedulingPolicy
from dlsched.core.units import Units
from dlsched.core.walk import Walk
from dlsched.policies import registry


class Bad(SchedulingPolicy[NoOptions]):
    """Common to them."""

    preemptive = True
    rests = False


class Endless(Bad):
    name = "bad-endless"

    def allocate(self, units: Units, ctx: RoundContext, walk: Walk) -> None:
        while True:
            pass


class Hungry(Bad):
    name = "bad-hungry"

    def allocate(self, units: Units, ctx: RoundContext, walk: Walk) -> None:
        kept: list[Any] = []
        while True:
            kept.append(bytearray(2**24))


class Dying(Bad):
    name = "bad-dying"

    def allocate(self, units: Units, ctx: RoundContext, walk: Walk) -> None:
        os._exit(3)


class Forging(Bad):
    """Writes past the walk into its own answer."""

    name = "bad-forging"

    def allocate(self, units: Units, ctx: RoundContext, walk: Walk) -> None:
        for row in units.rows.tolist():
            walk.launched[row] = Placement((0,), (1,))


class Exiting(Bad):
    name = "bad-exiting"

    def allocate(self, units: Units, ctx: RoundContext, walk: Walk) -> None:
        raise SystemExit(0)


for part in (Endless, Hungry, Dying, Forging, Exiting):
    registry._OURS["scheduling"][part.name] = f"{__name__}:{part.__name__}"
