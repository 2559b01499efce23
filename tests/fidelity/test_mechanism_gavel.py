"""Gavel's rounds with injected X: every round's GPUs and every JCT, whatever solved the X.

Sheet `gavel-mechanism`, sections 2 to 3.5 and 6.2. The mechanism is written here against the public
seams only (a scheduling policy, a performance model, a `Semantics` value): it is one of the clients
that show that core can express a scheduler whose rounds drift. Logs with packed pairs are left out:
two jobs on the same GPUs need `share_group`, which the simulated world does not have yet.
"""

from __future__ import annotations

import csv
import gzip
import json
import os
import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dlsched.core.allocation import Allocation, Grant
from dlsched.core.cluster import Cluster, parse_cluster_spec
from dlsched.core.context import RoundContext
from dlsched.core.occupancy import Occupancy, Placement
from dlsched.core.options import NoOptions
from dlsched.core.round import Parts
from dlsched.core.scheduling import SchedulingPolicy
from dlsched.core.semantics import Semantics
from dlsched.core.units import Units, UnitTable
from dlsched.core.walk import Walk
from dlsched.policies.registry import make
from simulate.checking import check_after_each_decision
from simulate.engine import Engine
from simulate.population import populate
from simulate.recorder import Recorder
from simulate.traces.trace import Trace
from simulate.world import Costs, World

ROOT = Path(os.environ.get("DLSCHED_DATA", Path(__file__).parents[3] / "shared" / "data"))
FOLDER = ROOT / "gavel"
LOGS = sorted(FOLDER.glob("mechanism_*.json.gz"))
TYPES = ("k80", "p100", "v100")  # ids are handed out in this order
PICK_ORDER = ("v100", "p100", "k80")
MIN_RESET_S = 1920.0
JCT_TOLERANCE_S = 1e-3  # the log prints six decimals

pytestmark = [
    pytest.mark.fidelity,
    pytest.mark.skipif(not LOGS, reason=f"no mechanism_*.json.gz in {FOLDER}"),
]

Speeds = dict[tuple[str, str, int], float]  # (GPU type, job type, GPUs) -> steps per second


def read_log(path: Path) -> dict[str, Any]:
    with gzip.open(path, "rt") as file:
        log: dict[str, Any] = json.load(file)
    return log


def is_packed(log: dict[str, Any]) -> bool:
    return any("(" in job for solved in log["allocs"] for job in solved["x"])


@pytest.fixture(scope="module")
def speeds() -> Speeds:
    """Steps per second of jobs that run alone on one server."""
    found: Speeds = {}
    with gzip.open(FOLDER / "simulation_throughputs.csv.gz", "rt") as file:
        for row in csv.DictReader(file):
            if row["consolidated"] == "1" and not row["co_model"]:
                batch = f" (batch size {row['batch_size']})" if row["batch_size"] else ""
                key = (row["accelerator"], row["model"] + batch, int(row["scale_factor"]))
                found[key] = float(row["steps_per_s"])
    return found


class StepsPerSecond:
    """The throughput table as a performance model: work is steps."""

    def __init__(self, speeds: Speeds) -> None:
        self.speeds = speeds

    def rate(
        self,
        row: int,
        placement: Placement,
        units: UnitTable,
        occupancy: Occupancy,
        grant: Grant | None = None,
        partners: tuple[int, ...] = (),
    ) -> float:
        gpu_type = occupancy.cluster.gpu_types[int(occupancy.type_of[placement.nodes[0]])]
        return self.speeds[gpu_type, units.extra["job_type"][row], placement.gpus]


