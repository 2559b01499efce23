"""What users may say to the policy `gandiva`."""

from __future__ import annotations

from dataclasses import dataclass

from dlsched.core.options import option


@dataclass(frozen=True, slots=True, kw_only=True)
class GandivaOptions:
    """Gandiva."""

    slice_s: float = option(60.0, "seconds of a turn on an oversubscribed server", low=1.0)
    pack: bool = option(True, "try two jobs on the same GPUs where the cluster is overloaded")
    window_s: float = option(60.0, "seconds for which a pack is measured, again and again", low=1.0)
    per_gpu: int = option(2, "jobs on the same GPUs at most", low=1)
    retry_s: float = option(
        600.0, "seconds after which a pack that did not pay may be tried again", low=0.0
    )
    migrate: bool = option(True, "move jobs to lower heights and to empty servers")
    threshold: float = option(
        0.75, "part of a server's GPUs that is free from which its jobs move away", low=0.0
    )
    migration_s: float = option(5.0, "seconds that a move costs; jobs with less left stay", low=0.0)
    spread_loss: float = option(
        0.1, "part of its speed that a job is taken to lose over several servers", low=0.0, high=1.0
    )
    grow_after_s: float = option(
        60.0, "seconds for which GPUs must be idle before a growable job gets them", low=0.0
    )
