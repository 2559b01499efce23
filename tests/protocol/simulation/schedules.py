"""Seeded schedules: jobs, faults, network and clocks drawn from one number.

A *theme* names the possible faults; a seed chooses among them. Faults stop at `CALM_AT`. After that
the world must come to rest by itself, with every accepted job ended.
"""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from dataclasses import dataclass, replace

from dlsched.protocol.ledger import Request
from dlsched.protocol.messages import Fence, LaunchMode, Limits, RequestId
from tests.protocol.simulation.scenario import Behaviour, Fault, Faults, Network, OnStop
from tests.protocol.simulation.world import World

CALM_AT = 150.0
LIMIT = 1500.0  # for all jobs to end; longer where they have more to do
RUN_S = 60.0  # of a run, for all but its work and its end: to be placed, prepared and reported
CODES = (0, 0, 0, 3)  # exit codes of jobs that end by themselves


@dataclass(frozen=True, slots=True, kw_only=True)
class Theme:
    """A family of schedules: its possible faults and the size of its world."""

    kinds: tuple[str, ...]
    leaders: int = 1
    nodes: int = 2
    jobs: int = 3
    gangs: bool = False
    fence: Fence = Fence.HOLD
    unrest: float = 0.02  # chance a second and running job of a preemption or suspension
    gives_way: float = 0.0  # share of the suspensions in which other runs may use the GPUs
    gpus: int = 2  # of each node
    whole_runs: float = 0.0  # share of the worlds whose round leaves GPUs to runs that are ending
    codes: tuple[int, ...] = CODES  # of jobs that end by themselves
    shares: tuple[float | None, ...] = ()  # of a GPU that a job may need; empty: the whole GPU
    can_fence: bool = True  # a keeper's death ends its job
    power_cycles: bool = False  # the site has a fencing command
    hooks: bool = False  # the site has a prolog and an epilog
    joins: int = 0  # of the nodes, so many start within the first minute
    rough: bool = True  # a network that loses, doubles and delays


MANAGEMENT = ("crash leader", "crash agent", "cut", "cut one way", "pause", "database down")
MACHINES = ("reboot", "crash keeper", "cancel")
THEMES = {
    "calm": Theme(kinds=("cancel", "suspend", "resume", "preempt"), rough=False, gangs=True),
    "one-node": Theme(kinds=(*MANAGEMENT, *MACHINES)),
    "gangs": Theme(kinds=(*MANAGEMENT, *MACHINES), gangs=True, nodes=3),
    "two-leaders": Theme(
        kinds=(*MANAGEMENT, "cut from database", "pause", "reboot"), leaders=2, gangs=True
    ),
    "lease": Theme(
        kinds=(*MANAGEMENT, "isolate", "isolate", "reboot", "cut from database"),
        leaders=2,
        nodes=4,
        gangs=True,
        fence=Fence.LEASE,
    ),
    "restore": Theme(kinds=("crash agent", "cut one way", "restore", "cancel"), gangs=True),
    "lost records": Theme(
        kinds=(*MANAGEMENT, *MACHINES, "lose records", "lose records", "old records"),
        leaders=2,
        gangs=True,
    ),
    "unfenced": Theme(
        kinds=(*MANAGEMENT, *MACHINES, *("crash keeper",) * 4, "requeue", "preempt"),
        leaders=2,
        jobs=4,
        gangs=True,
        can_fence=False,
    ),
    "paused keepers": Theme(
        kinds=(*MANAGEMENT, *MACHINES, *("pause keeper",) * 5), gangs=True, jobs=4
    ),
    "unfenced lease": Theme(
        kinds=(*("crash keeper",) * 4, *("isolate",) * 4, "cut", "crash agent", "reboot"),
        nodes=4,
        jobs=4,
        fence=Fence.LEASE,
        can_fence=False,
    ),
    "switched off": Theme(
        kinds=(*("isolate",) * 6, "cut", "pause", "crash leader"),
        leaders=2,
        nodes=4,
        jobs=9,
        gangs=True,
        gpus=1,
        power_cycles=True,
        rough=False,
    ),
    "hooks": Theme(
        kinds=(*MANAGEMENT, *MACHINES, *("crash keeper",) * 3, *("crash agent",) * 3, "preempt"),
        nodes=3,
        jobs=5,
        gangs=True,
        hooks=True,
    ),
    "joining": Theme(
        kinds=(*MANAGEMENT, "isolate", "isolate", "cut", "cut", "reboot", "cut from database"),
        leaders=2,
        nodes=5,
        jobs=4,
        gangs=True,
        fence=Fence.LEASE,
        joins=3,
    ),
    "giving way": Theme(
        kinds=(*MANAGEMENT, *MACHINES, "restore", "preempt", "resume"),
        leaders=2,
        jobs=6,
        gangs=True,
        unrest=0.08,
        gives_way=0.8,
    ),
    "sharing": Theme(
        kinds=(*MANAGEMENT, *MACHINES, "restore", "preempt", "resume"),
        leaders=2,
        jobs=7,
        gangs=True,
        unrest=0.05,
        gives_way=0.6,
        gpus=1,
        shares=(None, 0.5, 0.5, 1 / 3, 0.7),
    ),
    "again": Theme(
        kinds=(*MANAGEMENT, *MACHINES, *("requeue",) * 4, "restore", "preempt"),
        leaders=2,
        nodes=3,
        jobs=5,
        gangs=True,
        unrest=0.05,
        whole_runs=0.7,
        codes=(0, 3, 3),
    ),
}