class InjectedRounds(SchedulingPolicy[NoOptions]):
    """Gavel's mechanism; X comes from the log and must be asked for at the logged times."""

    name = "gavel-rounds"
    preemptive = True
    rests = False

    def __init__(self, log: dict[str, Any], speeds: Speeds, cluster: Cluster) -> None:
        super().__init__(NoOptions())
        self.round_s = float(log["round_s"])
        self.kind: str = log["policy_name"]
        self.global_queue: bool = log["global_queue"]
        self.solutions = iter(log["allocs"])
        self.asked: list[float] = []
        self.speeds, self.cluster = speeds, cluster
        self.shuffler = random.Random(log["seed"] + 5)
        self.x: dict[int, dict[str, float]] = {}
        self.job_time: dict[int, dict[str, float]] = {}
        self.type_time = dict.fromkeys(TYPES, 0.0)
        self.deficit: dict[int, dict[str, float]] = {}
        self.last_reset = 0.0
        self.dirty = False
        self.last_round: dict[int, tuple[str, float, float, float]] = {}  # type, from, done, rate
        self.last_gpus: dict[int, tuple[str, list[int]]] = {}
        self.round_start = 0.0  # the end of the round before, even after an idle gap

    def speed(self, row: int, gpu_type: str) -> float:
        table = self.table
        return self.speeds[gpu_type, table.extra["job_type"][row], int(table.gang[row])]

    def allocate(self, units: Units, ctx: RoundContext, walk: Walk) -> None:
        self.table = ctx.table
        active: list[int] = units.rows.tolist()
        self._credit(active)
        for row in active:
            if row not in self.job_time:
                self.job_time[row] = dict.fromkeys(TYPES, self.round_s / 2)
                self.deficit[row] = dict.fromkeys(TYPES, 0.0)
                self.dirty = True
        if self.dirty and (ctx.now - self.last_reset >= MIN_RESET_S or self.last_reset == 0):
            self._reset(active, ctx.now)
        chosen = self._assign(self._pick(active), active)
        self._carry_out(chosen, ctx, walk)

    # -- section 3.5: what the last round gave ----------------------------------------------------

    def _credit(self, active: list[int]) -> None:
        ended: list[tuple[float, int, str]] = []
        for row, (gpu_type, start, done, rate) in self.last_round.items():
            steps = float(self.table.executed[row]) - done
            ended.append((start + steps / rate, row, gpu_type))
        for stop, row, gpu_type in sorted(ended, key=lambda end: (-end[0], end[1])):
            took = stop - self.round_start
            self.job_time[row][gpu_type] += took
            self.type_time[gpu_type] += took
        if ended:
            self.round_start = max(stop for stop, _, _ in ended)
        for row in [row for row in self.job_time if row not in active]:
            del self.job_time[row], self.deficit[row]
            self.x.pop(row, None)
            self.dirty = True

    # -- section 3.2: priorities ------------------------------------------------------------------

    def _reset(self, active: list[int], now: float) -> None:
        elapsed, half = now - self.last_reset, self.round_s / 2
        for row in active:
            for gpu_type in TYPES:
                should = self.x[row][gpu_type] * elapsed if row in self.x else 0.0
                got = self.job_time[row][gpu_type] - half
                self.deficit[row][gpu_type] += should - got
                self.job_time[row][gpu_type] = half
        self.type_time = dict.fromkeys(TYPES, sum(half for _ in active))
        self.last_reset = now
        solution = next(self.solutions)
        self.asked.append(now)
        self.x = {int(row): dict(x) for row, x in solution["x"].items()}
        self.dirty = False

    def _priority(self, row: int, gpu_type: str) -> float:
        x = self.x.get(row, {}).get(gpu_type, 0.0)
        if x == 0 or self.speed(row, gpu_type) == 0:
            return 0.0
        total = self.type_time[gpu_type]
        fraction = self.job_time[row][gpu_type] / total if total else 0.0
        return x / fraction if fraction else x * 1e9

    # -- section 3.3: picking ---------------------------------------------------------------------

    def _pick(self, active: list[int]) -> dict[str, list[int]]:
        types = list(PICK_ORDER)
        if "Perf" not in self.kind and "Packing" not in self.kind:
            self.shuffler.shuffle(types)
        free = {t: sum(n.gpus for n in self.cluster.nodes if n.gpu_type == t) for t in types}
        queues = [
            [
                (
                    self._priority(row, t),
                    self.deficit[row][t],
                    self.x.get(row, {}).get(t, 0.0),
                    row,
                    t,
                )
                for row in active
            ]
            for t in types
        ]
        if self.global_queue:
            queues = [[entry for queue in queues for entry in queue]]
        picked: dict[str, list[int]] = {t: [] for t in types}
        placed: set[int] = set()
        for queue in queues:
            for priority, _, _, row, t in sorted(queue, key=lambda e: e[:3], reverse=True):
                gang = int(self.table.gang[row])
                if row in placed or self.speed(row, t) <= 0 or gang > free[t]:
                    continue
                if self.kind.startswith("FIFO") and priority <= 0:
                    continue
                picked[t].append(row)
                placed.add(row)
                free[t] -= gang
        return picked

    # -- section 3.4: GPUs ------------------------------------------------------------------------

    def _assign(
        self, picked: dict[str, list[int]], active: list[int]
    ) -> dict[int, tuple[str, list[int]]]:
        chosen: dict[int, tuple[str, list[int]]] = {}
        for gpu_type, rows in picked.items():
            servers = [
                [int(self.cluster.first_gpu[n]) + g for g in range(node.gpus)]
                for n, node in enumerate(self.cluster.nodes)
                if node.gpu_type == gpu_type
            ]
            taken: set[int] = set()
            pointer = 0
            gang = self.table.gang
            for size in sorted({int(gang[row]) for row in rows}, reverse=True):
                same_size = [row for row in rows if gang[row] == size]
                for row in same_size:
                    before = self.last_gpus.get(row)
                    if before and before[0] == gpu_type and not taken & set(before[1]):
                        chosen[row] = before
                        taken.update(before[1])
                for row in same_size:
                    if row in chosen or row not in self.x:
                        continue
                    gpus: list[int] = []
                    while len(gpus) < size:
                        if not servers[pointer]:
                            pointer += 1
                            continue
                        gpu = servers[pointer].pop(0)
                        if gpu not in taken:
                            gpus.append(gpu)
                            taken.add(gpu)
                    chosen[row] = (gpu_type, gpus)
        return chosen

    def _carry_out(
        self, chosen: dict[int, tuple[str, list[int]]], ctx: RoundContext, walk: Walk
    ) -> None:
        wanted = {row: self._placement(gpus) for row, (_, gpus) in chosen.items()}
        for row in ctx.running.rows.tolist():
            if wanted.get(row) != ctx.occupancy.held[row]:
                walk.suspend(row)
        for row, placement in wanted.items():
            if row not in ctx.occupancy.held:
                walk.place_exactly(row, placement)
        self.last_gpus = chosen
        self.last_round = {
            row: (t, ctx.now, float(self.table.executed[row]), self.speed(row, t))
            for row, (t, _) in chosen.items()
        }

    def _placement(self, gpus: list[int]) -> Placement:
        masks: dict[int, int] = {}
        for gpu in sorted(gpus):
            node = int(np.searchsorted(self.cluster.first_gpu, gpu, side="right")) - 1
            masks[node] = masks.get(node, 0) | 1 << (gpu - int(self.cluster.first_gpu[node]))
        return Placement(tuple(masks), tuple(masks.values()))


