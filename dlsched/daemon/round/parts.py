"""Which parts decide the live cluster's rounds, by the words that a replay uses.

Invariant: whatever can be refused is refused when a policy is switched on, not in a round.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

from dlsched.composition.parts import build_parts, options_of_files, own_host
from dlsched.composition.settings import PartSettings, resolve_semantics, split_options
from dlsched.core.errors import BadInput, shorten
from dlsched.core.round.steps import Parts
from dlsched.core.semantics import CLOCKS, Semantics
from dlsched.core.units import UnitTable
from dlsched.jobs.fields import FURTHER

PreemptMode = Literal["requeue", "suspend"]
_STAGES = {
    "scheduling": "policy", "placement": "placement", "admission": "admission",
    "fairness": "fairness", "estimator": "estimate", "host": "host",
}  # fmt: skip
_NEED_THE_TRUTH = ("oracle", "noise")


@dataclass(frozen=True, slots=True, kw_only=True)
class RoundSettings:
    """How rounds are decided.

    Attributes:
        parts: names by stage ("scheduling", "placement", "admission", "fairness", "estimator",
            "host"); a name may carry its first option after a colon, as on the command line.
        options: KEY=VALUE texts, as a replay takes them with `-o`.
        round_s: seconds between full rounds.
        seed: of the generator handed to parts.
        restart_overhead_s: what a start is taken to cost, in seconds.
        min_run_s: a job is not preempted before it has run so long.
        unknown_s: how long a job is taken to run that says nothing and of which nothing is known.
        host_profiles: steps/s of models with processors and memory for each GPU: (model,
            processors, GB, steps/s).
        reads_files: options may name files, which are read with the daemon's rights.
        preempt_mode: what happens to a job that loses its GPUs, unless it says otherwise.
    """

    parts: Mapping[str, str] = field(default_factory=lambda: {"scheduling": "fifo"})
    options: tuple[str, ...] = ()
    round_s: float = 60.0
    seed: int = 0
    restart_overhead_s: float = 0.0
    min_run_s: float = 0.0
    unknown_s: float = 86400.0
    preempt_mode: PreemptMode = "requeue"
    host_profiles: tuple[tuple[str, float, float, float], ...] = ()
    reads_files: bool = True

    def with_policy(self, parts: Mapping[str, str], options: tuple[str, ...]) -> RoundSettings:
        """The same with other parts."""
        return replace(self, parts=dict(parts), options=tuple(options))

    def changed(self, changes: Mapping[str, str], options: Sequence[str] = ()) -> RoundSettings:
        """The same with some other parts; an empty name removes a part.

        Options are kept where the scheduling policy stays and none are given.
        """
        parts = dict(self.parts)
        for stage, name in changes.items():
            if name:
                parts[stage] = name
            else:
                parts.pop(stage, None)
        same = parts.get("scheduling") == self.parts.get("scheduling") and not options
        return self.with_policy(parts, self.options if same else tuple(options))

    @property
    def policy(self) -> str:
        """The scheduling policy's name."""
        return self.parts.get("scheduling", "fifo")

    @property
    def gives_host(self) -> bool:
        """Does a part give processors and memory to jobs?"""
        named = self.parts.get("host", "") or own_host(self.policy)
        return named not in ("", "none")

    def part_settings(self) -> PartSettings:
        """As a replay would say it.

        Raises:
            BadInput: an unknown stage.
        """
        for stage in self.parts:
            if stage not in _STAGES:
                known = ", ".join(_STAGES)
                raise BadInput(f"{stage!r} is no stage of a live round; known: {known}")
        given = {_STAGES[stage]: name for stage, name in self.parts.items() if name}
        given.setdefault("policy", "fifo")
        given.setdefault("estimate", "user")
        return PartSettings(
            options=self.options,
            seed=self.seed,
            **given,  # type: ignore[arg-type]  # all of them are texts
        )


def live_semantics(settings: RoundSettings) -> Semantics:
    """The profile whose option defaults apply, with the cluster's own round length.

    Raises:
        BadInput: an unknown profile.
    """
    semantics = _named_semantics(settings.part_settings())
    return semantics.with_grid(settings.round_s) if semantics.round_length else semantics


def _named_semantics(run: PartSettings) -> Semantics:
    name = split_options(run.options).get("semantics", "")
    if name and name not in CLOCKS:
        raise BadInput(
            f"-o semantics={shorten(name)}: a live cluster has {' and '.join(CLOCKS)}; only a "
            "replay has the semantics of other simulators"
        )
    return resolve_semantics(run)


def live_parts(settings: RoundSettings, *, has_quotas: bool) -> Parts:
    """Make the parts of a round.

    Raises:
        BadInput: an unknown part or option, or one that only a replay can serve.
    """
    run = settings.part_settings()
    parts = build_parts(
        run, _named_semantics(run), has_quotas=has_quotas, reads_files=settings.reads_files
    )
    if parts.estimator.name in _NEED_THE_TRUTH:
        raise BadInput(
            f"--estimate {parts.estimator.name} needs durations that only a replay knows; "
            "a live cluster has user and history"
        )
    return parts


def refuse_unknown(settings: RoundSettings) -> None:
    """Refuse parts that no cluster could have, before anything is known of its jobs and quotas.

    Raises:
        BadInput: as for `live_parts`.
    """
    live_parts(settings, has_quotas=True)


def options_left_out(settings: RoundSettings) -> tuple[str, ...]:
    """The options that the parts no longer take, of settings that an older release has stored.

    None where the parts are refused even without options: then it is not options that are wrong.
    Those that may name files stay: a file that is away may come back.
    """
    if _are_taken(settings, settings.options) or not _are_taken(settings, ()):
        return ()
    bare = replace(settings, options=()).part_settings()
    files = options_of_files(bare, resolve_semantics(bare))
    kept: tuple[str, ...] = ()
    before: tuple[str, ...] = ()
    refused = tuple(
        each
        for each in settings.options
        if each.partition("=")[0].strip().rpartition(".")[2] not in files
    )
    while refused != before:  # again: one may be right only beside another that comes after it
        before, refused = refused, ()
        for each in before:
            if _are_taken(settings, (*kept, each)):
                kept = (*kept, each)
            else:
                refused = (*refused, each)
    return refused


def _are_taken(settings: RoundSettings, options: tuple[str, ...]) -> bool:
    try:
        refuse_unknown(replace(settings, options=options))
    except BadInput:
        return False
    return True


def refuse_unfit(parts: Parts, table: UnitTable) -> None:
    """Refuse parts that need a column which live jobs do not have.

    Raises:
        BadInput: names the part and the column.
    """
    for stage, part in parts.stages().items():
        if stage == "estimator":
            continue  # where it has no idea, the cluster's `unknown_s` stands in
        for column in sorted(part.needs - {"predicted_work"}):
            known = hasattr(table, column) or column in table.extra or column in FURTHER
            if not known:
                raise BadInput(
                    f"{stage} {part.name} needs the column {column}, which live jobs do not have"
                )
            lacking = int((~table.has(column)).sum())
            if lacking:
                raise BadInput(
                    f"{stage} {part.name} needs the column {column}, which {lacking} of "
                    f"{len(table)} live jobs do not give"
                )
