"""A zygote that does not start says why, in the agent's own error."""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path

import pytest

from dlsched.nodeagent.agent.keepers import zygote_link


@pytest.mark.parametrize(
    ("program", "why"),
    [
        ("import sys; print('a', file=sys.stderr); import no_such", "No module named 'no_such'"),
        ("import os; os.kill(os.getpid(), 9)", "ended by signal 9"),
        ("raise SystemExit(3)", "exit code 3"),
    ],
)
def test_an_agent_whose_zygote_does_not_start_tells_its_last_line(
    program: str, why: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(zygote_link, "ZYGOTE", (sys.executable, "-S", "-c", program))
    with pytest.raises(zygote_link.CannotStartKeeper, match=f"did not start: .*{why}"):
        asyncio.run(zygote_link.ZygoteLink(str(tmp_path)).begin())


# Says whether it can have namespaces, as the next word of a file does; the first one then ends.
SAYS = """
import json, socket, sys
with open(sys.argv[1]) as file:
    words = file.read().split()
with open(sys.argv[1], "w") as file:
    file.write(" ".join(words[1:]))
agent = socket.socket(fileno=int(sys.argv[2]))
agent.send(json.dumps({"namespaces": words[0] != "no"}).encode())
if words[0] != "first":
    agent.recv(1)
"""


def test_a_zygote_that_can_have_no_namespaces_does_not_replace_one_that_could(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = tmp_path / "plan"
    plan.write_text("first no no yes")
    monkeypatch.setattr(zygote_link, "ZYGOTE", (sys.executable, "-S", "-c", SAYS, str(plan)))
    monkeypatch.setattr(zygote_link, "_AGAIN_S", 0.01)
    problems: list[str] = []

    async def replace() -> None:
        link = zygote_link.ZygoteLink(str(tmp_path))
        await link.begin()
        assert link.has_namespaces
        replaced = asyncio.Event()

        def told(problem: str) -> None:
            problems.append(problem)
            if not problem:
                replaced.set()

        keeping = asyncio.ensure_future(link.keep(told))
        await asyncio.wait_for(replaced.wait(), 60)
        keeping.cancel()
        link.close()

    asyncio.run(replace())
    why = "no job can be started: the zygote cannot have process-id namespaces any more"
    assert problems == [why, why, ""]


@pytest.mark.parametrize("refused", ["mkdir", "memfd_create", "dup", "Popen"])
def test_a_zygote_that_cannot_be_started_leaves_no_descriptor_open(
    refused: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_arguments: object, **_more: object) -> None:
        raise OSError("refused")

    before = len(os.listdir("/proc/self/fd"))
    with monkeypatch.context() as patch:
        patch.setattr(zygote_link.subprocess if refused == "Popen" else os, refused, refuse)
        with pytest.raises(OSError, match="refused"):
            asyncio.run(zygote_link.ZygoteLink(str(tmp_path)).begin())
    assert len(os.listdir("/proc/self/fd")) == before


def test_a_zygote_that_hangs_up_and_does_not_end_is_killed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = "import os, sys, time; os.close(int(sys.argv[1])); time.sleep(600)"
    monkeypatch.setattr(zygote_link, "ZYGOTE", (sys.executable, "-S", "-c", program))
    monkeypatch.setattr(zygote_link, "_ANSWER_S", 0.2)
    link = zygote_link.ZygoteLink(str(tmp_path))
    with pytest.raises(zygote_link.CannotStartKeeper, match=r"did not start: .*does not end"):
        asyncio.run(link.begin())
    link.close()  # which waits for its end
