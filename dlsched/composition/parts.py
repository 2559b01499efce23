"""The parts of a run, made from their names and options."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from typing import Any

from dlsched.composition.network_files import read_network
from dlsched.composition.number_files import listed_numbers, read_numbers
from dlsched.composition.settings import PartSettings, split_options
from dlsched.core.errors import BadInput
from dlsched.core.host_shares import HostPolicy
from dlsched.core.options import NETWORK, accepts, parse_options, show_value
from dlsched.core.round.steps import Parts
from dlsched.core.scheduling import Chooser, SchedulingPolicy
from dlsched.core.semantics import Semantics
from dlsched.core.stage import AdmissionPolicy, Stage
from dlsched.policies.registry import find, is_named, part_at

STAGE_WORDS = {
    "placement": "placement",
    "admission": "admission",
    "fairness": "fairness",
    "estimate": "estimator",
    "estimator": "estimator",
    "launch": "launch",
    "preemption": "preemption",
    "metrics": "metrics",
    "host": "host",
    "node": "node",
}

_ADMISSION_OF = {"hived": "cells"}  # what a placement can never serve is refused at once


def build_parts(
    settings: PartSettings,
    semantics: Semantics,
    *,
    has_quotas: bool = False,
    has_restarts: bool = False,
    reads_files: bool = True,
) -> Parts:
    """Make the parts of a run from their names and options.

    Args:
        settings: names and options.
        semantics: its option defaults come first, the user's options win.
        has_quotas: the cluster names quotas, so that they are kept unless told otherwise.
        has_restarts: the trace says what starts of its jobs take, so that they take it unless told
            otherwise.
        reads_files: options may name files.

    Raises:
        BadInput: an unknown name or option, or an option that no part knows or that names a file.
    """
    chosen = part_names(settings, semantics, has_quotas=has_quotas, has_restarts=has_restarts)
    given = split_options(settings.options)
    given.pop("semantics", None)
    values = {stage: text.partition(":")[2] for stage, text in chosen.items() if ":" in text}
    chosen = {stage: text.partition(":")[0] for stage, text in chosen.items()}
    kinds = {stage: class_of(stage, name, semantics) for stage, name in chosen.items()}
    routed = {stage: _defaults(kind, semantics) for stage, kind in kinds.items()}
    for stage, kind in kinds.items():
        if "seed" in _option_names(kind):
            routed[stage]["seed"] = settings.seed
        if stage in values:
            routed[stage][_first_option(stage, kind)] = values[stage]
    for key, text in given.items():
        _route(key, text, chosen, kinds, routed)
    for stage, kind in kinds.items():
        _read_files(kind, routed[stage], allowed=reads_files)
    made: dict[str, Any] = {stage: _made(kind, routed[stage]) for stage, kind in kinds.items()}
    if type(made["admission"]) is type(made["scheduling"]):  # one part fills both stages
        made["admission"] = made["scheduling"]
    if type(made.get("host")) is type(made["scheduling"]):
        made["host"] = made["scheduling"]
    return Parts(
        scheduling=made["scheduling"],
        placement=made["placement"],
        admission=made["admission"],
        estimator=made["estimator"],
        launch=made["launch"],
        preemption=made["preemption"],
        metrics=made["metrics"],
        fairness=made.get("fairness"),
        host=made.get("host"),
        node=made.get("node"),
    )


def class_of(stage: str, name: str, semantics: Semantics) -> type[Stage[Any]]:
    """The class of a part under a profile, which may have its own for this name.

    Raises:
        BadInput: a part of an unknown name.
    """
    variant = semantics.variants.get(name)
    return part_at(variant) if variant else find(stage, name)


def part_names(
    settings: PartSettings,
    semantics: Semantics,
    *,
    has_quotas: bool = False,
    has_restarts: bool = False,
) -> dict[str, str]:
    """The name of each stage's part, defaults filled in.

    Args:
        settings: names, where the user gave any.
        semantics: names parts that belong to it.
        has_quotas: the cluster names quotas.
        has_restarts: the trace says what starts of its jobs take.
    """
    own = has_restarts and settings.costs.restart_overhead is None
    launch = semantics.part_defaults.get("launch", "profiled" if own else "constant")
    placement = settings.placement or semantics.part_defaults.get("placement", "min-nodes")
    fairness = settings.fairness or ("vc-quota" if has_quotas else "none")
    chosen = {
        "scheduling": settings.policy,
        "placement": placement,
        "admission": settings.admission
        or own_admission(settings.policy)
        or _ADMISSION_OF.get(placement, "accept-all"),
        "estimator": settings.estimate or "oracle",
        "launch": settings.launch or launch,
        "preemption": settings.preemption
        or semantics.part_defaults.get("preemption", "checkpoint"),
        "metrics": settings.metrics or "none",
    }
    policy = find("scheduling", settings.policy.partition(":")[0])
    if issubclass(policy, SchedulingPolicy) and policy.node_policy:
        chosen["node"] = policy.node_policy
    if fairness != "none":
        chosen["fairness"] = fairness
    host = settings.host or own_host(settings.policy)
    if host not in ("", "none"):
        chosen["host"] = host
    return chosen


def own_admission(policy: str) -> str:
    """The admission part that a policy is itself; "" where it is none.

    Raises:
        BadInput: a policy of an unknown name.
    """
    kind = find("scheduling", policy.partition(":")[0])
    return kind.name if issubclass(kind, AdmissionPolicy) else ""


def own_host(policy: str) -> str:
    """The host part that a policy is itself; "" where it is none.

    Raises:
        BadInput: a policy of an unknown name.
    """
    kind = find("scheduling", policy.partition(":")[0])
    return kind.name if issubclass(kind, HostPolicy) else ""


def option_names(
    settings: PartSettings, semantics: Semantics, *, has_quotas: bool = False
) -> dict[str, set[str]]:
    """The options that each stage's part of a run has; the run's own options play no role.

    Raises:
        BadInput: a part of an unknown name.
    """
    chosen = part_names(settings, semantics, has_quotas=has_quotas)
    return {
        stage: set(_option_names(class_of(stage, name.partition(":")[0], semantics)))
        for stage, name in chosen.items()
    }


def options_of_files(settings: PartSettings, semantics: Semantics) -> set[str]:
    """The options of a run's parts that may name files.

    Raises:
        BadInput: a part of an unknown name.
    """
    chosen = part_names(settings, semantics)
    kinds = (class_of(stage, name.partition(":")[0], semantics) for stage, name in chosen.items())
    return {f.name for kind in kinds for f in fields(kind.Options) if f.metadata.get("from_file")}


def _option_names(kind: type[Stage[Any]]) -> list[str]:
    return [f.name for f in fields(kind.Options)]


def _first_option(stage: str, kind: type[Stage[Any]]) -> str:
    """The option that a value after a colon sets ("noise:0.5", "load-threshold:1.2").

    Raises:
        BadInput: the part has no options.
    """
    known = _option_names(kind)
    if not known:
        raise BadInput(f"{stage} {kind.name} takes no value after a colon")
    return known[0]


def _defaults(kind: type[Stage[Any]], semantics: Semantics) -> dict[str, object]:
    """The option defaults of a profile that this part has and can take."""
    defaults = semantics.option_defaults.items()
    return {key: value for key, value in defaults if accepts(kind.Options, key, value)}


def _made(kind: type[Stage[Any]], options: Mapping[str, object]) -> Stage[Any]:
    return kind(parse_options(kind.Options, options, owner=kind.name))


def _read_files(kind: type[Stage[Any]], options: dict[str, object], *, allowed: bool) -> None:
    """Put what files hold in the place of their names: policies read no files.

    Raises:
        BadInput: a file cannot be read, or no option may name one.
    """
    for f in fields(kind.Options):
        value, holds = options.get(f.name), f.metadata.get("from_file")
        if not holds or not isinstance(value, str):
            continue
        if holds != NETWORK:
            options[f.name] = read_numbers(value) if allowed else listed_numbers(value)
        elif value != "none":
            if not allowed:
                raise BadInput(f"-o {f.name}: it names a file, which only operators' policies may")
            options[f.name] = read_network(value)


def _route(
    key: str,
    text: str,
    chosen: Mapping[str, str],
    kinds: Mapping[str, type[Stage[Any]]],
    routed: Mapping[str, dict[str, object]],
) -> None:
    """Hand one option to the part or parts that it is meant for."""
    owner, dot, rest = key.partition(".")
    if dot:
        stage = STAGE_WORDS.get(owner)
        if stage is None and is_named("scheduling", owner):
            if owner == chosen["scheduling"]:
                routed["scheduling"][rest] = text
            return  # meant for another policy of the same call
        if stage is None or stage not in chosen:
            known = ", ".join(sorted({*STAGE_WORDS, chosen["scheduling"]}))
            raise BadInput(f"-o {key}: {owner!r} names no part of this run; known: {known}")
        routed[stage][rest] = text
        return
    takers = [stage for stage, kind in kinds.items() if key in _option_names(kind)]
    if not takers:
        known_options = sorted({name for kind in kinds.values() for name in _option_names(kind)})
        raise BadInput(
            f"-o {key}: neither {chosen['scheduling']} nor the other parts of this run have it; "
            f"known: {', '.join([*known_options, 'semantics'])}"
        )
    # a bare key is the policy's first of all
    stages = ["scheduling"] if "scheduling" in takers else takers
    for stage in stages:
        routed[stage][key] = text


def effective_options(parts: Parts) -> dict[str, str]:
    """Every option in force, as KEY=VALUE would give it, by `part.key`."""
    shown: dict[str, str] = {}
    for stage, part in parts.stages().items():
        if stage != "scheduling" and part is parts.scheduling:
            continue
        for f in fields(part.options):
            shown[f"{part.name if stage == 'scheduling' else stage}.{f.name}"] = show_value(
                getattr(part.options, f.name)
            )
    return shown


def part_from_text(stage: str, text: str, semantics: Semantics) -> Any:
    """Make a part from "name" or "name:value", where the value is its first option's.

    Raises:
        BadInput: an unknown name or value.
    """
    name, colon, value = text.partition(":")
    kind = class_of(stage, name, semantics)
    options = _defaults(kind, semantics)
    if colon:
        options[_first_option(stage, kind)] = value
    return _made(kind, options)


def replace_parts(parts: Parts, chosen: Mapping[str, str], semantics: Semantics) -> Parts:
    """The same parts with some replaced; a chooser stays, and gets a new policy inside.

    `chosen` has the new ones by stage, as "name" or "name:value"; option defaults of the semantics
    apply.

    Raises:
        BadInput: an unknown name or value.
    """
    fresh = {stage: part_from_text(stage, text, semantics) for stage, text in chosen.items()}
    scheduling: SchedulingPolicy[Any] = fresh.get("scheduling", parts.scheduling)
    if isinstance(parts.scheduling, Chooser) and "scheduling" in fresh:
        parts.scheduling.install(scheduling)
        scheduling = parts.scheduling
    return Parts(
        scheduling=scheduling,
        placement=fresh.get("placement", parts.placement),
        admission=fresh.get("admission", parts.admission),
        estimator=parts.estimator,
        launch=parts.launch,
        preemption=parts.preemption,
        metrics=parts.metrics,
        fairness=parts.fairness,
        host=parts.host,
        node=parts.node,
    )


def twin_of(part: Any) -> Any:
    """A copy of a part, with the same options and state; of a chooser, of the policy inside."""
    if part is None:
        return None
    if isinstance(part, Chooser):
        return twin_of(part.inside)
    twin: Stage[Any] = type(part)(part.options)
    twin.load_state_dict(part.state_dict())
    return twin
