"""The grid of a study: which runs there are, in what order, and which options each gets."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product

from dlsched.composition.parts import STAGE_WORDS, option_names
from dlsched.composition.settings import split_options
from dlsched.core.errors import BadInput
from dlsched.policies.registry import find
from simulate.published.profiles import PROFILES, semantics_of
from simulate.settings import RunSettings
from simulate.sweep.run import Run

PARTS = (
    "policy", "placement", "admission", "fairness", "estimate", "launch", "preemption", "metrics",
    "host",
)  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Dimensions:
    """What a study varies; "" and None leave a choice to the semantics or the trace."""

    policy: tuple[str, ...]
    placement: tuple[str, ...] = ("",)
    admission: tuple[str, ...] = ("",)
    fairness: tuple[str, ...] = ("",)
    estimate: tuple[str, ...] = ("",)
    launch: tuple[str, ...] = ("",)
    preemption: tuple[str, ...] = ("",)
    metrics: tuple[str, ...] = ("",)
    host: tuple[str, ...] = ("",)
    load: tuple[float | None, ...] = (None,)
    seed: tuple[int, ...] = (0,)

    @property
    def varied(self) -> tuple[str, ...]:
        """The kinds of parts, beside the policy, of which there are several."""
        return tuple(part for part in PARTS[1:] if len(getattr(self, part)) > 1)


def expand(dimensions: Dimensions, base: RunSettings, *, traces: int = 1) -> tuple[Run, ...]:
    """Every run of a study: by trace, then parts as listed, then load, then seed.

    A run is called by its policy, followed by whichever other parts the study varies
    ("las/consolidated").
    """
    combinations: list[RunSettings] = []
    for chosen in product(*(getattr(dimensions, part) for part in PARTS)):
        parts = dict(zip(PARTS, chosen, strict=True))
        name = "/".join([parts["policy"], *(parts[part] for part in dimensions.varied)])
        combinations.append(replace(base, name=name, **parts))
    cells = product(range(traces), combinations, dimensions.load, dimensions.seed)
    return tuple(
        Run(number=number, trace=trace, settings=replace(settings, load=load, seed=seed))
        for number, (trace, settings, load, seed) in enumerate(cells)
    )


def share_out(runs: Sequence[Run], *, has_quotas: bool = False) -> tuple[Run, ...]:
    """Leave each run those of its options that its parts have.

    Options are given once for a whole study, and rarely does every policy have all of them. An
    option that no run has is refused.

    Raises:
        BadInput: such an option, or a part of an unknown name.
    """
    given = split_options(runs[0].settings.options)
    has: dict[RunSettings, dict[str, set[str]]] = {}
    kept: list[Run] = []
    used: set[str] = set()
    for run in runs:
        parts = replace(run.settings, load=None, seed=0)
        if parts not in has:
            semantics = semantics_of(parts)
            has[parts] = option_names(parts, semantics, has_quotas=has_quotas)
        own = {
            key: kept_as
            for key in given
            if (kept_as := _key_for(key, parts.policy, has[parts])) is not None
        }
        used.update(own)
        options = tuple(f"{own[key]}={given[key]}" for key in own)
        kept.append(replace(run, settings=replace(run.settings, options=options)))
    for key in given:
        if key not in used:
            raise BadInput(_unknown(key, has))
    return tuple(kept)


def _key_for(key: str, policy: str, has: Mapping[str, set[str]]) -> str | None:
    """The key by which a run takes an option (KEY, STAGE.KEY or POLICY.KEY); None if it does not.

    A policy may be meant by another of its names.
    """
    owner, dot, rest = key.partition(".")
    if not dot:
        known = key == "semantics" or any(key in names_ for names_ in has.values())
        return key if known else None
    if owner in STAGE_WORDS:
        return key if rest in has.get(STAGE_WORDS[owner], ()) else None
    if _same_policy(owner, policy) and rest in has["scheduling"]:
        return f"{policy}.{rest}"
    return None


def _same_policy(one: str, other: str) -> bool:
    try:
        return one == other or find("scheduling", one) is find("scheduling", other)
    except BadInput:
        return False


def _with_semantics(key: str, has: Iterable[RunSettings]) -> str:
    """Say under which semantics a part of some run has an option; "" where there are none."""
    names = [
        name
        for name, semantics in PROFILES.items()
        for settings in has
        if any(key in each for each in option_names(settings, semantics).values())
    ]
    return f" (-o semantics={' or '.join(dict.fromkeys(names))} has it)" if names else ""


def _unknown(key: str, has: Mapping[RunSettings, Mapping[str, set[str]]]) -> str:
    """The message about an option that no run takes, with the options that runs take."""
    owner, dot, rest = key.partition(".")
    policies = list(dict.fromkeys(settings.policy for settings in has))
    if not dot:
        known = sorted({name for each in has.values() for kind in each.values() for name in kind})
        others = "has it" if len(policies) == 1 else "have it"
        return (
            f"-o {key}: neither {', '.join(policies)} nor another part of this call {others}"
            f"{_with_semantics(key, has)}; known: {', '.join([*known, 'semantics'])}"
        )
    policy = next((name for name in policies if _same_policy(owner, name)), None)
    stage = STAGE_WORDS.get(owner, "scheduling" if policy else "")
    if not stage:
        words = ", ".join([*policies, *STAGE_WORDS])
        return f"-o {key}: {owner!r} names no part of this call; known: {words}"
    known = sorted(
        {
            name
            for settings, each in has.items()
            for name in each.get(stage, ())
            if policy in (None, settings.policy)
        }
    )
    return f"-o {key}: {owner} has no option {rest!r}; known: {', '.join(known) or 'none'}"
