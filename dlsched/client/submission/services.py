"""`--service within=0.2,share=0.99,most=8`: what a service promises, and the job that leads it."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields

from dlsched.core.errors import BadInput, not_known, shorten

FORM = "within=SECONDS,share=PART,most=REPLICAS"
RETRIES = "10"  # of the leading job; replicas that end are replaced by others
# of the leading job alone: a replica starts when it is needed
_LEADERS = {
    "begin",
    "dependency",
    "hold",
    "kill_on_invalid_dep",
    "notify",
    "notify_url",
    "parsable",
}
_LEADERS |= {"mail_user", "wait"}
_OF_BOTH = {"account", "chdir", "comment", "constraint", "container", "container_mounts", "exclude"}
_OF_BOTH |= {"export", "grace", "name", "nice", "output", "open_mode", "partition", "priority"}
_OF_BOTH |= {"qos", "priority_class", "reservation", "time", "vc", "error"}
_REFUSED = {"array", "sweep", "sweep_concurrent", "halving", "nodes", "launch", "adaptive", "sla"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Terms:
    """What a service promises, and what it may use.

    Attributes:
        within: response time that counts as in time, seconds.
        share: part of the requests that are to be in time.
        most: replicas at most.
        least: replicas that are always there.
        burst: replicas suffice for so many times the expected rate.
        setup: seconds from the request for a replica until it answers; so far ahead the rate is
            predicted.
        idle: seconds without a request after which a replica ends itself.
        window: seconds in which requests are counted.
        windows: so many of these are looked back on.
        slots: requests that a replica works on at once.
        queue: requests that may wait; more are refused with 503.
        port: of requests, on the address `host`; 0: any.
        host: the address on which requests are taken.
    """

    within: float
    share: float
    most: int
    least: int = 1
    burst: float = 1.0
    setup: float = 60.0
    idle: float = 600.0
    window: float = 10.0
    windows: int = 10
    slots: int = 1
    queue: int = 1000
    port: int = 0
    host: str = "127.0.0.1"

    def __str__(self) -> str:
        return ",".join(f"{each.name}={getattr(self, each.name)}" for each in fields(self))


# the least and the greatest value of each number
_BOUNDS: Mapping[str, tuple[float, float]] = {
    "within": (0.001, 86_400), "share": (0.001, 1), "most": (1, 1000), "least": (1, 1000),
    "burst": (1, 100), "setup": (0, 86_400), "idle": (1, 10**7), "window": (0.1, 3600),
    "windows": (1, 1000), "slots": (1, 64), "queue": (1, 100_000), "port": (0, 65_535),
}  # fmt: skip


def read_terms(text: str) -> Terms:
    """Read the option's value.

    Raises:
        BadInput: names the key that is missing, unknown or out of bounds.
    """
    kinds = {each.name: str(each.type) for each in fields(Terms)}
    found: dict[str, float | int | str] = {}
    for pair in text.split(","):
        key, equals, value = pair.partition("=")
        if key not in kinds:
            raise not_known("--service:", key, kinds)
        if not equals or key in found:
            raise BadInput(f"--service: {shorten(pair)!r}: KEY=VALUE once each, as {FORM}")
        if key == "host":
            found[key] = value
            continue
        try:
            number = int(value) if kinds[key] == "int" else float(value)
        except ValueError:
            number = math.nan
        low, high = _BOUNDS[key]
        if not low <= number <= high:
            raise BadInput(
                f"--service: {key} is {shorten(value)!r}; a {'whole ' * (kinds[key] == 'int')}"
                f"number from {low:g} to {high:g} is needed"
            )
        found[key] = number
    for key in ("within", "share", "most"):
        if key not in found:
            raise BadInput(f"--service: {key} is missing; {FORM} is needed")
    terms = Terms(**found)  # type: ignore[arg-type]  # each value is of its field's type
    if terms.least > terms.most:
        raise BadInput(f"--service: least is {terms.least}, above most, {terms.most}")
    return terms


@dataclass(frozen=True, slots=True, kw_only=True)
class ServicePlan:
    """The two kinds of jobs of a service.

    Attributes:
        leader: options of the job that takes requests and asks for replicas.
        replica: options of each replica.
    """

    leader: dict[str, str]
    replica: dict[str, str]


def plan_service(options: Mapping[str, str], name: str) -> ServicePlan:
    """Say which options belong to which job.

    Args:
        options: of the submission, by key.
        name: of the service, where the options give none.

    Raises:
        BadInput: an option that a service cannot have.
    """
    refused = [key for key in options if key in _REFUSED or key.startswith("deadline")]
    for key in sorted(refused):
        raise BadInput(
            f"--{key.replace('_', '-')}: not with --service, whose replicas are one by one"
        )
    leader = {key: text for key, text in options.items() if key in _LEADERS | _OF_BOTH}
    leader.pop("constraint", None)  # of GPUs
    replica = {key: text for key, text in options.items() if key not in _LEADERS}
    leader["name"] = replica["name"] = options.get("name", name)
    leader |= {"gpus": "0", "retries": RETRIES}
    return ServicePlan(leader=leader, replica=replica)


def leader_words(
    python: str, terms: Terms, replica: Mapping[str, str], command: Sequence[str], daemon: str
) -> list[str]:
    """The command of the leading job; `daemon` is its address where the environment has none."""
    return [
        *(python, "-m", "dlsched.service", "lead", "--terms", str(terms)),
        *(("--daemon", daemon) if daemon else ()),
        *("--options", json.dumps(dict(replica), sort_keys=True), "--", *command),
    ]
