"""The semantics of a replay by name: the two clocks, and those of published simulators."""

from __future__ import annotations

from dlsched.composition.settings import PartSettings, resolve_semantics
from dlsched.core.semantics import CLOCKS, Semantics
from simulate.published.blox import BLOX
from simulate.published.chronus import CHRONUS
from simulate.published.elasticflow import ELASTICFLOW, ELASTICFLOW_EDF
from simulate.published.gandiva import GANDIVA
from simulate.published.gavel import GAVEL
from simulate.published.lucid import LUCID, LUCID_QUEUE, LUCID_TIRESIAS
from simulate.published.muri import MURI
from simulate.published.pollux import POLLUX
from simulate.published.salus import SALUS
from simulate.published.shockwave import SHOCKWAVE
from simulate.published.sia import SIA
from simulate.published.synergy import SYNERGY, SYNERGY_STATIC
from simulate.published.tiresias import TIRESIAS

_PUBLISHED = (
    BLOX,
    TIRESIAS,
    GAVEL,
    SHOCKWAVE,
    POLLUX,
    CHRONUS,
    ELASTICFLOW,
    ELASTICFLOW_EDF,
    LUCID,
    LUCID_TIRESIAS,
    LUCID_QUEUE,
    GANDIVA,
    MURI,
    SIA,
    SYNERGY,
    SYNERGY_STATIC,
    SALUS,
)
PROFILES: dict[str, Semantics] = {**CLOCKS, **{each.name: each for each in _PUBLISHED}}


def semantics_of(settings: PartSettings) -> Semantics:
    """The profile of a replay: `-o semantics=`, else `--clock`, else rounds.

    Raises:
        BadInput: an unknown name, a clock that contradicts the semantics, or a bad round length.
    """
    return resolve_semantics(settings, PROFILES)
