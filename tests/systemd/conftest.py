"""A fresh machine with systemd for a test module; skips with the reason where none can be."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

_SPEC = importlib.util.spec_from_file_location(
    "dlsched_test_machine", Path(__file__).with_name("machine.py")
)
assert _SPEC is not None
assert _SPEC.loader is not None
machines = importlib.util.module_from_spec(_SPEC)
sys.modules["dlsched_test_machine"] = machines
_SPEC.loader.exec_module(machines)


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