def read_steps(path: Path) -> Trace:
    """A trace whose durations are steps; job ids are row numbers."""
    with path.open() as file:
        rows = list(csv.DictReader(file))
    nothing = np.full(len(rows), "", np.object_)
    return Trace(
        name=path.stem,
        source="gavel",
        job_id=np.array([row["job_id"] for row in rows], np.object_),
        submit_time=np.array([float(row["arrival_time_s"]) for row in rows]),
        num_gpus=np.array([float(row["scale_factor"]) for row in rows]),
        duration=np.array([float(row["total_steps"]) for row in rows]),
        user=nothing,
        vc=nothing,
        status=nothing,
        columns={"job_type": np.array([row["job_type"] for row in rows], np.object_)},
    )


def cluster_of(log: dict[str, Any]) -> Cluster:
    counts = dict(zip(("v100", "p100", "k80"), log["cluster"].split(":"), strict=True))
    sizes = dict(zip(("v100", "p100", "k80"), log["gpus_per_server"].split(":"), strict=True))
    return parse_cluster_spec(
        "+".join(
            f"{int(counts[t]) // int(sizes[t])}x{sizes[t]}:{t}" for t in TYPES if counts[t] != "0"
        )
    )


def engine_of(log: dict[str, Any], speeds: Speeds) -> tuple[Engine, InjectedRounds]:
    cluster = cluster_of(log)
    units, work, pools, visible = populate(read_steps(FOLDER / log["trace"]), cluster)
    semantics = Semantics(
        name="drifting",
        source="sheet gavel-mechanism, sections 3.1 and 3.5",
        grid=float(log["round_s"]),
        drift=True,
        finish="exact",
        release="tick",
        between="none",
    )
    world = World(
        units,
        Occupancy(cluster),
        work,
        performance=StepsPerSecond(speeds),
        semantics=semantics,
        costs=Costs(),
        recorder=Recorder(),
    )
    policy = InjectedRounds(log, speeds, cluster)
    parts = Parts(
        scheduling=policy,
        placement=make("placement", "first-free"),
        admission=make("admission", "accept-all"),
        estimator=make("estimator", "oracle"),
    )
    arrivals = np.argsort(visible, kind="stable")
    return Engine(world=world, parts=parts, pools=pools, arrivals=arrivals, visible=visible), policy


@pytest.mark.parametrize("path", LOGS, ids=lambda path: path.name.split(".json")[0][10:])
def test_every_round_gives_the_logged_gpus(path: Path, speeds: Speeds) -> None:
    log = read_log(path)
    if is_packed(log):
        pytest.skip("packed pairs: two jobs on the same GPUs are not supported yet")
    engine, policy = engine_of(log, speeds)
    check_after_each_decision(engine)
    rounds: list[tuple[float, dict[str, list[int]]]] = []

    def note(engine: Engine, _: Allocation) -> None:
        occupancy = engine.world.occupancy
        held = {str(row): p.gpu_ids(occupancy.cluster) for row, p in occupancy.held.items()}
        rounds.append((engine.now, {row: sorted(gpus) for row, gpus in held.items()}))

    engine.observers.append(note)
    engine.run()

    expected = [(entry["t"], entry["assign"]) for entry in log["rounds_log"][:-1]]
    for (at, gpus), (logged_at, logged) in zip(rounds, expected, strict=False):
        assert at == pytest.approx(logged_at, abs=1e-6)
        assert gpus == {row: sorted(ids) for row, ids in logged.items()}, f"round at {logged_at}"
    assert len(rounds) == len(expected)
    solved = [entry["t"] for entry in log["allocs"] if entry["x"]]  # not after the last completion
    assert policy.asked == pytest.approx(solved, abs=1e-6)
    table = engine.world.table
    for row, jct in log["jct"].items():
        ours = float(table.finish[int(row)] - table.submit_time[int(row)])
        assert ours == pytest.approx(jct, abs=JCT_TOLERANCE_S), f"job {row}"
