"""What a simulated world is given: its faults, its network and how its jobs behave."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal


@dataclass(frozen=True, slots=True, kw_only=True)
class Network:
    """How the network treats messages between machines; the shares are probabilities."""

    delay_s: float = 0.02
    slow: float = 0.0  # share of messages that take up to `slow_s`
    slow_s: float = 8.0
    lost: float = 0.0
    doubled: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """One fault, or one request of a user, at a time and for a duration."""

    at: float
    kind: str
    target: str = ""
    other: str = ""
    for_s: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Faults:
    """A schedule of faults, the network and the rates of clocks."""

    faults: tuple[Fault, ...] = ()
    network: Network = Network()
    clock_rates: dict[str, float] = field(default_factory=dict)


OnStop = Literal["leave", "agree", "finish", "save", "wrapper", "die", "ignore"]
COOPERATIVE: tuple[OnStop, ...] = ("leave", "agree", "finish")  # they say how they leave


@dataclass(frozen=True, slots=True, kw_only=True)
class Behaviour:
    """How a job behaves.

    When it is asked to stop, a cooperative job does not get TERM. It leaves by agreement with 143,
    or with 0 (`agree`), or its training is done before that (`finish`). Other jobs get TERM: they
    exit with 0 (`save`) or 1 (`wrapper`), die of the signal, or ignore it.
    """

    work_s: float = 20.0
    code: int = 0
    fails: int | None = None  # runs that end with that code, the later ones with 0; None: all
    alone: bool = False  # only the first node of a failing run ends; the others wait for it
    on_term: OnStop = "leave"
    stuck_s: float = 0.0  # how long KILL takes
    lets_go: bool = True  # it leaves its GPUs when it is suspended

    def code_of(self, run: int) -> int:
        """The exit code of a run that ends by itself."""
        return self.code if self.fails is None or run <= self.fails else 0
