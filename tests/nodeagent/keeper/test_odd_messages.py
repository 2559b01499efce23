"""Messages between agent and keeper that are not as expected: none of them ends a job."""

from __future__ import annotations

import asyncio
import json
import os
import random
import select
import socket
from pathlib import Path
from typing import Any

import pytest
from scripted_leader import Work

from dlsched.nodeagent.agent.keepers.link import KeeperLink
from dlsched.nodeagent.json_values import UNCLEAR
from dlsched.nodeagent.keeper.framing import BrokenFrame, Frames, frame
from dlsched.nodeagent.keeper.keeper_process import ORDERS
from dlsched.protocol.ledger import JobStatus
from dlsched.protocol.messages import NodeName, Phase, RunId

KEYS = (
    "ranks_event", "start_ranks", "resume_ranks", "stop_ranks", "signal_ranks", "ranks_taken",
    "rank_input",
    "use_batch", "committed",
)  # fmt: skip
FIELDS = (
    "call", "rank", "code", "signal", "number", "bytes", "ranks", "exited", "data", "node",
    "input_taken", "attempt", "received", "started", "at", "broke", "ended",
)  # fmt: skip
ODD = (
    None, True, -1, 0, 2**70, 1e400, "", "\ud800", "x" * 5000, [], [[]], {}, {"call": {}}, [None],
    {"local": "a"},
)  # fmt: skip


def odd_messages(rng: random.Random) -> list[dict[str, Any]]:
    """Each known word with values of other types, and with fields that are not as they should be.

    None of them is an order that ends the run.
    """
    found: list[dict[str, Any]] = [{"order": name, "with": odd} for name in ORDERS for odd in ODD]
    found = [each for each in found if each["order"] not in ("Stop", "Kill", "Freeze")]
    found += [{"order": name, "with": {"reason": odd}} for name in ("Stop", "Kill") for odd in ODD]
    found += [{key: odd} for key in (*KEYS, "order", "with", "no such word") for odd in ODD]
    for _ in range(1500):
        fields = {each: rng.choice(ODD) for each in rng.sample(FIELDS, rng.randint(0, 6))}
        found.append({rng.choice(KEYS): fields})
    rng.shuffle(found)
    return found


def test_no_odd_message_of_an_agent_ends_the_job(cluster: Any) -> None:
    leader, go = cluster.up(), cluster.folder / "go"
    script = f"until [ -e {go} ]; do sleep 0.05; done; exit 7"
    job = leader.submit(Work(argv=("/bin/sh", "-c", script)))
    leader.place(job, ("n1",))
    leader.wait_phase("n1", Phase.RUNNING)
    agent, run_id = cluster.agents["n1"], leader.run_of(job).key.run_id
    keeper = agent.keeper(run_id)
    agent.kill()
    (path,) = Path(agent.run_dir, "jobs").glob(f"*{run_id}/keeper")
    said = b""
    with socket.socket(socket.AF_UNIX) as line:
        line.connect(str(path))
        for message in odd_messages(random.Random(7)):
            try:
                line.sendall(frame(message))
                while select.select([line], [], [], 0)[0]:
                    said += line.recv(65536)
            except OSError:
                pytest.fail(f"hung up after {json.dumps(message)[:200]}")
    assert os.path.exists(f"/proc/{keeper}")
    assert b'"unclear"' in said
    agent.restart()
    leader.wait_phase("n1", Phase.RUNNING)
    go.touch()
    leader.wait(job, JobStatus.FAILED)
    (run,) = leader.ledger.runs_of_job(job)
    assert run.members[NodeName("n1")].exit.code == 7


@pytest.mark.parametrize("error", [*UNCLEAR, KeyError, UnicodeDecodeError])
def test_an_agent_goes_on_after_an_odd_message_of_a_keeper(error: type[Exception]) -> None:
    taken: list[dict[str, Any]] = []

    def take(_run_id: RunId, message: dict[str, Any]) -> None:
        taken.append(message)
        if message.get("odd"):
            raise error(*(("utf-8", b"", 0, 1, "") if error is UnicodeDecodeError else ("odd",)))

    async def talk() -> None:
        ours, theirs = socket.socketpair()
        link = KeeperLink(
            RunId("r1"), os.getpid(), os.pidfd_open(os.getpid()), "", on_message=take, on_end=print
        )
        link.begin(ours)
        theirs.sendall(frame({"odd": True}) + frame({"status": 1}))
        while len(taken) < 2:
            await asyncio.sleep(0)
        link.close()
        theirs.close()

    asyncio.run(asyncio.wait_for(talk(), 30))
    assert taken == [{"odd": True}, {"status": 1}]


def test_deeply_nested_text_is_no_message() -> None:
    text = b"[" * 200_000
    with pytest.raises(BrokenFrame):
        list(Frames().feed(len(text).to_bytes(4, "big") + text))