def world(theme: str, seed: int) -> World:
    """The world of one schedule, ready to run."""
    chosen, rng = THEMES[theme], random.Random(f"{theme} {seed}")
    jobs = [_job(chosen, rng, k) for k in range(chosen.jobs)]
    nodes = [f"n{k}" for k in range(1, chosen.nodes + 1)]
    leaders = [f"d{k}" for k in range(1, chosen.leaders + 1)]
    faults: list[Fault] = []
    for _ in range(rng.randint(1, 6)):
        faults.extend(_draw(chosen, rng, nodes, leaders))
    network = Network()
    if chosen.rough and rng.random() < 0.7:
        network = Network(
            slow=rng.choice([0.0, 0.05, 0.3]),
            lost=rng.choice([0.0, 0.05, 0.2]),
            doubled=rng.choice([0.0, 0.1]),
        )
    rates = {name: rng.choice([0.95, 1.0, 1.05]) for name in (*nodes, *leaders)}
    return World(
        seed=seed,
        nodes=chosen.nodes,
        gpus=chosen.gpus,
        leaders=chosen.leaders,
        jobs=jobs,
        faults=Faults(
            faults=tuple(sorted(faults, key=lambda fault: fault.at)),
            network=network,
            clock_rates=rates,
        ),
        can_freeze=chosen.fence is Fence.HOLD or rng.random() < 0.7,
        can_fence=chosen.can_fence,
        hooks=chosen.hooks,
        power_cycles=chosen.power_cycles,
        joins={node: rng.uniform(5, 60) for node in nodes[: chosen.joins]},
        unrest=rng.choice([0.0, chosen.unrest]),
        gives_way=chosen.gives_way,
        whole_runs=rng.random() < chosen.whole_runs,
    )


def play(theme: str, seed: int) -> World:
    """Run one schedule to its end and check every invariant on the way.

    Raises:
        InvariantBroken: with the log.
    """
    made = world(theme, seed)
    made.run(CALM_AT)
    made.network, made.unrest = Network(), 0.0
    made.run_until_done(limit(made.jobs))
    made.run(made.now + 30.0)
    made.checker.settled()
    return made


def limit(jobs: Sequence[tuple[Request, Behaviour]]) -> float:
    """The time by which every job must have ended, even if they execute one after another.

    No fault and no user ends a run that begins after `CALM_AT`. So a job has at most the run that
    it has then, one more, and its retries.
    """
    needed = math.fsum(
        (2 + request.retries) * (behaviour.work_s + request.grace_s + behaviour.stuck_s + RUN_S)
        for request, behaviour in jobs
    )
    return max(LIMIT, CALM_AT + needed)


