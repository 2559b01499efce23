"""A rank that sends as fast as it can: the agent stays small, hears others, and leaves."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

import psutil
import pytest
from scripted_leader import Work, eventually

from dlsched.nodeagent.agent.serving import LEAVES_S
from dlsched.protocol.messages import Phase

pytestmark = pytest.mark.slow

MOST_GROWTH = 60 << 20  # bytes
SENT = 15_000
FLOOD = """
import itertools, json, os, socket, sys
line = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
line.connect(os.environ["DLSCHED_CTL_SOCK"])
send = lambda **m: line.send(json.dumps(m).encode())
send(type="hello", rank=0, capabilities=["stop", "limit"])
kinds = [
    lambda k: dict(type="checkpoint", path=f"/c/{k}", step=k, bytes=1, sha256="0" * 64, save_s=1.0),
    lambda k: dict(type="step", step=k, batch_s=0.1, loss=1.0, metrics={f"m{k % 999}": 1.0}),
    lambda k: dict(type="doing", what=f"save {k}"),
    lambda k: dict(type="restored", step=k, restart_s=1.0),
    lambda k: dict(type="failed", error=f"e{k}", at=1.0),
    lambda k: dict(type="step", step="nonsense"),
    lambda k: dict(type="step_begin", held_bytes=k),
    lambda k: dict(type="want_tasks", held=[k]),
    lambda k: dict(type="hello", rank=k, capabilities=["limit"]),
    lambda k: dict(type="trained", nodes=1, replicas=1, progress=float(k)),
]
chosen = kinds[:1] if sys.argv[1] == "checkpoint" else kinds
for k in itertools.count(1):
    try:
        send(**chosen[k % len(chosen)](k))
    except OSError:
        pass
    while True:
        try:
            line.recv(65536, socket.MSG_DONTWAIT)
        except OSError:
            break
    if k % 1000 == 0:
        with open(sys.argv[2], "w") as file:
            file.write(str(k))
"""
ONCE = """
import json, os, socket, sys
line = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
line.connect(os.environ["DLSCHED_CTL_SOCK"])
line.send(json.dumps({"type": "hello", "rank": 0}).encode())
made = {"type": "checkpoint", "path": "/mine", "step": 1, "bytes": 1, "sha256": "0" * 64}
line.send(json.dumps(made).encode())
while True:
    told = json.loads(line.recv(65536))
    if told["type"] == "checkpoint":
        break
with open(sys.argv[1], "w") as file:
    file.write(str(told["accepted"]))
"""
PYTHON = {"PATH": os.environ["PATH"]}


def resident(agent: Any) -> int:
    return int(psutil.Process(agent.process.pid).memory_info().rss)


@pytest.mark.parametrize("what", ["checkpoint", "everything"])
def test_a_flood_of_messages_of_one_job_costs_the_agent_and_other_jobs_nothing(
    cluster: Any, what: str
) -> None:
    leader = cluster.up("n1")
    agent = cluster.agents["n1"]
    before = resident(agent)
    count, told = cluster.folder / "count", cluster.folder / "told"
    flood = leader.submit(
        Work(argv=(sys.executable, "-c", FLOOD, what, str(count)), environment=PYTHON)
    )
    leader.place(flood, ("n1",))
    leader.wait_phase("n1", Phase.RUNNING)
    eventually(lambda: sent(count) >= SENT, "the flood")
    other = leader.submit(Work(argv=(sys.executable, "-c", ONCE, str(told)), environment=PYTHON))
    leader.place(other, ("n1",), 1)
    eventually(lambda: told.exists() and told.read_text() == "True", "another job is answered")
    eventually(lambda: sent(count) >= 2 * SENT, "the flood goes on")
    grown = resident(agent) - before
    assert grown < MOST_GROWTH, f"{grown >> 20} MiB"
    agent.process.terminate()
    # in order, or given up after `LEAVES_S`: a slow machine may need longer than that
    assert agent.wait_dead(within=LEAVES_S + 20) in (0, 1)


def sent(count: Path) -> int:
    """How many messages the flood has sent."""
    text = count.read_text() if count.exists() else ""
    return int(text or 0)
