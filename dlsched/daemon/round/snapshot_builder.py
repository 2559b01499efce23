"""Makes snapshots of the live state: what policies see."""

from __future__ import annotations

from typing import Any

import numpy as np

from dlsched.core.arrays import Bools, Ints
from dlsched.core.cluster.occupancy import Placement
from dlsched.core.context import Mode
from dlsched.core.parts import parts_of
from dlsched.core.units import COMPLETED, FUTURE, RUNNING, WAITING, Status
from dlsched.daemon.live import job_columns as c
from dlsched.daemon.live.gpu_use import GpuUse
from dlsched.daemon.live.job_columns import SeenJobs
from dlsched.daemon.live.live_state import LiveState
from dlsched.daemon.round.host_profiles import host_columns
from dlsched.daemon.round.round_state import RoundState
from dlsched.daemon.round.snapshot import Held, LiveSnapshot, Quota
from dlsched.protocol.ledger import NodeStatus

Placed = list[tuple[int, Placement]]  # rows and where they are


def take_snapshot(state: RoundState, mode: Mode, now: float) -> LiveSnapshot:
    """Make a snapshot: everything that the next decision depends on."""
    state.live.note_seen()
    return _snapshot(state, mode, now)


def _snapshot(state: RoundState, mode: Mode, now: float) -> LiveSnapshot:
    live = state.live
    live.offer_ranges(now)
    jobs, constraints = live.jobs, live.constraints
    table = jobs.seen()
    table.status = _status(live, now)
    table.gang = np.maximum(table.gang, 1)  # of jobs without GPUs, which are not seen
    table.extra = constraints.extra_columns(jobs)
    table.names = live.requests.names()
    table.shapes = {jobs.row_of[job]: shape for job, shape in sorted(constraints.shapes.items())}
    table.whole_nodes = {jobs.row_of[job] for job in constraints.whole_nodes}
    table.gpus_by_type = {
        jobs.row_of[job]: wanted for job, wanted in sorted(constraints.by_type.items())
    }
    table.gpu_limits = live.eligibility.tenant_limits.on_gpus(jobs.job)
    _bound_elastic(live, table)
    _show_leaving(live, table, now)
    held = _holders(live)
    _show_claims(live, table, held, now)
    table.homes = _homes(live, table)
    return LiveSnapshot(
        number=state.number + 1,
        mode=mode,
        now=now,
        settings=state.settings,
        table=table,
        held=Held.of(held),
        finished=np.array([jobs.row_of[job] for job in live.latest_finished], np.int64),
        cluster=state.encoded_cluster(),
        service=np.array([_service(live, index) for index in range(len(live.nodes))], np.int8),
        closed=_closed(live),
        pools=constraints.pools(live.nodes),
        quotas=tuple(
            Quota(
                name=vc.name,
                gpus=vc.gpus,
                guaranteed=vc.guaranteed,
                borrow=vc.borrow,
                parent=vc.parent,
            )
            for vc in live.rules.vcs
            if vc.gpus >= 0
        ),
        rules=live.rules.site,
        reservations=live.rules.reservations,
        owners=tuple(jobs.usage.owners),
        used=jobs.usage.as_of(now),
        cells=live.rules.cells,
        speeds=live.speeds.columns(constraints.kinds, jobs.row_of),
        trainings=live.trainings.columns(jobs.row_of),
        host=host_columns(state.settings.host_profiles, constraints.kinds, jobs.row_of),
        state=state.policy_state,
    )


def copy_present(state: RoundState, now: float) -> LiveSnapshot:
    """Make a snapshot on which no round is decided: for predictions, questions and trials.

    Making one removes claims that have become void. A round must look at their jobs, as it would
    have done if it had removed them itself.
    """
    claims = state.live.claims
    before = set(claims)
    snapshot = _snapshot(state, "full", now)
    if before != set(claims):
        state.live.request_round()
    return snapshot


