"""Models of response times that the product's one is compared with, by their names in the paper.

mgn          one queue for n replicas, approximate; exact for exponential S
mmn          as mgn, for exponential S of the same mean
partitioned  each replica has its own queue and gets λ/n
rd           a random replica, and another one after `retry_delay` while it is busy; replicas
             are busy independently, which is too hopeful where retries are fast
"""

from __future__ import annotations

import math

from dlsched.core.errors import BadInput, not_known
from dlsched.policies.services.response_times import ResponseModel, one_queue
from dlsched.policies.services.service_times import Exponential, ServiceTime
from dlsched.policies.services.sizing import CALM, Sizing

NEGLIGIBLE = 1e-16  # part of the requests that need so many retries: not followed further


def one_queue_exponential(
    replicas: int, rate: float, service: ServiceTime, within_s: float
) -> float:
    """Prob(response ≤ within_s) of M/M/n with the same mean service time (`mmn`)."""
    return one_queue(replicas, rate, Exponential(average=service.mean), within_s)


def queue_each(replicas: int, rate: float, service: ServiceTime, within_s: float) -> float:
    """Prob(response ≤ within_s) where each replica has a queue of its own (`partitioned`)."""
    return one_queue(1, rate / replicas, service, within_s)


def random_dispatch(retry_delay_s: float) -> ResponseModel:
    """Prob(response ≤ within_s) of tries at random, each extra one `retry_delay_s` later (`rd`)."""

    def model(replicas: int, rate: float, service: ServiceTime, within_s: float) -> float:
        load = rate * service.mean / replicas
        if load >= 1:
            return 0.0
        found, tries = 0.0, 0
        while tries * retry_delay_s <= within_s and load**tries >= NEGLIGIBLE:
            done = service.done_by(within_s - tries * retry_delay_s)
            found += (1.0 - load) * load**tries * done
            if load == 0:
                break
            tries += 1
        return found

    return model


def response_model(name: str, retry_delay_s: float = math.nan) -> ResponseModel:
    """A model by its name; `retry_delay_s` is of `rd` alone.

    Raises:
        BadInput: the name is not known, or `rd` has no delay.
    """
    if name == "rd":
        if not retry_delay_s > 0:
            raise BadInput("model rd needs retry_delay, seconds above 0")
        return random_dispatch(retry_delay_s)
    if name not in MODELS:
        raise not_known("model", name, (*MODELS, "rd"))
    return MODELS[name]


MODELS: dict[str, ResponseModel] = {
    "mgn": one_queue,
    "mmn": one_queue_exponential,
    "partitioned": queue_each,
}


def calm_replicas(sizing: Sizing, rate: float, service: ServiceTime, burst: float = 1.0) -> int:
    """Replicas where several gateways dispatch at random: no replica is busy above 80 %."""
    return max(sizing.replicas, math.ceil(rate * burst * service.mean / CALM))
