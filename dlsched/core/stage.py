"""The stages of a round, as interfaces: what a part of each kind must do.

A part is found by name, made with its options, and declares what it remembers (`memory.py`), so
that a daemon that was killed decides on as if nothing had happened. Changing one part is writing
one file; the round knows none of them by name.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from typing import (
    TYPE_CHECKING,
    Any,
    ClassVar,
    Generic,
    NamedTuple,
    TypeVar,
    get_args,
    get_origin,
)

import numpy as np

from dlsched.core.allocation import Refused
from dlsched.core.errors import PolicyFailed
from dlsched.core.memory import Remembering
from dlsched.core.options import NoOptions

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from dlsched.core.arrays import Bools, Floats, Ints, Rows
    from dlsched.core.cluster.description import Cluster
    from dlsched.core.cluster.occupancy import Occupancy, Placement
    from dlsched.core.context import RoundContext
    from dlsched.core.gpu_request import FreeGpus, GpuRequest
    from dlsched.core.job_metrics import Metric, MetricBoard
    from dlsched.core.speed.belief import Belief
    from dlsched.core.units import Units, UnitTable

O = TypeVar("O")  # noqa: E741 - the options' type, as in "Stage[O]"


class Stage(Remembering, Generic[O]):
    """A part of a round with a name, options and memory.

    Attributes:
        name: what users type.
        summary: one line for `dlsched policy list`.
        Options: the dataclass of its options; that of the class's brackets unless it is set.
        needs: columns that must be known for every unit, checked before the run.
    """

    name: ClassVar[str]
    summary: ClassVar[str] = ""
    Options: ClassVar[type[Any]] = NoOptions
    needs: ClassVar[frozenset[str]] = frozenset()

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        for base in cls.__dict__.get("__orig_bases__", ()):
            kind, given = get_origin(base), get_args(base)[:1]
            if isinstance(kind, type) and issubclass(kind, Stage) and isinstance(given[0], type):
                cls.Options = cls.__dict__.get("Options", given[0])

    def __init__(self, options: O) -> None:
        self.options: O = options


class AdmissionPolicy(Stage[O], ABC):
    """Decides which submitted units may enter the queue now.

    Attributes:
        admits_all: every unit enters at once, so the world need not request.
    """

    admits_all: ClassVar[bool] = False

    @abstractmethod
    def admit(self, queue: Units, ctx: RoundContext) -> tuple[Bools, dict[int, Refused]]:
        """Choose among the units held back, in order of arrival.

        Returns:
            which of them enter now, and reasons by row for those that must wait or are refused
            for good (reason "Never"); a row without one waits behind the others.
        """


class PlacementPolicy(Stage[O], ABC):
    """Chooses exact GPUs for one row.

    Attributes:
        spans: it succeeds whenever the pool has as many free GPUs as the gang.
        takes_lowest: it takes usable GPUs in ascending order, node by node.
    """

    spans: ClassVar[bool] = False
    takes_lowest: ClassVar[bool] = False

    @abstractmethod
    def place(self, request: GpuRequest, free: FreeGpus) -> Placement | Refused:
        """Choose GPUs for a row, or say why not; must not change anything."""

    def kept_promise(self, row: int, placed: Placement | Refused) -> Placement:
        """The answer of a placement that spans, for a row that fits.

        Raises:
            PolicyFailed: it is a refusal.
        """
        if isinstance(placed, Refused):
            raise PolicyFailed(
                f"placement {self.name} says it always fits, but refused unit {row}: {placed}"
            )
        return placed

    def sameness(self, request: GpuRequest) -> object:
        """Rows of equal sameness are refused alike while no GPU becomes free."""
        return request.gang


class Claim(NamedTuple):
    """Exact GPUs for a row, and the rows that must leave them first.

    Attributes:
        placement: the GPUs.
        victims: rows that hold some of them, in the order in which they are asked to leave.
        rivals: rows that have reserved some of them, and lose their reservation.
    """

    placement: Placement
    victims: tuple[int, ...] = ()
    rivals: tuple[int, ...] = ()


class ClaimingPlacement(PlacementPolicy[O]):
    """A placement that remembers which row has which GPUs, and may take GPUs from rows for another.

    The walk makes claims through it and reports what came of them; what else has changed it sees
    when it is asked the next time.
    """

    @abstractmethod
    def begin(self) -> None:
        """A decision begins."""

    @abstractmethod
    def order(self, rows: Rows, table: UnitTable) -> Rows:
        """The rows in the order in which they must be placed; ranks of equals stay."""

    @abstractmethod
    def helps(self, row: int, victim: int, table: UnitTable) -> bool:
        """Could a row get GPUs if the policy took them from a running row of lower rank?"""

    @abstractmethod
    def check_exact(self, cluster: Cluster) -> None:
        """Refuse GPUs that a policy has chosen itself, where its record alone may give them.

        Raises:
            BadInput: says why.
        """

    @abstractmethod
    def follow(self, occupancy: Occupancy, table: UnitTable) -> None:
        """Bring its record up to date with what rows hold and have reserved, where it is not."""

    @abstractmethod
    def can_return(self, row: int) -> bool:
        """May a row that lost its GPUs in this decision have them again, as it had them?"""

    @abstractmethod
    def claim(self, request: GpuRequest, free: FreeGpus) -> Claim | Refused:
        """Choose GPUs for a row, free ones or those of victims; `reject` or the next two follow."""

    @abstractmethod
    def reject(self, row: int) -> None:
        """The claim is not carried out."""

    @abstractmethod
    def reserved(self, row: int) -> None:
        """The row waits for its victims; its GPUs are its own from now on."""

    @abstractmethod
    def taken(self, row: int) -> None:
        """The row has got the GPUs of its claim, which had no victims."""


class Entitlements:
    """Per account (virtual cluster code) the GPUs it is entitled to and may use at most.

    Attributes:
        entitlement: GPUs it gets back from borrowers.
        ceiling: GPUs it may hold at most.
        parent: the account that each is a part of, -1 for none; None where there are no parts. What
            a part holds counts for its parent too. Parents may have codes above the table's.
        names: of all accounts; None: those of the table.
    """

    __slots__ = ("ceiling", "entitlement", "names", "parent")

    def __init__(
        self,
        entitlement: Floats,
        ceiling: Floats,
        *,
        parent: Ints | None = None,
        names: Sequence[str] | None = None,
    ) -> None:
        self.entitlement = entitlement
        self.ceiling = ceiling
        self.parent = parent
        self.names = names


class FairnessPolicy(Stage[O], ABC):
    """Divides the cluster among accounts, before units are ranked inside them."""

    @abstractmethod
    def entitle(self, units: Units, ctx: RoundContext) -> Entitlements | None:
        """Entitlements per virtual cluster code; None when there is nothing to divide."""

    def most(self, vc: str, cluster: Cluster) -> float:
        """GPUs that a virtual cluster can ever hold at once; larger jobs are refused up front."""
        return math.inf


ESTIMATED = "estimate "  # before the names of an estimator's terms, among those of a policy


class Estimator(Stage[O], ABC):
    """Predicts how much work a unit needs, from what is known when it arrives.

    Attributes:
        knows: its prediction is the truth, so a replay need not request.
        revises: its predictions change while jobs run; it is asked again before every round.
    """

    knows: ClassVar[bool] = False
    revises: ClassVar[bool] = False

    @abstractmethod
    def predict(self, units: Units, true_work: Floats, ctx: RoundContext) -> Floats:
        """Seconds of work per arriving unit, NaN where it has no idea.

        `true_work` is what a replay knows; only the oracle and its noisy relatives look at it. The
        rows to learn from are `ctx.finished`.
        """

    def revise(self, units: Units, ctx: RoundContext) -> Floats:
        """Seconds of work in all per active unit, as it is believed by now; NaN: as before.

        What units report are columns of the context's table.
        """
        return np.full(len(units), np.nan)

    def terms(self, units: Units, ctx: RoundContext) -> Mapping[str, Floats]:
        """What a prediction is the sum of, in seconds of work, by name; nothing where it is none.

        The first is what is believed of any unit, `base`.
        """
        return {}

    def believed(self, perf: Belief) -> Belief:
        """What policies may believe of speeds, from what is known; asked once, before a run."""
        return perf

    def observe(self, ctx: RoundContext) -> None:
        """Look at what runs, before a round in which jobs share GPUs.

        A unit that is now believed to run at another speed is a change of kind `adapt`.
        """


class LaunchPart(Stage[O], ABC):
    """Starts jobs; in a replay, says what a start costs.

    Attributes:
        usual: every start costs the run's own overhead, so that a replay need not request.
    """

    usual: ClassVar[bool] = False

    @abstractmethod
    def overhead(self, row: int, placement: Placement, units: UnitTable, usual: float) -> float:
        """Seconds without progress after a start of `row` on `placement`.

        Args:
            row: the unit.
            placement: its GPUs.
            units: all units.
            usual: the run's own restart overhead.
        """

    def adjustment(
        self,
        row: int,
        before: Placement,
        after: Placement,
        units: UnitTable,
        usual: float,
        slowdown: Callable[[], float],
    ) -> float:
        """Seconds without progress where a running row goes on elsewhere; a start unless said so.

        Args:
            row: the unit.
            before: the GPUs that it leaves in this decision.
            after: those that it gets.
            units: all units.
            usual: the run's own restart overhead.
            slowdown: says how fast it ran before, over how fast it will.
        """
        return self.overhead(row, after, units, usual)


class PreemptionPart(Stage[O], ABC):
    """Suspends jobs; in a replay, says what of their work is saved.

    Attributes:
        saves_all: no work is ever lost, so that a replay need not request.
    """

    saves_all: ClassVar[bool] = False

    @abstractmethod
    def saved(self, before: float, now: float, interval: float | None) -> float:
        """Work that survives a suspension, in seconds of work.

        `before` was done when this start began; `interval` is the work between periodic
        checkpoints, None when there are none.
        """

    def redone(self, gpus: int) -> float:
        """Work that a suspended unit of so many GPUs does again besides, in seconds."""
        return 0.0


class MetricsPart(Stage[O], ABC):
    """Collects what jobs report.

    Attributes:
        metrics: the keys it may push.
    """

    metrics: ClassVar[tuple[Metric, ...]] = ()

    @abstractmethod
    def report(self, running: Units, board: MetricBoard, ctx: RoundContext) -> None:
        """Push what running units report, before a round is decided."""
