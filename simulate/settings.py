"""What one run is: parts by name, options, semantics, costs; values that travel between processes.

Options come as KEY=VALUE texts. `KEY` goes to every part that knows it, `PART.KEY` to the policy or
stage of that name. `semantics` is reserved: it names the profile.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields

from dlsched.core.errors import BadInput
from dlsched.core.options import accepts, show_value
from dlsched.core.round import Parts
from dlsched.core.semantics import Semantics, profile
from dlsched.policies.registry import find, make, names
from simulate.number_files import read_numbers
from simulate.world import Costs

__all__ = [
    "RunSettings",
    "build_parts",
    "default_options",
    "effective_options",
    "first_option",
    "option_names",
    "resolve_semantics",
    "split_options",
]

STAGE_WORDS = {
    "placement": "placement",
    "admission": "admission",
    "fairness": "fairness",
    "estimate": "estimator",
    "estimator": "estimator",
    "launch": "launch",
    "preemption": "preemption",
    "metrics": "metrics",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class RunSettings:
    """One run of one policy.

    Attributes:
        policy, placement, admission, fairness, estimate, launch, preemption, metrics: parts by
            name; "" means the default; a name may carry its first option's value after a colon
            ("noise:0.5", "load-threshold:1.2").
        options: KEY=VALUE texts as the user gave them, for all runs.
        clock: "rounds" or "events"; "" leaves it to the semantics.
        round_s: round length; None leaves it to the semantics.
        costs: restart overhead, checkpoint interval, minimum run time.
        load: submit gaps are divided by it; None leaves the trace as it is.
        seed: for everything random in the run.
        warmup_s: jobs submitted earlier do not count in the figures.
        track: first and last job id, inclusive; the run stops when they have ended.
        horizon: stop at this time.
        mtbf_s: mean seconds that a node works between failures; None: nodes do not fail.
        mttr_s: mean seconds until a failed node is back.
        skipping: may rounds without possible change be skipped?
        record: keep the time line and the stretches on nodes.
        check: check every invariant after every decision.
        name: what to call the run where its policy alone does not tell it from others.
    """

    policy: str = "fifo"
    placement: str = ""
    admission: str = ""
    fairness: str = ""
    estimate: str = ""
    launch: str = ""
    preemption: str = ""
    metrics: str = ""
    options: tuple[str, ...] = ()
    clock: str = ""
    round_s: float | None = None
    costs: Costs = field(default_factory=Costs)
    load: float | None = None
    seed: int = 0
    warmup_s: float = 0.0
    track: tuple[str, str] | None = None
    horizon: float = float("inf")
    mtbf_s: float | None = None
    mttr_s: float = 3600.0
    skipping: bool = True
    record: bool = True
    check: bool = False
    name: str = ""

    @property
    def label(self) -> str:
        """What tables call the run."""
        return self.name or self.policy


def split_options(texts: Sequence[str]) -> dict[str, str]:
    """KEY=VALUE texts as a mapping; a later one wins.

    Raises:
        BadInput: a text without `=`.
    """
    values: dict[str, str] = {}
    for text in texts:
        key, equals, value = text.partition("=")
        if not equals or not key.strip():
            raise BadInput(f"-o {text!r} does not read KEY=VALUE")
        values[key.strip()] = value.strip()
    return values


def resolve_semantics(settings: RunSettings) -> Semantics:
    """The profile of a run: `-o semantics=`, else `--clock`, else rounds.

    Raises:
        BadInput: an unknown name, a clock that contradicts the semantics, or a bad round length.
    """
    name = split_options(settings.options).get("semantics", "")
    if settings.clock not in ("", "rounds", "events"):
        raise BadInput(f"--clock must be rounds or events, not {settings.clock!r}")
    semantics = profile(name or settings.clock or "rounds")
    if name and settings.clock and (semantics.grid is None) != (settings.clock == "events"):
        has = "decides at every change" if semantics.grid is None else "has rounds"
        raise BadInput(f"--clock {settings.clock} contradicts semantics {name}, which {has}")
    if settings.round_s is not None:
        semantics = semantics.with_grid(settings.round_s)
    return semantics


def build_parts(
    settings: RunSettings,
    semantics: Semantics,
    *,
    has_quotas: bool = False,
    has_restarts: bool = False,
) -> Parts:
    """Make the parts of a run from their names and options.

    Args:
        settings: names and options.
        semantics: its option defaults come first, the user's options win.
        has_quotas: the cluster names quotas, so that they are kept unless told otherwise.
        has_restarts: the trace says what starts of its jobs take, so that they take it unless told
            otherwise.

    Raises:
        BadInput: an unknown name or option, or an option that no part knows.
    """
    chosen = part_names(settings, semantics, has_quotas=has_quotas, has_restarts=has_restarts)
    given = split_options(settings.options)
    given.pop("semantics", None)
    values = {stage: text.partition(":")[2] for stage, text in chosen.items() if ":" in text}
    chosen = {stage: text.partition(":")[0] for stage, text in chosen.items()}
    routed = {stage: default_options(stage, name, semantics) for stage, name in chosen.items()}
    for stage, name in chosen.items():
        if "seed" in _option_names(stage, name):
            routed[stage]["seed"] = settings.seed
        if stage in values:
            routed[stage][first_option(stage, name)] = values[stage]
    for key, text in given.items():
        _route(key, text, chosen, routed)
    for stage, name in chosen.items():
        _read_number_files(stage, name, routed[stage])
    made = {stage: make(stage, name, routed[stage]) for stage, name in chosen.items()}
    return Parts(
        scheduling=made["scheduling"],
        placement=made["placement"],
        admission=made["admission"],
        estimator=made["estimator"],
        launch=made["launch"],
        preemption=made["preemption"],
        metrics=made["metrics"],
        fairness=made.get("fairness"),
    )


def part_names(
    settings: RunSettings,
    semantics: Semantics,
    *,
    has_quotas: bool = False,
    has_restarts: bool = False,
) -> dict[str, str]:
    """The name of each stage's part, defaults filled in."""
    own = has_restarts and settings.costs.restart_overhead is None
    launch = semantics.part_defaults.get("launch", "profiled" if own else "constant")
    placement = settings.placement or semantics.part_defaults.get("placement", "min-nodes")
    fairness = settings.fairness or ("vc-quota" if has_quotas else "none")
    chosen = {
        "scheduling": settings.policy,
        "placement": placement,
        "admission": settings.admission or "accept-all",
        "estimator": settings.estimate or "oracle",
        "launch": settings.launch or launch,
        "preemption": settings.preemption or "checkpoint",
        "metrics": settings.metrics or "none",
    }
    if fairness != "none":
        chosen["fairness"] = fairness
    return chosen