def _job(theme: Theme, rng: random.Random, number: int) -> tuple[Request, Behaviour]:
    gang: tuple[int, ...] = (1,)
    if theme.gangs and rng.random() < 0.6:
        gang = (1,) * rng.randint(2, theme.nodes)
    request = Request(
        request_id=RequestId(f"r{number}"),
        gang=gang,
        mode=LaunchMode.NODE if len(gang) > 1 and rng.random() < 0.7 else LaunchMode.BATCH,
        fence=theme.fence,
        retries=rng.choice([0, 2]),
        grace_s=rng.choice([3.0, 20.0]),
    )
    if rng.random() < 0.1:
        request = replace(request, limits=Limits(time_s=15.0))
    if theme.shares:
        request = replace(request, gpu_share=rng.choice(theme.shares))
    behaviour = Behaviour(
        work_s=rng.choice([1.0, 20.0, 60.0, 120.0]),
        code=rng.choice(theme.codes),
        on_term=rng.choice(["leave", "leave", "die", "ignore"]),
        stuck_s=rng.choice([0.0, 0.0, 0.0, 0.0, 90.0]),
        lets_go=not theme.gives_way or rng.random() < 0.8,
    )
    ways: dict[str, list[OnStop]] = {
        "leave": ["leave", "agree", "save", "wrapper"],
        "ignore": ["ignore", "finish", "finish"],
    }
    if behaviour.on_term in ways:  # drawn apart: the other draws of a seed stay as they were
        way = random.Random(f"{number} {behaviour}").choice(ways[behaviour.on_term])
        behaviour = replace(behaviour, on_term=way)
    if behaviour.code and theme.codes != CODES:
        fails = random.Random(f"{number} {behaviour}").choice([1, 2, None])
        behaviour = replace(behaviour, fails=fails, alone=len(gang) > 1)
    return request, behaviour


def _draw(  # one case a kind
    theme: Theme, rng: random.Random, nodes: list[str], leaders: list[str]
) -> list[Fault]:
    at = rng.uniform(2, CALM_AT - 80)
    for_s = min(rng.choice([0.5, 3.0, 8.0, 20.0, 75.0, 140.0]), CALM_AT - at)
    node, leader, kind = rng.choice(nodes), rng.choice(leaders), rng.choice(theme.kinds)
    match kind:
        case "crash leader":
            return [Fault(at=at, kind=kind, target=leader, for_s=for_s)]
        case "crash agent" | "reboot" | "crash keeper" | "lose records":
            return [Fault(at=at, kind=kind, target=node, for_s=for_s)]
        case "pause keeper":
            asked = [
                Fault(at=at + 1.0, kind=rng.choice(["cancel", "preempt"]), target=str(job))
                for job in range(1, theme.jobs + 1)
            ]
            return [Fault(at=at, kind=kind, target=node, for_s=for_s), *asked]
        case "cut":
            return [Fault(at=at, kind=kind, target=node, other=leader, for_s=for_s)]
        case "cut one way":
            ends = [node, leader]
            rng.shuffle(ends)
            return [Fault(at=at, kind=kind, target=ends[0], other=ends[1], for_s=for_s)]
        case "isolate":
            return [Fault(at=at, kind="cut", target=node, other="*", for_s=for_s)]
        case "cut from database":
            return [Fault(at=at, kind="cut", target=leader, other="database", for_s=for_s)]
        case "pause":
            return [Fault(at=at, kind=kind, target=rng.choice([node, leader]), for_s=for_s)]
        case "database down":
            return [Fault(at=at, kind=kind, for_s=for_s)]
        case "requeue":
            jobs = range(1, theme.jobs + 1)
            return [Fault(at=at + 10.0, kind=kind, target=str(job)) for job in jobs]
        case "old records":
            since = Fault(at=max(at - rng.choice([1.0, 10.0, 40.0]), 0.5), kind="copy records")
            since = replace(since, target=node)
            return [since, Fault(at=at, kind=kind, target=node, for_s=for_s)]
        case "restore":
            since = Fault(at=max(at - rng.choice([1.0, 10.0, 40.0]), 0.5), kind="backup")
            return [since, Fault(at=at, kind="restore")]
        case _:
            job = str(rng.randint(1, theme.jobs))
            return [Fault(at=at, kind=kind, target=job)]
