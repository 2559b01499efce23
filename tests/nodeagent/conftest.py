"""A cluster of real agents around the protocol's own leader."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

if "scripted_leader" not in sys.modules:
    _SPEC = importlib.util.spec_from_file_location(
        "scripted_leader", Path(__file__).with_name("scripted_leader.py")
    )
    assert _SPEC is not None
    assert _SPEC.loader is not None
    _MODULE = importlib.util.module_from_spec(_SPEC)
    sys.modules["scripted_leader"] = _MODULE
    _SPEC.loader.exec_module(_MODULE)

from scripted_leader import Cluster


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "timing(timing): the protocol's numbers of this cluster")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: Any) -> Any:
    report = yield
    setattr(item, f"outcome_{report.when}", report)
    return report


@pytest.fixture
def cluster(request: pytest.FixtureRequest) -> Iterator[Any]:
    timing = request.node.get_closest_marker("timing")
    made = Cluster(*timing.args) if timing is not None else Cluster()
    yield made
    outcome = getattr(request.node, "outcome_call", None)
    made.close(failed=outcome is not None and outcome.failed)
