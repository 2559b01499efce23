"""A fresh machine with systemd for a test module; skips with the reason where none can be."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parent))
import installed_cluster  # the folder had to be named first
import machine as machines


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """All of this folder is long and needs a machine of its own."""
    for item in items:
        if Path(__file__).parent in item.path.parents:
            item.add_marker(pytest.mark.slow)
            item.add_marker(pytest.mark.systemd)
            item.add_marker(pytest.mark.timeout(600))
            item.add_marker(pytest.mark.xdist_group("systemd"))


@pytest.fixture(scope="module")
def machine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """A booted machine."""
    why = machines.obstacle()
    if why:
        pytest.skip(f"no systemd to test with: {why}")
    with machines.Machine(tmp_path_factory.mktemp("systemd") / "layer") as booted:
        yield booted


@pytest.fixture(scope="module")
def cluster(machine: Any) -> Any:
    """The machine with the packaged daemon and one agent running."""
    return installed_cluster.start(machine)


@pytest.fixture
def lab(cluster: Any, request: pytest.FixtureRequest) -> Iterator[Any]:
    """The same with no job of an earlier test; a failed one shows what the services said."""
    yield cluster
    if request.node.outcomes.get("call") == "failed":
        print(cluster.machine.run("journalctl", "-u", "dlsched-*", "-o", "cat", "-n", "60").stdout)
    cluster.end_all()
