"""What a run is put together from: parts by name, options, semantics, costs.

These are values that travel between processes. Options are KEY=VALUE texts: `KEY` goes to every
part that knows it, `PART.KEY` to the policy or stage of that name. `semantics` is reserved: it
names the profile.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from dlsched.core.errors import BadInput, not_known
from dlsched.core.semantics import CLOCKS, Semantics


@dataclass(frozen=True, slots=True, kw_only=True)
class Costs:
    """What interruptions cost.

    Attributes:
        restart_overhead: seconds without progress after each start; None: what the trace says of
            the unit, else the semantics.
        checkpoint_interval: seconds of run time between periodic checkpoints, which bound what a
            failure loses; None: only a suspension saves.
        min_run: a unit is not preempted before it has run so many seconds.
        interference: the part of its speed that a unit on several nodes loses while it shares one
            of them with another such unit; only for measured trainings.
    """

    restart_overhead: float | None = None
    checkpoint_interval: float | None = None
    min_run: float = 0.0
    interference: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class PartSettings:
    """The parts of a run, and how its time works.

    Attributes:
        policy, placement, admission, fairness, estimate, launch, preemption, metrics, host: parts
            by name; "" means the default; a name may carry its first option's value after a colon
            ("noise:0.5", "load-threshold:1.2").
        options: KEY=VALUE texts as the user gave them, for all runs.
        clock: "rounds" or "events"; "" leaves it to the semantics.
        round_s: round length in seconds; None leaves it to the semantics.
        costs: restart overhead, checkpoint interval, minimum run time.
        seed: for everything random in the run.
    """

    policy: str = "fifo"
    placement: str = ""
    admission: str = ""
    fairness: str = ""
    estimate: str = ""
    launch: str = ""
    preemption: str = ""
    metrics: str = ""
    host: str = ""
    options: tuple[str, ...] = ()
    clock: str = ""
    round_s: float | None = None
    costs: Costs = field(default_factory=Costs)
    seed: int = 0


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


def resolve_semantics(
    settings: PartSettings, profiles: Mapping[str, Semantics] = CLOCKS
) -> Semantics:
    """The profile of a run: `-o semantics=`, else `--clock`, else rounds.

    Args:
        settings: names and options.
        profiles: those that there are, by name.

    Raises:
        BadInput: an unknown name, a clock that contradicts the semantics, or a bad round length.
    """
    name = split_options(settings.options).get("semantics", "")
    if settings.clock not in ("", "rounds", "events"):
        raise BadInput(f"--clock must be rounds or events, not {settings.clock!r}")
    semantics = profiles.get(name or settings.clock or "rounds")
    if semantics is None:
        raise not_known("semantics", name, sorted(profiles))
    if name and settings.clock and (semantics.grid is None) != (settings.clock == "events"):
        has = "decides at every change" if semantics.grid is None else "has rounds"
        raise BadInput(f"--clock {settings.clock} contradicts semantics {name}, which {has}")
    if settings.round_s is not None:
        semantics = semantics.with_grid(settings.round_s)
    return semantics
