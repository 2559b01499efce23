"""Costs as counts, which are the same on every machine and under every load."""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import FrameType

__all__ = ["python_calls"]


def python_calls(work: Callable[[], object]) -> int:
    """How many Python functions `work` calls; a generator counts once for each of its values."""
    calls = 0

    def count(_frame: FrameType, event: str, _argument: object) -> None:
        nonlocal calls
        calls += event == "call"

    before = sys.getprofile()
    sys.setprofile(count)
    try:
        work()
    finally:
        sys.setprofile(before)
    return calls
