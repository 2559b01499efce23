"""What a check of this node's starts leaves behind."""

from __future__ import annotations

import asyncio
import os
import subprocess
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from dlsched.nodeagent.agent.keepers.zygote_link import StartedKeeper
from dlsched.nodeagent.agent.start_check import StartCheck
from dlsched.nodeagent.ranks.launch_spec import RunFacts


def check_in(folder: Path, starter: Any) -> StartCheck:
    """A check of a node whose site has none of its own."""

    async def no_check() -> None:
        pass

    settings: Any = SimpleNamespace(
        name="n1", state_dir=str(folder / "state"), run_dir=str(folder / "run")
    )
    health: Any = SimpleNamespace(check_if_any=no_check, fault="")
    return StartCheck(settings, starter, health, lambda: None)


@pytest.mark.parametrize("left", ["state", "run", "both", "unreadable"])
def test_whatever_is_left_of_a_check_that_was_cut_short_is_cleared(
    left: str, tmp_path: Path
) -> None:
    """A boot empties the folder of sockets, not the one of records."""
    for name in ("state", "run"):
        if left in (name, "both", "unreadable"):
            (tmp_path / name / "check" / "jobs" / "0.1.aa").mkdir(parents=True)
    if left == "unreadable":
        (tmp_path / "state" / "check" / "jobs" / "0.1.aa" / "run.json").write_text("{")
    starter: Any = SimpleNamespace(apart=lambda *_folders: None)
    check_in(tmp_path, starter).clear()
    assert not [each for name in ("state", "run") for each in tmp_path.glob(f"{name}/check")]


def test_a_check_leaves_no_cgroup(tmp_path: Path) -> None:
    cgroup = tmp_path / "cgroup"
    for leaf in ("job", "keeper"):
        (cgroup / leaf).mkdir(parents=True)

    async def start(*_arguments: object) -> tuple[StartedKeeper, RunFacts]:
        with subprocess.Popen(["true"]) as keeper:
            started = StartedKeeper(keeper.pid, os.pidfd_open(keeper.pid))
        return started, RunFacts(uid=0, gid=0, cgroup=str(cgroup))

    starter: Any = SimpleNamespace(apart=lambda *_folders: SimpleNamespace(start=start))
    check = check_in(tmp_path, starter)
    asyncio.run(check.check())
    assert check.take_result() == "its keeper was lost"
    assert not cgroup.exists()
