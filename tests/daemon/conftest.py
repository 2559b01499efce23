"""The fixture of the live laboratory."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from typing import Any

import pytest

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
