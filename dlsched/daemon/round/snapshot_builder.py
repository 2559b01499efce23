"""Makes snapshots of the live state: what policies see."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from dlsched.core.arrays import Bools, Ints
from dlsched.core.cluster.gpus_by_type import by_type_text
from dlsched.core.cluster.occupancy import Placement
from dlsched.core.context import Mode
from dlsched.core.parts import parts_of
from dlsched.core.units import COMPLETED, FUTURE, RUNNING, WAITING, Status
from dlsched.daemon.live import job_columns as c
from dlsched.daemon.live.gpu_use import GpuUse
from dlsched.daemon.live.live_state import LiveState
from dlsched.daemon.round.host_profiles import host_columns
from dlsched.daemon.round.round_state import RoundState
from dlsched.daemon.round.snapshot import Held, LiveSnapshot, Quota
from dlsched.protocol.ledger import NodeStatus

Placed = list[tuple[int, Placement]]  # rows and where they are


def take_snapshot(state: RoundState, mode: Mode, now: float) -> LiveSnapshot:
    """Make a snapshot: everything that the next decision depends on."""
    live = state.live
    live.note_seen()
    live.offer_ranges(now)
    jobs = live.jobs
    reported = ("steps_done", "loss", "accuracy")
    names = ("job", "runs", *c.SEEN_BY_POLICIES, "expected", *reported, *c.MEASURED)
    columns: dict[str, Any] = {name: jobs[name].copy() for name in names}
    columns["claimed"] = np.zeros(jobs.count, np.bool_)
    columns["status"] = _status(live, now)
    columns["gang"] = np.maximum(columns["gang"], 1)  # of jobs without GPUs, which are not seen
    _bound_elastic(live, columns)
    _show_leaving(live, columns, now)
    held = _holders(live)
    _show_claims(live, columns, held, now)
    return LiveSnapshot(
        number=state.number + 1,
        mode=mode,
        now=now,
        settings=state.settings,
        columns=columns | live.constraints.extra_columns(jobs),
        names=live.requests.names(),
        shapes={jobs.row_of[job]: shape for job, shape in sorted(live.constraints.shapes.items())},
        whole_nodes=tuple(sorted(jobs.row_of[job] for job in live.constraints.whole_nodes)),
        gpus_by_type={
            jobs.row_of[job]: by_type_text(wanted)
            for job, wanted in sorted(live.constraints.by_type.items())
        },
        held=_flat(held),
        homes=_flat(_homes(live, columns["status"])),
        finished=np.array([jobs.row_of[job] for job in live.finished], np.int64),
        cluster=state.encoded_cluster(),
        service=np.array([_service(live, index) for index in range(len(live.nodes))], np.int8),
        closed=_closed(live),
        pools=live.constraints.pools(live.nodes),
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
        speeds=live.speeds.columns(live.constraints.kinds, jobs.row_of),
        trainings=live.trainings.columns(jobs.row_of),
        host=host_columns(state.settings.host_profiles, live.constraints.kinds, jobs.row_of),
        state=state.policy_state,
    )


def copy_present(state: RoundState, now: float) -> LiveSnapshot:
    """Make a snapshot on which no round is decided: for predictions, questions and trials.

    Making one removes claims that have become void. A round must look at their jobs, as it would
    have done if it had removed them itself.
    """
    claims = state.live.claims
    before = set(claims)
    snapshot = take_snapshot(state, "full", now)
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


def _bound_elastic(live: LiveState, columns: dict[str, Any]) -> None:
    """Bound the GPUs of elastic jobs by those that there are, and by what quotas leave them."""
    most = columns["max_gpus"]
    least = np.where(columns["gpus_now"] > 0, columns["gpus_now"], columns["gang"])
    total = sum(len(node.gpus) for node in live.nodes.all())
    over = most > total
    most[over] = np.maximum(least[over], total)
    for job, bound in live.eligibility.tenant_limits.most.items():
        row = live.jobs.row_of[job]
        most[row] = max(int(least[row]), min(int(most[row]), bound))


def _runs_on(live: LiveState) -> Bools:
    found: Bools = (live.jobs["phase"] == c.HOLDING) & (live.jobs["leaving"] != c.GIVES_WAY)
    return found


def _holders(live: LiveState) -> Placed:
    jobs: list[int] = live.jobs["job"][_runs_on(live)].tolist()
    unseen = live.constraints.host_only
    return [
        (live.jobs.row_of[job], live.accounting.where[job]) for job in jobs if job not in unseen
    ]


def _show_leaving(live: LiveState, columns: dict[str, Any], now: float) -> None:
    """Show jobs that were asked to give way as stopped, with all that they have done."""
    rows = [live.jobs.row_of[job] for job in live.giving_way()]
    held = np.maximum(now - columns["since"][rows], 0.0)
    columns["held_s"][rows] += held
    parts = parts_of(columns["gpu_share"][rows])
    columns["attained"][rows] += held * columns["gpus_now"][rows] * parts
    columns["executed"][rows] += np.maximum(now - columns["progress_from"][rows], 0.0)
    columns["since"][rows] = now
    columns["gpus_now"][rows] = 0


def _show_claims(live: LiveState, columns: dict[str, Any], held: Placed, now: float) -> None:
    """Show jobs with claims as running there, without any service yet."""
    use, share = GpuUse(), columns["gpu_share"]
    for row, placement in held:
        use.take(placement, float(share[row]))
    live.claims.drop_void()
    for job, claim in list(live.claims.items()):
        if job in live.constraints.host_only:
            continue
        row, placement = live.jobs.row_of[job], claim.placement
        fits = use.has_room(placement, float(share[row]))
        if columns["status"][row] == RUNNING or not fits:
            live.claims.drop(job)
            continue
        held.append((row, placement))
        use.take(placement, float(share[row]))
        columns["claimed"][row] = True
        columns["status"][row] = RUNNING
        columns["gpus_now"][row] = placement.gpus
        columns["since"][row] = columns["progress_from"][row] = now


def _homes(live: LiveState, status: Any) -> Placed:
    """Where suspended jobs are that may resume now."""
    rows = [(live.jobs.row_of[job], where) for job, where in live.claims.homes()]
    return [(row, where) for row, where in rows if status[row] == WAITING]


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


def _flat(placements: Sequence[tuple[int, Placement]]) -> Held:
    """Placements with one entry for each GPU."""
    rows: list[int] = []
    nodes: list[int] = []
    gpus: list[int] = []
    for row, placement in placements:
        for node, mask in zip(placement.nodes, placement.masks, strict=True):
            rest = mask
            while rest:
                bit = rest & -rest
                rows.append(row)
                nodes.append(node)
                gpus.append(bit.bit_length() - 1)
                rest ^= bit
    return Held(
        row=np.array(rows, np.int64), node=np.array(nodes, np.int64), gpu=np.array(gpus, np.int64)
    )
