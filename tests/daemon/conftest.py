"""The live laboratory, and a clock that jumps."""

from __future__ import annotations

import importlib.util
import sys
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from dlsched.system import clock

_NAME = "dlsched_tests_ledger_walk"
_SPEC = importlib.util.spec_from_file_location(_NAME, Path(__file__).parent / "ledger_walk.py")
assert _SPEC is not None
assert _SPEC.loader is not None
_MODULE = importlib.util.module_from_spec(_SPEC)
sys.modules[_NAME] = _MODULE
_SPEC.loader.exec_module(_MODULE)


@pytest.fixture(scope="session")
def live() -> Any:
    """The module `ledger_walk`: `LiveLab` and what belongs to it."""
    return _MODULE


@pytest.fixture
def later(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Have so many seconds pass at once."""
    offset = [0.0]
    jumpy = SimpleNamespace(
        time=lambda: time.time() + offset[0],
        clock_gettime=lambda which: time.clock_gettime(which) + offset[0],
        CLOCK_BOOTTIME=time.CLOCK_BOOTTIME,
    )
    monkeypatch.setattr(clock, "time", jumpy)

    def pass_(seconds: float) -> None:
        offset[0] += seconds

    return pass_
