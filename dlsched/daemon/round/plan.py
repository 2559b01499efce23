"""From a decision to what the leader is asked to do, after a check against the state of now.

A decision was made of a snapshot that is some milliseconds old, by code that may be anybody's. An
*offence* is what no state of the cluster would allow: the whole decision is thrown away and the
present plan stays. *Stale* is what was right when it was decided: that row is left out.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from dlsched.core.errors import PolicyFailed
from dlsched.core.occupancy import Placement
from dlsched.daemon.board import Board
from dlsched.daemon.round import columns as c
from dlsched.daemon.round.decided import Decided
from dlsched.daemon.round.room import Room
from dlsched.protocol.leader import PlaceAsked, StopAsked, SuspendAsked
from dlsched.protocol.messages import JobId, RunId, Share, StopReason

__all__ = ["Plan", "Problem", "carry_out", "due", "verify"]


@dataclass(frozen=True, slots=True)
class Problem:
    """One row of a decision that cannot be carried out.

    Attributes:
        job: the row.
        text: what is wrong with it.
        is_offence: no state would allow it; else something has changed meanwhile.
    """

    job: int
    text: str
    is_offence: bool

    def __str__(self) -> str:
        return f"job {self.job}: {self.text}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What is to be done at once.

    Attributes:
        stops: jobs whose run leaves, and why; it is asked, has its grace, and may save.
        suspends: jobs that are suspended where they are, and leave their GPUs to others.
        resumes: such jobs that go on there.
        starts: jobs that begin their next run, with shares in rank order.
    """

    stops: tuple[tuple[JobId, StopReason], ...] = ()
    suspends: tuple[JobId, ...] = ()
    resumes: tuple[JobId, ...] = ()
    starts: tuple[tuple[JobId, tuple[Share, ...]], ...] = ()

    @property
    def is_empty(self) -> bool:
        """Is there nothing to do?"""
        return not (self.stops or self.suspends or self.resumes or self.starts)

    def events(
        self, now: float, new_run_id: Callable[[], RunId]
    ) -> tuple[StopAsked | SuspendAsked | PlaceAsked, ...]:
        """For the leader, in one `Together`: whoever leaves comes first.

        Args:
            now: the leader's clock.
            new_run_id: makes a random run id.
        """
        return (
            *(StopAsked(now, job, reason) for job, reason in self.stops),
            *(SuspendAsked(now, job, True, gives_way=True) for job in self.suspends),
            *(SuspendAsked(now, job, False) for job in self.resumes),
            *(PlaceAsked(now, job, new_run_id(), shares) for job, shares in self.starts),
        )


def verify(decided: Decided, board: Board) -> list[Problem]:
    """Check a decision against the board as it is now.

    Returns:
        problems, offences first.
    """
    return sorted(_Check(decided, board).problems(), key=lambda p: not p.is_offence)


def refuse_offences(decided: Decided, problems: Sequence[Problem]) -> None:
    """Throw away a decision that breaks a rule.

    Raises:
        PolicyFailed: names the policy and the first row that offends.
    """
    offences = [problem for problem in problems if problem.is_offence]
    if offences:
        more = f" (and {len(offences) - 1} more)" if len(offences) > 1 else ""
        raise PolicyFailed(f"policy {decided.policy}: {offences[0]}{more}")


