"""A full live round over 10,000 pending jobs and 10,000 GPUs: CPU milliseconds, by stage.

    python -m benchmarks.live.round [POLICY…]

The live state is filled through the ledger's own writes; a first round fills the cluster, then
rounds follow a minute apart, decided by a real worker process. `snapshot` is taken in the daemon,
`send` is what the daemon spends on bytes and pipe, both ways, `decide` is the worker's CPU time,
`verify` and `apply` are the daemon's again. The sum is the cost of a round; medians are shown.
Under `las` with equal jobs some two thousand jobs change places in each round.
"""

from __future__ import annotations

import asyncio
import math
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import numpy as np

from benchmarks.measure import heading
from dlsched.daemon.live.live_state import LiveState
from dlsched.daemon.round.parts import RoundSettings
from dlsched.daemon.round.plan import Plan, carry_out, verify
from dlsched.daemon.round.round_state import RoundState
from dlsched.daemon.round.snapshot_builder import take_snapshot
from dlsched.daemon.round.worker import PolicyWorker
from dlsched.db.records import JobBody, JobSpec
from dlsched.protocol.ledger import (
    Assign,
    Changes,
    Ledger,
    MemberOver,
    RegisterNode,
    Request,
    StopRun,
    Submit,
    Write,
    apply_all,
)
from dlsched.protocol.messages import (
    BootId,
    GpuId,
    Incarnation,
    Inventory,
    JobId,
    NodeName,
    RequestId,
    RunId,
    RunKey,
    RunNumber,
)

POLICIES = ("fifo", "las", "srtf", "tiresias")
NODES, GPUS_A_NODE, PENDING, ROUNDS = 1250, 8, 10_000, 5
STAGES = ("snapshot", "send", "decide", "verify", "apply")


class Bench:
    """A live state, the ledger it follows, and what each stage has cost."""

    def __init__(self, policy: str, *, shaped: float) -> None:
        self.live = LiveState()
        self.state = RoundState(self.live, RoundSettings(parts={"scheduling": policy}))
        self.ledger = Ledger()
        self.cost: dict[str, list[float]] = {stage: [] for stage in STAGES}
        self.runs = 0
        self.rng = np.random.default_rng(0)
        self.shaped = shaped
        self.worker = PolicyWorker(time_limit_s=60)
        self.write([self.node(k) for k in range(1, NODES + 1)], 0.0)

    def write(self, writes: list[Write], now: float) -> None:
        """Both the ledger and the live state follow."""
        self.ledger = apply_all(self.ledger, writes)
        self.live.apply(Changes(writes), self.ledger, now)

    @staticmethod
    def node(number: int) -> RegisterNode:
        """A node with its GPUs."""
        name = NodeName(f"n{number}")
        gpus = tuple(GpuId(f"GPU-{number:05}-{k}") for k in range(GPUS_A_NODE))
        return RegisterNode(
            node=name,
            boot_id=BootId("boot"),
            incarnation=Incarnation(1),
            inventory=Inventory(gpus=gpus, gpu_type="v100"),
        )

    def submit(self, count: int, now: float) -> None:
        """Jobs of one to sixteen GPUs arrive."""
        first = self.ledger.next_job
        writes: list[Write] = []
        for k in range(count):
            gpus = int(self.rng.choice([1, 1, 1, 2, 4, 8, 16]))
            nodes = max(gpus // 8, 1)
            shaped = self.rng.random() < self.shaped
            body = JobBody(
                name="train",
                gpus=gpus,
                gang=(gpus // nodes,) * nodes if shaped else None,
                time_limit_s=float(60 * 10 ** self.rng.uniform(0.5, 3)),
            )
            spec = JobSpec(body=body, user=f"u{k % 50}", uid=k % 50, submitted_at=now)
            request = Request(request_id=RequestId(f"r{first + k}"), user=spec.user, spec=spec)
            writes.append(Submit(request=request, job=JobId(first + k)))
        self.write(writes, now)

    @contextmanager
    def timed(self, stage: str) -> Iterator[None]:
        """Note what a stage costs."""
        before = time.process_time()
        yield
        self.cost[stage].append((time.process_time() - before) * 1000)

    async def round(self, now: float) -> Plan:
        """One round, as the daemon conducts it."""
        with self.timed("snapshot"):
            snapshot = take_snapshot(self.state, "full", now)
        with self.timed("send"):
            decided = await self.worker.decide(snapshot)
        self.cost["decide"].append(decided.cpu_s * 1000)
        with self.timed("verify"):
            problems = verify(decided, self.live)
        assert not problems, problems[:3]
        with self.timed("apply"):
            return carry_out(decided, self.state)

    def carry(self, plan: Plan, now: float) -> None:
        """What agents and the leader would do of a plan, at once."""
        for job, reason in plan.stops:
            run = self.ledger.live_run(job)
            assert run is not None
            over = [MemberOver(run.key.run_id, name, presumed="left") for name in run.members]
            self.write([StopRun(run.key.run_id, reason), *over], now)
        writes: list[Write] = []
        for job, _ in self.live.ready_claims():
            self.runs += 1
            number = RunNumber(self.ledger.jobs[job].runs + 1)
            key = RunKey(job, number, RunId(f"run{self.runs}"))
            shares = self.live.nodes.shares(self.live.claims[job].placement)
            writes.append(Assign(key=key, shares=shares))
        self.write(writes, now)


async def measure(policy: str, *, shaped: float) -> dict[str, float]:
    """Median CPU milliseconds a stage."""
    bench = Bench(policy, shaped=shaped)
    await bench.worker.start()
    now = 1.0
    bench.submit(PENDING + 4000, now)
    bench.carry(await bench.round(now), now)
    for stage in STAGES:
        bench.cost[stage].clear()
    for _ in range(ROUNDS):
        now += 60.0
        waiting = int((bench.live.jobs["phase"] == 0).sum())
        bench.submit(max(PENDING - waiting, 0), now)
        bench.carry(await bench.round(now), now)
    await bench.worker.close()
    return {stage: statistics.median(costs) for stage, costs in bench.cost.items()}


def main(say: Callable[[str], None] = print) -> None:
    """Print a table."""
    heading()
    say(f"{PENDING:,} pending jobs, {NODES * GPUS_A_NODE:,} GPUs; median CPU ms of {ROUNDS} rounds")
    say(f"{'policy':<10} {'shaped':>6} " + " ".join(f"{s:>8}" for s in STAGES) + f" {'sum':>8}")
    for policy in sys.argv[1:] or POLICIES:
        for shaped in (0.0, 0.3):
            cost = asyncio.run(measure(policy, shaped=shaped))
            figures = " ".join(f"{cost[stage]:8.1f}" for stage in STAGES)
            say(f"{policy:<10} {shaped:>6.0%} {figures} {math.fsum(cost.values()):8.1f}")


if __name__ == "__main__":
    main()