def option_names(
    settings: RunSettings, semantics: Semantics, *, has_quotas: bool = False
) -> dict[str, set[str]]:
    """The options that each stage's part of a run has; the run's own options play no role.

    Raises:
        BadInput: a part of an unknown name.
    """
    chosen = part_names(settings, semantics, has_quotas=has_quotas)
    return {
        stage: set(_option_names(stage, name.partition(":")[0])) for stage, name in chosen.items()
    }


def _option_names(stage: str, name: str) -> list[str]:
    return [f.name for f in fields(find(stage, name).Options)]


def first_option(stage: str, name: str) -> str:
    """The option that a value after a colon sets ("noise:0.5", "load-threshold:1.2").

    Raises:
        BadInput: the part has no options.
    """
    known = _option_names(stage, name)
    if not known:
        raise BadInput(f"{stage} {name} takes no value after a colon")
    return known[0]


def default_options(stage: str, name: str, semantics: Semantics) -> dict[str, object]:
    """The option defaults of a profile that this part has and can take."""
    options = find(stage, name).Options
    defaults = semantics.option_defaults.items()
    return {key: value for key, value in defaults if accepts(options, key, value)}


def _read_number_files(stage: str, name: str, options: dict[str, object]) -> None:
    """Put the numbers of files in the place of their names: policies read no files."""
    for f in fields(find(stage, name).Options):
        value = options.get(f.name)
        if f.metadata.get("from_file") and isinstance(value, str):
            options[f.name] = read_numbers(value)


def _route(
    key: str, text: str, chosen: Mapping[str, str], routed: Mapping[str, dict[str, object]]
) -> None:
    """Hand one option to the part or parts that it is meant for."""
    owner, dot, rest = key.partition(".")
    if dot:
        stage = STAGE_WORDS.get(owner)
        if stage is None and owner in names("scheduling"):
            if owner == chosen["scheduling"]:
                routed["scheduling"][rest] = text
            return  # meant for another policy of the same call
        if stage is None or stage not in chosen:
            known = ", ".join(sorted({*STAGE_WORDS, chosen["scheduling"]}))
            raise BadInput(f"-o {key}: {owner!r} names no part of this run; known: {known}")
        routed[stage][rest] = text
        return
    takers = [stage for stage in chosen if key in _option_names(stage, chosen[stage])]
    if not takers:
        known_options = sorted(
            {name for stage, part in chosen.items() for name in _option_names(stage, part)}
        )
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
        for f in fields(part.options):
            shown[f"{part.name if stage == 'scheduling' else stage}.{f.name}"] = show_value(
                getattr(part.options, f.name)
            )
    return shown
