"""Parts that misbehave as the testing deciders do not, registered in a worker by module."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from typing import Any

from dlsched.core.cluster.occupancy import Placement
from dlsched.core.context import RoundContext
from dlsched.core.options import NoOptions
from dlsched.core.scheduling import SchedulingPolicy
from dlsched.core.units import Units
from dlsched.core.walk.walk import Walk
from dlsched.daemon.round.codec import HEADER, encode
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


class Leaving(Bad):
    """Ends its process; what it has started stays."""

    name = "bad-leaving"

    def allocate(self, units: Units, ctx: RoundContext, walk: Walk) -> None:
        child = subprocess.Popen(["sleep", "600"])
        Path(os.environ["BAD_CHILD"]).write_text(str(child.pid))
        os._exit(3)


class Forging(Bad):
    """Writes past the walk into its own answer."""

    name = "bad-forging"

    def allocate(self, units: Units, ctx: RoundContext, walk: Walk) -> None:
        for row in units.rows.tolist():
            walk.launched[row] = Placement((0,), (1,))


class Answering(Bad):
    """Sends an answer of its own, as if it were one that is late."""

    name = "bad-answering"

    def allocate(self, units: Units, ctx: RoundContext, walk: Walk) -> None:
        body = encode([0, "done", b"", "", 0.0])
        for fd in Path("/proc/self/fd").iterdir():
            if fd.is_symlink() and os.readlink(fd).startswith("socket:"):
                os.write(int(fd.name), HEADER.pack(len(body)) + body)


class Exiting(Bad):
    name = "bad-exiting"

    def allocate(self, units: Units, ctx: RoundContext, walk: Walk) -> None:
        raise SystemExit(0)


for part in (Endless, Hungry, Dying, Leaving, Forging, Answering, Exiting):
    registry._OURS["scheduling"][part.name] = f"{__name__}:{part.__name__}"
