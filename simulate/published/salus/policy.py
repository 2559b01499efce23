"""The policy `salus` with the lanes of its published code."""

from __future__ import annotations

from dlsched.policies.scheduling.salus import Salus
from simulate.published.salus.lanes import ArtifactLanes


class PublishedSalus(Salus):
    """Jobs get into lanes as the published code lets them."""

    lanes = ArtifactLanes
