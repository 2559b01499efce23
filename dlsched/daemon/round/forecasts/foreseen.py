"""What a run-on of a live snapshot says of each job."""

from __future__ import annotations

from typing import NamedTuple


class Foreseen(NamedTuple):
    """What a run-on came to, of one job; seconds of the policy's clock, NaN for what is not known.

    Attributes:
        job: its id.
        start_at: of one that is pending; NaN of others, and where it did not come to that.
        end_at: NaN where it did not come to that.
        basis: what it rests on.
        start_p10, start_p90: between these a start lies in eight of ten cases.
        end_p10, end_p90: likewise the end.
        on_time: the chance that it meets its deadline; NaN where it has none.
        gpus: that it asks for.
        source: of its own duration.
        refused: why the policy would refuse it for good; empty where it would not.
    """

    job: int
    start_at: float
    end_at: float
    basis: str
    start_p10: float
    start_p90: float
    end_p10: float
    end_p90: float
    on_time: float
    gpus: int
    source: str
    refused: str
