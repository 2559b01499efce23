"""How short tasks are scheduled in a comparison."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Kind:
    """Servers that are alike.

    Attributes:
        count: how many.
        cores: of each.
        memory: of each.
        success: the probability that a task does not fail there.
    """

    count: int
    cores: float
    memory: float
    success: float = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """What is the same for all schedulers of a run.

    Attributes:
        schedulers: how many; jobs go to them in turn.
        tokens: of a job that does not say; None: as many as there are cores.
        publish_s: seconds between two reports of a server's waits.
        change: share of a wait by which it must change to be reported at once; infinite: never.
        stale_s: a report older than this is not trusted.
        spread: a random wait of up to this times the age of a report is added, so that schedulers
            do not all choose the same server.
        penalty: how many times its time a failure costs.
        fetch_s: seconds to fetch inputs from another server.
        batch: most tasks of a batch.
        opportunistic: whether tasks beyond the tokens are sent.
        corrections: whether tasks are copied when they wait, or take, longer than expected.
        straggler_share: of copies that run slowly.
        straggler_factor: how many times their run time they take.
        seed: of all random numbers.
    """

    schedulers: int = 2
    tokens: int | None = None
    publish_s: float = 5.0
    change: float = 0.1
    stale_s: float = 60.0
    spread: float = 0.05
    penalty: float = 2.0
    fetch_s: float = 0.0
    batch: int = 64
    opportunistic: bool = True
    corrections: bool = True
    straggler_share: float = 0.0
    straggler_factor: float = 5.0
    seed: int = 1
