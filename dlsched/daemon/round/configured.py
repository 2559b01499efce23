"""The policies that a configuration names, as rounds take them."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from dlsched.core.errors import BadInput
from dlsched.daemon.round.host_profiles import read_host_profiles
from dlsched.daemon.round.parts import RoundSettings
from dlsched.daemon.settings import RoundSection, Settings, ShadowSection


def named_parts(chosen: RoundSection | ShadowSection) -> dict[str, str]:
    """The parts that a section names, by stage."""
    parts = {
        "scheduling": chosen.policy,
        "placement": chosen.placement,
        "admission": chosen.admission,
        "fairness": chosen.fairness,
        "estimator": chosen.estimate,
        "host": chosen.host,
    }
    return {stage: name for stage, name in parts.items() if name}


def round_settings(settings: Settings) -> RoundSettings:
    """How rounds are decided, as the configuration says."""
    chosen = settings.round
    return RoundSettings(
        parts=named_parts(chosen),
        options=chosen.options,
        round_s=chosen.interval_s,
        seed=chosen.seed,
        restart_overhead_s=chosen.restart_overhead_s,
        min_run_s=chosen.min_run_s,
        preempt_mode=chosen.preempt_mode,
        host_profiles=read_host_profiles(chosen.host_profiles),
    )


def shadow_settings(settings: Settings, present: RoundSettings) -> RoundSettings | None:
    """How a policy in the shadow decides, as the configuration says; None: there is none."""
    chosen = settings.shadow
    return present.changed(named_parts(chosen), chosen.options) if chosen.policy else None


def named_policies(settings: Settings) -> dict[str, RoundSettings]:
    """The policies that a configuration names, by the section; without those of the defaults."""
    present, default = round_settings(settings), RoundSettings()
    named = {"round": present, "shadow": shadow_settings(settings, present)}
    return {
        section: each
        for section, each in named.items()
        if each is not None and (each.parts, each.options) != (default.parts, default.options)
    }


@contextlib.contextmanager
def of_section(section: str) -> Iterator[None]:
    """Say of an error to which section of the configuration it belongs."""
    try:
        yield
    except BadInput as error:
        raise BadInput(f"section {section} of the configuration: {error}") from None
