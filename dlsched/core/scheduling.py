"""The stage that decides which units run: a policy ranks them, or drives the walk itself."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, TypeVar

import numpy as np

from dlsched.core.allocation import Ranking
from dlsched.core.arrays import Ints, Rows
from dlsched.core.cluster.description import Cluster
from dlsched.core.context import RoundContext
from dlsched.core.job_metrics import Metric
from dlsched.core.stage import Stage
from dlsched.core.units import Units, UnitTable
from dlsched.core.walk.following import follow
from dlsched.core.walk.walk import Walk

O = TypeVar("O")  # noqa: E741 - the options' type, as in "SchedulingPolicy[O]"


class SchedulingPolicy(Stage[O], ABC):
    """Decides which units run.

    Most policies only rank; one whose order depends on what was placed overrides `allocate` and
    drives the walk itself.

    Attributes:
        preemptive: may it take GPUs from running rows? If not, only waiting rows are ranked.
        rests: while no unit waits, a decision changes nothing and keeps no state, so the world
            need not ask.
        fills: in a fill it takes the waiting rows in its order, starts each that fits, and goes on
            behind one that does not (`skip`) or ends there (`stop`); it asks for no wake-up and
            keeps no state. Its order is by `fill_key`, equal rows in order of admission, where no
            unit has a priority. None: it must be asked.
        rounds_fill: when a round is as a fill, keeps no state, and has nothing to change until
            something happens: `always`, or where there is room for all that wait (`with room`).
        wakes_idle: with `rests` false, does it want its wake-ups even while no unit waits or runs,
            as long as some are to come?
        at_limits: how it goes on where limits on GPUs have no room. It `tries` rows one by one in
            its order, and goes on behind one that is refused for a quota: then it sees all. Else it
            sees only waiting rows that have room together (in the order of `order_at_limits`), and
            the others get what it leaves idle; not where it has `planned` what is idle for later.
        weighs_types: does it decide by how fast units run on GPU types, where that is known?
        knows_deadlines: do deadlines change what it decides?
        node_policy: the node policy that divides shared GPUs under it; "" for none.
        leaves_gpus_free: do GPUs that only opportunistic units use stay free for others?
        plans_children: does it read the predicted work of units that wait for their parents? It is
            predicted as soon as a parent is there, if they are submitted by then.
        weighs_usage: does it decide by what owners of units have used (`UnitTable.usage`)?
        metrics: reported keys that it reads, with the values to use before any report.
    """

    metrics: ClassVar[tuple[Metric, ...]] = ()

    at_limits: ClassVar[Literal["tries", "divides", "planned"]] = "divides"
    weighs_types: ClassVar[bool] = False
    knows_deadlines: ClassVar[bool] = False
    plans_children: ClassVar[bool] = False
    weighs_usage: ClassVar[bool] = False
    node_policy: ClassVar[str] = ""
    leaves_gpus_free: ClassVar[bool] = False

    preemptive: bool = False
    rests: bool = True
    wakes_idle: ClassVar[bool] = False
    fills: Literal["skip", "stop"] | None = None
    rounds_fill: Literal["always", "with room"] | None = None

    @property
    def sees_over_limits(self) -> bool:
        """Does it see waiting rows for which limits on GPUs have no room? See `at_limits`."""
        only_ranks = type(self).allocate is SchedulingPolicy.allocate
        return only_ranks or self.at_limits == "tries"

    @property
    def needs_scaling(self) -> bool:
        """Must it be known how fast jobs run on how many GPUs? A replay asks before the run."""
        return False

    @property
    def pairs_units(self) -> bool:
        """Does it decide itself which units share GPUs?"""
        return False

    @property
    def chooses_gpus(self) -> bool:
        """Does it choose exact GPUs, or whose GPUs a unit shares, past the placement?"""
        return self.pairs_units

    def half_life_s(self, cluster: Cluster) -> float:
        """Seconds after which usage counts half, where it weighs usage."""
        return cluster.rules.half_life_s

    def order_at_limits(self, units: Units, ctx: RoundContext) -> Rows:
        """Positions of waiting units in the order in which they get room under limits on GPUs.

        Asked of policies that do not see all of them. By default the order of admission.
        """
        return np.arange(len(units))

    def rank(self, units: Units, ctx: RoundContext) -> Ranking:
        """Order the units, best first.

        The units are all active rows (preemptive, mode full) or the waiting rows, in order of
        admission.
        """
        raise NotImplementedError(f"{type(self).__name__} must implement rank or allocate")

    def fill_key(self, row: int, table: UnitTable) -> float | tuple[float, ...]:
        """Where a waiting row stands in a fill, the smallest first; see `fills`."""
        raise NotImplementedError(
            f"{type(self).__name__} says how it fills, but not in which order"
        )

    def quiet_rounds(self, ctx: RoundContext, admitted: Ints) -> QuietRounds | None:
        """What a policy that does not rest does in rounds; None: it must be asked.

        Args:
            ctx: the present; `active` may be out of date.
            admitted: per row of the table its place in the order of admission.
        """
        return None

    def allocate(self, units: Units, ctx: RoundContext, walk: Walk) -> None:
        """Decide, through the walk; the default follows `rank`."""
        follow(walk, units, self.rank(units, ctx))


class QuietRounds(ABC):
    """The decisions of a policy that does not rest, while every unit that waits gets its GPUs.

    In each the policy moves running rows between its queues; then those that wait start as in a
    fill.

    Attributes:
        outputs: output columns of each row that starts, with their values.
    """

    outputs: ClassVar[Mapping[str, float]] = {}

    @abstractmethod
    def begin(self, row: int, now: float, ready: float, rate: float) -> None:
        """A row starts.

        Args:
            row: of the table, where nothing of this is written yet.
            now: seconds.
            ready: when it begins to work.
            rate: its work per second.
        """

    @abstractmethod
    def decide(self, now: float, waiting: Iterable[int]) -> None:
        """A full decision is made, before the rows that wait start in it, in order."""

    @abstractmethod
    def next_time(self, now: float) -> float:
        """When the policy wants the next round although nothing happens, after one now."""


class Chooser(ABC):
    """A scheduling policy that picks the parts of the round anew before it begins."""

    @property
    @abstractmethod
    def inside(self) -> SchedulingPolicy[Any]:
        """The policy that decides at present.

        Raises:
            BadInput: it has chosen none yet.
        """

    @abstractmethod
    def install(self, policy: SchedulingPolicy[Any]) -> None:
        """Let a policy decide from now on."""

    @property
    @abstractmethod
    def has_chosen(self) -> bool:
        """Has it picked any parts yet?"""

    @abstractmethod
    def choose(self, ctx: RoundContext) -> Mapping[str, str] | None:
        """Parts to install now, by stage; None to keep the present ones."""


StageOfPolicy = Literal["both", "profiling", "main"]


@dataclass(frozen=True, slots=True, kw_only=True)
class FirstStage:
    """A stage of a policy that is replayed by itself, before the rest of the cluster.

    Attributes:
        nodes: those of the stage, as bits.
        most_gpus: larger jobs skip it.
        limit_s: seconds after which a job leaves it.
        scales: may it borrow a node?
        lender: the virtual cluster that lends one; "" for none.
        semantics: the profile of this stage.
    """

    nodes: int
    most_gpus: int
    limit_s: float
    scales: bool
    lender: str
    semantics: str


class Staged(ABC):
    """A scheduling policy with a stage that a replay can run first, as its simulator does.

    Attributes:
        stage: what it decides: all, or one of the two stages.
    """

    stage: StageOfPolicy = "both"

    @abstractmethod
    def first_stage(self, cluster: Cluster) -> FirstStage | None:
        """The stage that is to be replayed first; None: both run at the same time."""

    @property
    @abstractmethod
    def changes(self) -> Sequence[tuple[float, int]]:
        """When the first stage borrowed a node (+1) or gave it back (-1), in seconds."""
