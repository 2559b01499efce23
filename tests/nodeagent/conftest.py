"""A cluster of real agents around the protocol's own leader."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
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


@pytest.fixture(scope="module")
def _shared() -> Iterator[Any]:
    made = Cluster()
    made.up("n1", "n2")
    yield made
    made.close()


@pytest.fixture
def calm(_shared: Any, request: pytest.FixtureRequest) -> Iterator[Any]:
    """Two nodes that no test of the module disturbs, and a folder for this test."""
    folder = _shared.folder / f"t{len(list(_shared.folder.iterdir()))}"
    folder.mkdir(mode=0o755)
    yield SimpleNamespace(leader=_shared.leader, agents=_shared.agents, folder=folder)
    _shared.leader.cancel_all()
    if request.node.outcomes.get("call") == "failed":
        for name in ("n1", "n2"):
            print(f"--- log of {name}\n{_shared.agents[name].log.read_text()[-4000:]}")


@pytest.fixture
def cluster(request: pytest.FixtureRequest) -> Iterator[Any]:
    timing = request.node.get_closest_marker("timing")
    made = Cluster(*timing.args) if timing is not None else Cluster()
    yield made
    made.close(failed=request.node.outcomes.get("call") == "failed")
