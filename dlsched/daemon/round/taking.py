"""Taking a snapshot of the board: what policies are to see, and how."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from dlsched.core.arrays import Bools, Ints
from dlsched.core.context import Mode
from dlsched.core.occupancy import Placement
from dlsched.core.units import COMPLETED, FUTURE, RUNNING, WAITING, Status
from dlsched.daemon.board import Board
from dlsched.daemon.round import columns as c
from dlsched.daemon.round.machines import Machine
from dlsched.daemon.round.room import Room
from dlsched.daemon.round.snapshot import Held, LiveSnapshot, Quota
from dlsched.protocol.ledger import NodeStatus

__all__ = ["take_snapshot"]

Placed = list[tuple[int, Placement]]  # rows and where they are


def take_snapshot(board: Board, mode: Mode, now: float) -> LiveSnapshot:
    """Everything that the next decision depends on."""
    board.note_seen()
    jobs = board.jobs
    names = ("job", "runs", *c.SEEN_BY_POLICIES, "expected", "steps_done", "loss")
    columns: dict[str, Any] = {name: jobs[name].copy() for name in names}
    columns["claimed"] = np.zeros(jobs.count, np.bool_)
    columns["status"] = _status(board, now)
    _bound_elastic(board, columns)
    _show_leaving(board, columns, now)
    held = _holders(board)
    _show_claims(board, columns, held, now)
    machines = board.machines.all()
    return LiveSnapshot(
        number=board.round_number + 1,
        mode=mode,
        now=now,
        settings=board.settings,
        columns=columns | board.asks.extra_columns(jobs),
        names=board.names(),
        shapes={jobs.row_of[job]: shape for job, shape in sorted(board.asks.shapes.items())},
        whole_nodes=tuple(sorted(jobs.row_of[job] for job in board.asks.whole_nodes)),
        held=_flat(held),
        homes=_flat(_homes(board, columns["status"])),
        finished=np.array([jobs.row_of[job] for job in board.finished], np.int64),
        cluster=board.machines.encoded(),
        service=np.array([_service(board, k) for k in range(len(machines))], np.int8),
        closed=_closed(board, machines),
        pools=board.asks.pools(board.machines),
        quotas=tuple(
            Quota(
                name=vc.name,
                gpus=vc.gpus,
                guaranteed=vc.guaranteed,
                borrow=vc.borrow,
                parent=vc.parent,
            )
            for vc in board.rules.vcs
            if vc.gpus >= 0
        ),
        speeds=board.speeds.columns(board.asks.kinds, jobs.row_of),
        trainings=board.trainings.columns(jobs.row_of),
        state=board.policy_state,
    )


def _status(board: Board, now: float) -> Any:
    """Where each row is in its life, in core's words."""
    jobs = board.jobs
    status = np.where(board.judge(now), WAITING, FUTURE).astype(np.int8)
    status[_runs_on(board)] = RUNNING
    ended = jobs["phase"] == c.ENDED
    well = jobs["outcome"][ended] == c.COMPLETED
    status[ended] = np.where(well, COMPLETED, int(Status.CANCELLED))
    return status


def _bound_elastic(board: Board, columns: dict[str, Any]) -> None:
    """Elastic jobs are seen with no more GPUs than there are, and than quotas leave them."""
    most = columns["max_gpus"]
    least = np.where(columns["gpus_now"] > 0, columns["gpus_now"], columns["gang"])
    total = sum(len(machine.gpus) for machine in board.machines.all())
    over = most > total
    most[over] = np.maximum(least[over], total)
    for job, bound in board.eligibility.tenant_limits.most.items():
        row = board.jobs.row_of[job]
        most[row] = max(int(least[row]), min(int(most[row]), bound))


def _runs_on(board: Board) -> Bools:
    found: Bools = (board.jobs["phase"] == c.HOLDING) & (board.jobs["leaving"] != c.GIVES_WAY)
    return found


def _holders(board: Board) -> Placed:
    jobs: list[int] = board.jobs["job"][_runs_on(board)].tolist()
    return [(board.jobs.row_of[job], board.placed(job)) for job in jobs]


def _show_leaving(board: Board, columns: dict[str, Any], now: float) -> None:
    """Jobs that were asked to give way are seen as stopped, with all that they have done."""
    rows = [board.jobs.row_of[job] for job in board.giving_way()]
    held = np.maximum(now - columns["since"][rows], 0.0)
    columns["held_s"][rows] += held
    columns["attained"][rows] += held * columns["gpus_now"][rows]
    columns["executed"][rows] += np.maximum(now - columns["progress_from"][rows], 0.0)
    columns["since"][rows] = now
    columns["gpus_now"][rows] = 0


def _show_claims(board: Board, columns: dict[str, Any], held: Placed, now: float) -> None:
    """Jobs that were given GPUs are seen as running there; they have not had any service yet."""
    room, share = Room(), columns["gpu_share"]
    for row, placement in held:
        room.take(placement, float(share[row]))
    for job, placement in board.standing_claims():
        row = board.jobs.row_of[job]
        if columns["status"][row] == RUNNING or not room.has(placement, float(share[row])):
            board.drop_claim(job)
            continue
        held.append((row, placement))
        room.take(placement, float(share[row]))
        columns["claimed"][row] = True
        columns["status"][row] = RUNNING
        columns["gpus_now"][row] = placement.gpus
        columns["since"][row] = columns["progress_from"][row] = now


def _homes(board: Board, status: Any) -> Placed:
    """Where suspended jobs that may resume are resident, and can resume at all."""
    rows = [(board.jobs.row_of[job], where) for job, where in board.homes()]
    return [(row, where) for row, where in rows if status[row] == WAITING]


def _closed(board: Board, machines: Sequence[Machine]) -> Ints:
    """GPUs that nobody gets, as (node, place)."""
    shut = {node: machine.closed for node, machine in enumerate(machines) if machine.closed}
    for job in board.jobs["job"][board.jobs["phase"] == c.SUSPENDED].tolist():
        where = board.placed(job)
        for node, mask in zip(where.nodes, where.masks, strict=True):
            shut[node] = shut.get(node, 0) | mask
    pairs = [
        (node, place)
        for node, mask in sorted(shut.items())
        for place in range(mask.bit_length())
        if mask >> place & 1
    ]
    return np.array(pairs, np.int64).reshape(-1, 2)


def _service(board: Board, node: int) -> int:
    machine = board.machines[node]
    if machine.is_open:
        return 2
    return 1 if machine.status is NodeStatus.UP or board.machines.room.taken(node) else 0


def _flat(placements: Sequence[tuple[int, Placement]]) -> Held:
    """Placements as one entry a GPU."""
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
