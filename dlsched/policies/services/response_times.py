"""The part of requests that n replicas answer in time, from one queue for all of them.

Requests come at random (Poisson) at a rate λ; a replica serves one at a time, S seconds each; a is
λ·E[S], the replicas that are busy on average.

It is exact for exponential S and approximate for others.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

from dlsched.policies.services.service_times import ServiceTime

ResponseModel: TypeAlias = Callable[[int, float, ServiceTime, float], float]  # n, λ, S, T


def waits(replicas: int, busy: float) -> float:
    """The part of requests that wait in a queue for n replicas (Erlang's C), a < n."""
    blocked = 1.0
    for count in range(1, replicas + 1):
        blocked = busy * blocked / (count + busy * blocked)
    return replicas * blocked / (replicas - busy * (1.0 - blocked))


def one_queue(replicas: int, rate: float, service: ServiceTime, within_s: float) -> float:
    """Prob(response ≤ within_s) of one first-come-first-served queue.

    The wait of a request that waits counts as exponential with the rate
    2·(n/E[S] − λ)/(1 + Var S/E[S]²).
    """
    busy = rate * service.mean
    if busy >= replicas:
        return 0.0
    theta = 2.0 * (replicas / service.mean - rate) / (1.0 + service.spread)
    if theta <= 0:  # full, but for rounding
        return 0.0
    late = waits(replicas, busy) * service.decayed(within_s, theta)
    return min(max(service.done_by(within_s) - late, 0.0), 1.0)
