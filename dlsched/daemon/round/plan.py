"""From a decision to what the leader is asked to do, after a check against the present state.

A decision was made of a snapshot that is some milliseconds old, by code that may be wrong. A row
that no state of the cluster would allow is an *offence*: the whole decision is thrown away and the
present plan stays. A row that was right when it was decided is *stale*: only this row is left out.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from dlsched.core.cluster.occupancy import Placement
from dlsched.core.errors import PolicyFailed, plural
from dlsched.daemon.live import job_columns as c
from dlsched.daemon.live.gpu_use import GpuUse
from dlsched.daemon.live.live_state import LiveState
from dlsched.daemon.round.decided import Decided
from dlsched.daemon.round.round_state import RoundState
from dlsched.protocol.leader import PlaceAsked, StopAsked, SuspendAsked
from dlsched.protocol.messages import JobId, RunId, Share, StopReason


@dataclass(frozen=True, slots=True)
class Problem:
    """One row of a decision that cannot be carried out.

    Attributes:
        job: the row.
        text: what is wrong with it.
        is_offence: whether no state would allow it; else something has changed meanwhile.
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
        stops: jobs whose run is asked to stop, and why; it has its grace time, and may save.
        suspends: jobs that are suspended where they are, and leave their GPUs to others.
        resumes: suspended jobs that resume where they are.
        starts: jobs that begin their next run, with shares in rank order.
        beside: the same of jobs whose present run goes on until the next one is ready.
    """

    stops: tuple[tuple[JobId, StopReason], ...] = ()
    suspends: tuple[JobId, ...] = ()
    resumes: tuple[JobId, ...] = ()
    starts: tuple[tuple[JobId, tuple[Share, ...]], ...] = ()
    beside: tuple[tuple[JobId, tuple[Share, ...]], ...] = ()

    @property
    def is_empty(self) -> bool:
        """Whether there is nothing to do."""
        return not (self.stops or self.suspends or self.resumes or self.starts or self.beside)

    def events(
        self, now: float, new_run_id: Callable[[], RunId]
    ) -> tuple[StopAsked | SuspendAsked | PlaceAsked, ...]:
        """The plan as events for the leader, in one `Together`: runs that leave come first.

        `now` is of the leader's clock; `new_run_id` makes a random run id.
        """
        return (
            *(StopAsked(now, job, reason) for job, reason in self.stops),
            *(SuspendAsked(now, job, True, gives_way=True) for job in self.suspends),
            *(SuspendAsked(now, job, False) for job in self.resumes),
            *(PlaceAsked(now, job, new_run_id(), shares) for job, shares in self.starts),
            *(PlaceAsked(now, job, new_run_id(), shares, True) for job, shares in self.beside),
        )


def verify(decided: Decided, live: LiveState) -> list[Problem]:
    """Check a decision against the live state as it is now.

    Returns:
        the problems, offences first.
    """
    return sorted(_Check(decided, live).problems(), key=lambda p: not p.is_offence)


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
    """Checks one decision against one live state."""

    def __init__(self, decided: Decided, live: LiveState) -> None:
        self.decided = decided
        self.live = live
        self.use = self._kept()

    def _kept(self) -> GpuUse:
        """What runs and claims have taken that the decision leaves alone."""
        live, jobs = self.live, self.live.jobs
        use = live.nodes.gpu_use.copy()
        leaving = set(self.decided.suspended)
        leaving.update(live.giving_way())
        for job in leaving:
            where = live.where(JobId(job))
            if where is not None and jobs.get("phase", jobs.row_of[job]) != c.AWAY:
                use.give_back(where, live.share_of(job))
        for job, claim in live.claims.items():
            if job not in leaving and job not in self.decided.launched:
                use.take(claim.placement, live.share_of(job))
        return use

    def problems(self) -> Iterable[Problem]:
        for job in self.decided.suspended:
            if job not in self.live.jobs.row_of:
                yield self._unknown(job)
            elif not self._runs(job):
                yield Problem(job, "it no longer runs", is_offence=False)
        for job, placement in self.decided.launched.items():
            found = self._why_not(job, placement)
            if found is not None:
                yield found
        for job in self.decided.completed:
            if job not in self.live.jobs.row_of:
                yield self._unknown(job)

    def _unknown(self, job: int) -> Problem:
        known = self.live.was_known(job)
        text = "it has ended meanwhile" if known else "there is no such job"
        return Problem(job, text, is_offence=not known)

    def _runs(self, job: int) -> bool:
        row = self.live.jobs.row_of[job]
        return job in self.live.claims or self.live.jobs.get("phase", row) == c.HOLDING

    def _why_not(self, job: int, placement: Placement) -> Problem | None:  # noqa: PLR0911
        live, row = self.live, self.live.jobs.row_of.get(job)
        if row is None:
            return self._unknown(job)
        if live.jobs.get("phase", row) == c.ENDED:
            return Problem(job, "it has ended meanwhile", is_offence=False)
        wrong = self._malformed(placement) or self._misfit(job, row, placement)
        if wrong:
            return Problem(job, wrong, is_offence=True)
        if live.claims.home(job) not in (None, placement):
            return Problem(job, "it can only go on where it is suspended", is_offence=False)
        if self._runs(job) and job not in self.decided.suspended:
            stays = live.jobs.get("leaving", row) == c.STAYS
            if stays and job not in live.claims:
                return Problem(job, "it was given GPUs twice", is_offence=True)
        if not self.use.has_room(placement, live.share_of(job)):
            names = live.nodes.names_of(placement)
            return Problem(job, f"GPUs of {names} were given twice", is_offence=True)
        self.use.take(placement, live.share_of(job))
        for index, mask in zip(placement.nodes, placement.masks, strict=True):
            node = live.nodes[index]
            if not node.is_open or mask & node.closed:
                return Problem(job, f"{node.name} is out of service now", is_offence=False)
        if live.jobs.get("held", row):
            return Problem(job, "it is held now", is_offence=False)
        if live.jobs.get("orphan", row):
            return Problem(job, "an earlier run of it is alive", is_offence=False)
        return None

    def _malformed(self, placement: Placement) -> str:
        """What is wrong with a placement for any job; empty when nothing is."""
        nodes = self.live.nodes
        if len(set(placement.nodes)) < len(placement.nodes) or not placement.nodes:
            return "its placement names a node twice, or none"
        for index, mask in zip(placement.nodes, placement.masks, strict=True):
            if not 0 <= index < len(nodes):
                return f"there is no node {index}"
            if mask <= 0 or mask >> len(nodes[index].gpus):
                return f"{nodes[index].name} has no such GPUs"
        return ""

    def _misfit(self, job: int, row: int, placement: Placement) -> str:
        """What is wrong with a placement for this job; empty when nothing is."""
        live, jobs = self.live, self.live.jobs
        gang, gpus = jobs.get("gang", row), placement.gpus
        shape = live.constraints.shapes.get(job, ())
        counts = sorted(mask.bit_count() for mask in placement.masks)
        by_type = live.constraints.by_type.get(job)
        if by_type and not all(
            live.nodes[index].may_give(by_type, mask)
            for index, mask in zip(placement.nodes, placement.masks, strict=True)
        ):
            return "its GPUs are of other types than it asked for"
        if job in live.constraints.whole_nodes:
            sizes = sorted(len(live.nodes[index].gpus) for index in placement.nodes)
            whole = counts == sizes and gpus >= gang
            return "" if whole else "it asked for whole nodes"
        low, high = jobs.get("min_gpus", row), jobs.get("max_gpus", row)
        if not (low if low >= 0 else gang) <= gpus <= (high if high >= 0 else gang):
            return f"it was given {plural(gpus, 'GPU')} of a gang of {gang}"
        if shape and counts != sorted(shape):
            return "its GPUs do not lie as it asked"
        usable = live.constraints.pool_mask(jobs.get("pool", row), live.nodes)
        for index in placement.nodes:
            if not usable >> index & 1:
                return f"it may not use {live.nodes[index].name}"
        return ""


def carry_out(decided: Decided, state: RoundState, problems: Sequence[Problem] = ()) -> Plan:
    """Accept a verified decision and return what is to be done at once.

    A job whose GPUs are not free yet gets a claim on them; `due` starts it later. The state is
    changed; stale rows among the problems that `verify` found are left out. A job that moves or is
    resized in place keeps its GPUs until it has left them, so a later round gives them away.
    """
    live, stale = state.live, {problem.job for problem in problems}
    stops: list[tuple[JobId, StopReason]] = []
    suspends: list[JobId] = []
    beside: list[tuple[JobId, tuple[Share, ...]]] = []
    staying = {
        job
        for job in map(JobId, decided.suspended)
        if job in decided.launched and job in live.jobs.row_of and job not in stale
        if job in live.next_runs.ready_soon or live.next_runs.may_begin(job, decided.launched[job])
    }
    stale |= staying | live.next_runs.gives_later(staying, decided.launched)
    for job in map(JobId, decided.suspended):
        row = live.jobs.row_of.get(job)
        if row is None or live.jobs.get("phase", row) != c.HOLDING:
            continue
        if job in staying:
            if job not in live.next_runs.ready_soon:
                beside.append((job, live.nodes.shares(decided.launched[job])))
        elif job in decided.launched:
            if job not in stale:
                stops.append((job, _kind_of_move(live, job, decided.launched[job])))
        elif state.preempt_mode(job) == "suspend":
            suspends.append(job)
        else:
            stops.append((job, StopReason.PREEMPT))
    state.accept(decided, stale)
    ready = due(live, leaving=[job for job, _ in stops] + suspends)
    return Plan(
        stops=tuple(stops),
        suspends=tuple(suspends),
        resumes=ready.resumes,
        starts=ready.starts,
        beside=tuple(beside),
    )


def _kind_of_move(live: LiveState, job: JobId, to: Placement) -> StopReason:
    """Whether a job that moves keeps its number of GPUs (migrate) or gets another (resize)."""
    where = live.where(job)
    same = where is not None and where.gpus == to.gpus
    return StopReason.MIGRATE if same else StopReason.RESIZE


def due(live: LiveState, *, leaving: Sequence[JobId] = ()) -> Plan:
    """The starts and resumes of claims whose GPUs are free; ask again whenever a run is over.

    `leaving` are jobs that are about to be asked to leave.
    """
    starts: list[tuple[JobId, tuple[Share, ...]]] = []
    resumes: list[JobId] = []
    asked = set(leaving)
    for job, placement in live.ready_claims():
        if job in asked:
            continue
        if live.jobs.get("phase", live.jobs.row_of[job]) == c.AWAY:
            resumes.append(job)
        else:
            starts.append((job, live.nodes.shares(placement)))
    return Plan(resumes=tuple(resumes), starts=tuple(starts))
