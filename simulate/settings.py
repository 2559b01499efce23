"""One replay as a value: the parts of a run, and what is replayed under which conditions."""

from __future__ import annotations

from dataclasses import dataclass

from dlsched.composition.settings import PartSettings


@dataclass(frozen=True, slots=True, kw_only=True)
class RunSettings(PartSettings):
    """One replay of one policy; see `PartSettings` for its parts.

    Attributes:
        load: submit gaps are divided by it; None leaves the trace as it is.
        warmup_s: jobs submitted earlier do not count in the figures.
        track: first and last job id, inclusive; the run stops when they have ended.
        horizon: stop at this time.
        interference: how jobs on the same GPUs slow each other down, one of `SOURCES` of
            `simulate.interference`; "": as pairs were measured, where they were.
        mtbf_s: mean seconds that a node works between failures; None: nodes do not fail.
        mttr_s: mean seconds until a failed node is back.
        skipping: may rounds without possible change be skipped?
        record: keep the time line and the stretches on nodes.
        check: check every invariant after every decision.
        name: what to call the run where its policy alone does not tell it from others.
    """

    load: float | None = None
    warmup_s: float = 0.0
    track: tuple[str, str] | None = None
    horizon: float = float("inf")
    interference: str = ""
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