def _status(live: LiveState, now: float) -> Any:
    """The status of each row, in core's words."""
    jobs = live.jobs
    status = np.where(live.judge(now), WAITING, FUTURE).astype(np.int8)
    status[_runs_on(live)] = RUNNING
    status[[jobs.row_of[job] for job in live.constraints.host_only]] = FUTURE
    ended = jobs["phase"] == c.ENDED
    completed = jobs["outcome"][ended] == c.COMPLETED
    status[ended] = np.where(completed, COMPLETED, int(Status.CANCELLED))
    return status


def _bound_elastic(live: LiveState, table: SeenJobs) -> None:
    """Bound the GPUs of elastic jobs by those that there are."""
    most = table.max_gpus
    least = np.where(table.gpus_now > 0, table.gpus_now, table.gang)
    total = sum(len(node.gpus) for node in live.nodes.all())
    over = most > total
    most[over] = np.maximum(least[over], total)


def _runs_on(live: LiveState) -> Bools:
    found: Bools = (live.jobs["phase"] == c.HOLDING) & (live.jobs["leaving"] != c.GIVES_WAY)
    return found


def _holders(live: LiveState) -> Placed:
    jobs: list[int] = live.jobs["job"][_runs_on(live)].tolist()
    unseen = live.constraints.host_only
    return [
        (live.jobs.row_of[job], live.accounting.where[job]) for job in jobs if job not in unseen
    ]


def _show_leaving(live: LiveState, table: SeenJobs, now: float) -> None:
    """Show jobs that were asked to give way as stopped, with all that they have done."""
    rows = [live.jobs.row_of[job] for job in live.giving_way()]
    held = np.maximum(now - table.since[rows], 0.0)
    table.held_s[rows] += held
    parts = parts_of(table.gpu_share[rows])
    table.attained[rows] += held * table.gpus_now[rows] * parts
    table.executed[rows] += np.maximum(now - table.progress_from[rows], 0.0)
    table.since[rows] = now
    table.gpus_now[rows] = 0


def _show_claims(live: LiveState, table: SeenJobs, held: Placed, now: float) -> None:
    """Show jobs with claims as running there, without any service yet."""
    use, share = GpuUse(), table.gpu_share
    for row, placement in held:
        use.take(placement, float(share[row]))
    live.claims.drop_void()
    for job, claim in list(live.claims.items()):
        if job in live.constraints.host_only:
            continue
        row, placement = live.jobs.row_of[job], claim.placement
        fits = use.has_room(placement, float(share[row]))
        if table.status[row] == RUNNING or not fits:
            live.claims.drop(job)
            continue
        held.append((row, placement))
        use.take(placement, float(share[row]))
        table.claimed[row] = True
        table.status[row] = RUNNING
        table.gpus_now[row] = placement.gpus
        table.since[row] = table.progress_from[row] = now


def _homes(live: LiveState, table: SeenJobs) -> dict[int, Placement]:
    """Where suspended jobs are that may resume now."""
    rows = ((live.jobs.row_of[job], where) for job, where in live.claims.homes())
    return {row: where for row, where in rows if table.status[row] == WAITING}


def _closed(live: LiveState) -> Ints:
    """The GPUs that no job may get, as (node, GPU) pairs of indices, shape (n, 2)."""
    shut = {index: node.closed for index, node in enumerate(live.nodes.all()) if node.closed}
    for job in live.jobs["job"][live.jobs["phase"] == c.SUSPENDED].tolist():
        where = live.accounting.where[job]
        for index, mask in zip(where.nodes, where.masks, strict=True):
            shut[index] = shut.get(index, 0) | mask
    pairs = [
        (index, gpu)
        for index, mask in sorted(shut.items())
        for gpu in range(mask.bit_length())
        if mask >> gpu & 1
    ]
    return np.array(pairs, np.int64).reshape(-1, 2)


def _service(live: LiveState, index: int) -> int:
    """A node's service: 2 takes new runs, 1 keeps those that it has, 0 is away."""
    node = live.nodes[index]
    if node.is_open:
        return 2
    return 1 if node.status is NodeStatus.UP or live.nodes.gpu_use.taken(index) else 0
