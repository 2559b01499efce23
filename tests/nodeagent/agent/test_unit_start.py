"""A unit that systemd has started and that does not answer is ended before its run fails."""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path
from typing import Any

import pytest

from dlsched.nodeagent.agent.keepers import start, zygote_link
from dlsched.nodeagent.agent.keepers.spawning import CannotStartKeeper
from dlsched.nodeagent.agent.keepers.start import UnitStart
from dlsched.nodeagent.ranks.launch_spec import KeeperSpec, LaunchFacts, RunFacts
from dlsched.protocol import messages as m

UNIT = "dls-1-1-0.service"
NODE, GPU = m.NodeName("n1"), m.GpuId("GPU-0")
ASKS = """
import socket, sys, time
line = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
line.connect(sys.argv[1])
line.send(sys.argv[2].encode())
time.sleep(60)
"""


def spec() -> KeeperSpec:
    desired = m.DesiredRun(
        key=m.RunKey(m.JobId(1), m.RunNumber(1), m.RunId("1-a")),
        want=m.Want.RUNNING,
        epoch=m.Epoch(1),
        boot_id=m.BootId("b"),
        gpus=(GPU,),
        layout=(m.Share(node=NODE, gpus=(GPU,)),),
    )
    return KeeperSpec(
        node=NODE,
        desired=desired,
        launch=LaunchFacts(user="", uid=os.getuid(), gid=os.getgid()),
        facts=RunFacts(uid=os.getuid(), gid=os.getgid(), unit=UNIT),
        state_dir="/nowhere",
        run_dir="/nowhere",
        gpu_numbers={GPU: 0},
        cpus=1,
    )


@pytest.mark.parametrize(
    ("asks", "why"), [(False, "never asked for its job"), (True, "does not answer")]
)
def test_a_unit_that_does_not_answer_is_killed_and_stopped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, asks: bool, why: str
) -> None:
    programs, told = tmp_path / "bin", tmp_path / "told"
    programs.mkdir()
    asked = f'"{sys.executable}" -c "$ASKS" "{tmp_path}/births" {UNIT} >"{tmp_path}/said" 2>&1 &'
    for name, command in {
        "systemd-run": asked if asks else "true",
        "systemctl": f'echo "$@" >>"{told}"; kill $(cat "{tmp_path}/pid") 2>/dev/null; true',
    }.items():
        program = programs / name
        program.write_text(f'#!/bin/sh\n{command}\necho $! >"{tmp_path}/pid"\n')
        program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{programs}:{os.environ['PATH']}")
    monkeypatch.setenv("ASKS", ASKS)
    monkeypatch.setattr(start, "_ASKS_S", 60.0 if asks else 0.5)
    monkeypatch.setattr(zygote_link, "_ANSWER_S", 0.2)

    async def begin() -> None:
        units = UnitStart(str(tmp_path))
        try:
            with pytest.raises(CannotStartKeeper, match=why):
                await units.start_keeper(spec(), [])
            assert told_words(told) == [["kill", UNIT], ["stop", UNIT]]
            with pytest.raises(CannotStartKeeper, match=why):  # it can be tried again
                await units.start_keeper(spec(), [])
        finally:
            units.close()

    asyncio.run(begin())


def told_words(told: Path) -> list[list[str]]:
    """The verb and the unit of each call of `systemctl`."""
    found: list[Any] = [line.split() for line in told.read_text().splitlines()]
    return [[word for word in words if not word.startswith("--")] for words in found]
