"""Seeded schedules: jobs, faults, network and clocks drawn from one number.

A *theme* says what may go wrong; a seed says what does. Faults stop at `CALM_AT`, after which the
world must come to rest by itself: every accepted job at its end, nothing forgotten.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, replace

from dlsched.protocol.ledger import Request
from dlsched.protocol.messages import Fence, LaunchMode, Limits, RequestId
from dlsched.protocol.simulation.faults import Fault, Faults, Network
from dlsched.protocol.simulation.processes import Behaviour
from dlsched.protocol.simulation.world import World

CALM_AT = 150.0
LIMIT = 1500.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Theme:
    """What a family of schedules consists of."""

    kinds: tuple[str, ...]
    leaders: int = 1
    nodes: int = 2
    jobs: int = 3
    gangs: bool = False
    fence: Fence = Fence.HOLD
    unrest: float = 0.02  # chance a second and running job of a preemption or suspension
    gives_way: float = 0.0  # share of the suspensions in which others get the GPUs
    gpus: int = 2  # of each node
    shares: tuple[float | None, ...] = ()  # of a GPU that a job may need; none: all of it
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
        unrest=rng.choice([0.0, chosen.unrest]),
        gives_way=chosen.gives_way,
    )


def play(theme: str, seed: int) -> World:
    """Run one schedule to its end; every invariant is checked on the way.

    Raises:
        InvariantBroken: with the story.
    """
    made = world(theme, seed)
    made.run(CALM_AT)
    made.network, made.unrest = Network(), 0.0
    made.run_until_done(LIMIT)
    made.run(made.now + 30.0)
    made.checker.settled()
    return made


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
        code=rng.choice([0, 0, 0, 3]),
        on_term=rng.choice(["leave", "leave", "die", "ignore"]),
        stuck_s=rng.choice([0.0, 0.0, 0.0, 0.0, 90.0]),
        lets_go=not theme.gives_way or rng.random() < 0.8,
    )
    return request, behaviour


def _draw(  # noqa: PLR0911  # one case a kind
    theme: Theme, rng: random.Random, nodes: list[str], leaders: list[str]
) -> list[Fault]:
    at = rng.uniform(2, CALM_AT - 80)
    for_s = min(rng.choice([0.5, 3.0, 8.0, 20.0, 75.0, 140.0]), CALM_AT - at)
    node, leader, kind = rng.choice(nodes), rng.choice(leaders), rng.choice(theme.kinds)
    match kind:
        case "crash leader":
            return [Fault(at=at, kind=kind, target=leader, for_s=for_s)]
        case "crash agent" | "reboot" | "crash keeper":
            return [Fault(at=at, kind=kind, target=node, for_s=for_s)]
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
        case "restore":
            since = Fault(at=max(at - rng.choice([1.0, 10.0, 40.0]), 0.5), kind="backup")
            return [since, Fault(at=at, kind="restore")]
        case _:
            job = str(rng.randint(1, theme.jobs))
            return [Fault(at=at, kind=kind, target=job)]