class _Check:
    """One decision against one board."""

    def __init__(self, decided: Decided, board: Board) -> None:
        self.decided = decided
        self.board = board
        self.room = self._left()

    def _left(self) -> Room:
        """What those who neither leave nor are asked to have taken."""
        board, jobs = self.board, self.board.jobs
        room = board.machines.room.copy()
        leaving = set(self.decided.suspended)
        leaving.update(board.giving_way())
        for job in leaving:
            where = board.where(JobId(job))
            if where is not None and jobs.get("phase", jobs.row_of[job]) != c.AWAY:
                room.give_back(where, board.part_of(job))
        for job, claim in board.claims.items():
            if job not in leaving and job not in self.decided.launched:
                room.take(claim.placement, board.part_of(job))
        return room

    def problems(self) -> Iterable[Problem]:
        for job in self.decided.suspended:
            if job not in self.board.jobs.row_of:
                yield self._unknown(job)
            elif not self._runs(job):
                yield Problem(job, "it no longer runs", is_offence=False)
        for job, placement in self.decided.launched.items():
            found = self._why_not(job, placement)
            if found is not None:
                yield found
        for job in self.decided.completed:
            if job not in self.board.jobs.row_of:
                yield self._unknown(job)

    def _unknown(self, job: int) -> Problem:
        known = self.board.was_known(job)
        text = "it has ended meanwhile" if known else "there is no such job"
        return Problem(job, text, is_offence=not known)

    def _runs(self, job: int) -> bool:
        row = self.board.jobs.row_of[job]
        return job in self.board.claims or self.board.jobs.get("phase", row) == c.HOLDING

    def _why_not(self, job: int, placement: Placement) -> Problem | None:  # noqa: PLR0911
        board, row = self.board, self.board.jobs.row_of.get(job)
        if row is None:
            return self._unknown(job)
        if board.jobs.get("phase", row) == c.ENDED:
            return Problem(job, "it has ended meanwhile", is_offence=False)
        wrong = self._malformed(placement) or self._misfit(job, row, placement)
        if wrong:
            return Problem(job, wrong, is_offence=True)
        if board.home(job) not in (None, placement):
            return Problem(job, "it can only go on where it is suspended", is_offence=False)
        if self._runs(job) and job not in self.decided.suspended:
            stays = board.jobs.get("leaving", row) == c.STAYS
            if stays and job not in board.claims:
                return Problem(job, "it was given GPUs twice", is_offence=True)
        if not self.room.has(placement, board.part_of(job)):
            names = ", ".join(board.machines[node].name for node in placement.nodes)
            return Problem(job, f"GPUs of {names} were given twice", is_offence=True)
        self.room.take(placement, board.part_of(job))
        for node, mask in zip(placement.nodes, placement.masks, strict=True):
            machine = board.machines[node]
            if not machine.is_open or mask & machine.closed:
                return Problem(job, f"{machine.name} is out of service now", is_offence=False)
        if board.jobs.get("held", row):
            return Problem(job, "it is held now", is_offence=False)
        return None

    def _malformed(self, placement: Placement) -> str:
        """What is wrong with the GPUs whoever gets them."""
        machines = self.board.machines
        if len(set(placement.nodes)) < len(placement.nodes) or not placement.nodes:
            return "its placement names a node twice, or none"
        for node, mask in zip(placement.nodes, placement.masks, strict=True):
            if not 0 <= node < len(machines):
                return f"there is no node {node}"
            if mask <= 0 or mask >> len(machines[node].gpus):
                return f"{machines[node].name} has no such GPUs"
        return ""

    def _misfit(self, job: int, row: int, placement: Placement) -> str:
        """What is wrong with the GPUs for this job."""
        board, jobs = self.board, self.board.jobs
        gang, gpus = jobs.get("gang", row), placement.gpus
        shape = board.asks.shapes.get(job, ())
        counts = sorted(mask.bit_count() for mask in placement.masks)
        if job in board.asks.whole_nodes:
            sizes = sorted(len(board.machines[node].gpus) for node in placement.nodes)
            whole = counts == sizes and gpus >= gang
            return "" if whole else "it asked for whole nodes"
        low, high = jobs.get("min_gpus", row), jobs.get("max_gpus", row)
        if not (low if low >= 0 else gang) <= gpus <= (high if high >= 0 else gang):
            return f"it was given {gpus} GPUs of a gang of {gang}"
        if shape and counts != sorted(shape):
            return "its GPUs do not lie as it asked"
        usable = board.pool_nodes(jobs.get("pool", row))
        for node in placement.nodes:
            if not usable >> node & 1:
                return f"it may not use {board.machines[node].name}"
        return ""


def carry_out(decided: Decided, board: Board, problems: Sequence[Problem] = ()) -> Plan:
    """Accept a verified decision and say what is to be done at once.

    Jobs whose GPUs are not free yet are kept as claims of the board; `due` starts them.

    Args:
        decided: what `verify` found no offence in.
        board: follows.
        problems: what `verify` found; stale rows are left out.
    """
    stale = {problem.job for problem in problems}
    stops: list[tuple[JobId, StopReason]] = []
    suspends: list[JobId] = []
    for job in decided.suspended:
        row = board.jobs.row_of.get(job)
        if row is None or board.jobs.get("phase", row) != c.HOLDING:
            continue
        if job in decided.launched:
            if job not in stale:
                stops.append((JobId(job), _moves(board, job, decided.launched[job])))
        elif board.preempt_mode(JobId(job)) == "suspend":
            suspends.append(JobId(job))
        else:
            stops.append((JobId(job), StopReason.PREEMPT))
    board.accept(decided, stale)
    ready = due(board, leaving=[job for job, _ in stops] + suspends)
    return Plan(
        stops=tuple(stops), suspends=tuple(suspends), resumes=ready.resumes, starts=ready.starts
    )


def _moves(board: Board, job: int, to: Placement) -> StopReason:
    """A job goes elsewhere: with as many GPUs or with others."""
    where = board.where(JobId(job))
    same = where is not None and where.gpus == to.gpus
    return StopReason.MIGRATE if same else StopReason.RESIZE


def due(board: Board, *, leaving: Sequence[JobId] = ()) -> Plan:
    """Claims whose GPUs are free by now; ask again whenever a run is over.

    Args:
        board: the state of now.
        leaving: jobs that are about to be asked to leave.
    """
    starts: list[tuple[JobId, tuple[Share, ...]]] = []
    resumes: list[JobId] = []
    asked = set(leaving)
    for job, placement in board.due():
        row = board.jobs.row_of[job]
        if job in asked:
            continue
        if board.jobs.get("phase", row) == c.AWAY:
            resumes.append(job)
        else:
            starts.append((job, board.machines.shares(placement)))
    return Plan(resumes=tuple(resumes), starts=tuple(starts))
