"""An agent's node policy: runs that come and go, odd reports, a policy that fails, the disk."""

from __future__ import annotations

import math
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from dlsched.core.errors import BadInput
from dlsched.core.node_policy import Event, NodePolicy, Outcome
from dlsched.core.options import NoOptions
from dlsched.nodeagent.agent.gpu_limits import FILE, HELLO_S, GpuLimits
from dlsched.nodeagent.agent.node_policies import make_policy
from dlsched.nodeagent.gpus.backend import GpuState
from dlsched.policies.node.antman import GpuState as CoordinatorState
from dlsched.protocol import messages as m
from dlsched.protocol.agent.state import Held

GPU = m.GpuId("GPU-0")
OWNER, OPPORTUNISTIC = 1, 2


def key_of(job: int) -> m.RunKey:
    return m.RunKey(job=m.JobId(job), run=1, run_id=m.RunId(f"r{job}"))


def held(job: int, share: float | None, phase: m.Phase = m.Phase.RUNNING) -> Held:
    desired = SimpleNamespace(key=key_of(job), gpus=(GPU,), gpu_share=share)
    return Held(desired=cast(m.DesiredRun, desired), phase=phase)


def runs(*present: Held) -> dict[m.RunId, Held]:
    return {each.desired.key.run_id: each for each in present}


BOTH = runs(held(OWNER, None), held(OPPORTUNISTIC, 0.0))


class Node:
    """The limits of a node, and what its keepers were told."""

    def __init__(self, folder: Path, policy: NodePolicy[Any, Any] | None = None) -> None:
        self.told: list[tuple[str, dict[str, Any]]] = []
        self.watch = SimpleNamespace(states={GPU: GpuState(uuid=GPU)})
        self.limits = GpuLimits(
            policy or make_policy({"name": "antman-node"}, "test"),
            str(folder),
            self.send,
            cast(Any, self.watch),
        )

    def send(self, run_id: m.RunId, message: dict[str, Any]) -> bool:
        self.told.append((run_id, message["limit"]))
        return True

    def shares(self, job: int) -> list[int]:
        return [limit["share"] for run_id, limit in self.told if run_id == f"r{job}"]

    def reports(self, job: int, **values: Any) -> None:
        self.limits.guard(lambda: self.limits.reported(key_of(job), values))


@pytest.fixture
def node(tmp_path: Path) -> Node:
    return Node(tmp_path)


def test_an_opportunistic_job_gets_all_alone_and_nothing_beside_a_new_owner(node: Node) -> None:
    node.limits.look(runs(held(OPPORTUNISTIC, 0.0)), 0.0)
    node.limits.look(BOTH, 1.0)
    node.limits.look(runs(held(OPPORTUNISTIC, 0.0), held(OWNER, None, m.Phase.SUSPENDED)), 2.0)
    assert node.shares(OPPORTUNISTIC) == [100, 0, 100]
    assert node.shares(OWNER) == [100]


@pytest.mark.parametrize(
    "values",
    [
        {"step": 1, "batch_s": math.nan},
        {"step": 1, "batch_s": -1.0},
        {"step": 1, "batch_s": 0.0},
        {"step": -5, "batch_s": 0.1},
        {"batch_s": 0.1},
        {"step": 1},
        {},
        {"step": 1, "batch_s": 0.1, "gpu_memory_bytes": -7},
    ],
)
def test_an_odd_report_harms_nothing(node: Node, values: dict[str, Any]) -> None:
    node.limits.look(BOTH, 0.0)
    told = list(node.told)
    node.reports(OWNER, **values)
    node.reports(99, step=1, batch_s=0.1)
    node.limits.look(BOTH, 1.0)
    assert not node.limits.has_failed
    assert node.told == told


def test_a_job_that_says_nothing_of_limits_stands_still_and_may_still_say_so(node: Node) -> None:
    node.limits.look(BOTH, 0.0)
    assert not node.told[-1][1]["stand_still"]
    node.limits.look(BOTH, HELLO_S + 1.0)
    assert node.told[-1] == (
        "r2",
        {"share": 0, "memory_bytes": None, "leaves": False, "stand_still": True},
    )
    node.limits.obeys(key_of(OPPORTUNISTIC))
    assert not node.told[-1][1]["stand_still"]


def test_memory_is_read_once_a_reading(node: Node) -> None:
    node.watch.states[GPU] = GpuState(uuid=GPU, memory_used_bytes=99, memory_free_bytes=1)
    node.limits.look(BOTH, 0.0)
    node.limits.look(BOTH, 1.0)
    limited = [limit["memory_bytes"] for _, limit in node.told if limit["memory_bytes"]]
    node.limits.look(BOTH, 2.0)
    assert limited == [limit["memory_bytes"] for _, limit in node.told if limit["memory_bytes"]]


class Raises(NodePolicy[NoOptions, CoordinatorState]):
    """Fails at its second event."""

    name = "raises"
    State = CoordinatorState
    events = 0

    def begin(self) -> CoordinatorState:
        return CoordinatorState()

    def step(self, state: CoordinatorState, event: Event) -> Outcome[CoordinatorState]:
        self.events += 1
        if self.events > 1:
            raise RuntimeError("a bug")
        return Outcome(state, {})


def test_a_policy_that_fails_lifts_all_limits(tmp_path: Path) -> None:
    node = Node(tmp_path, Raises(NoOptions()))
    node.limits.guard(lambda: node.limits.look(BOTH, 0.0))
    assert node.limits.has_failed
    assert {run_id for run_id, limit in node.told if limit["share"] == 100} == {"r1", "r2"}
    node.reports(OWNER, step=1, batch_s=0.1)  # is asked no more


def test_the_next_agent_goes_on_where_this_one_was(node: Node, tmp_path: Path) -> None:
    node.limits.look(BOTH, 0.0)
    node.limits.store()
    second = Node(tmp_path)
    second.limits.restore()
    second.limits.look(BOTH, 1.0)
    assert second.told == [], "the keepers know it"
    second.limits.look(runs(held(OPPORTUNISTIC, 0.0)), 2.0)
    assert second.shares(OPPORTUNISTIC) == [100]


@pytest.mark.parametrize("content", ["", "{", "[]", '{"policy":"antman-node","limits":3}'])
def test_a_damaged_file_is_forgotten(tmp_path: Path, content: str) -> None:
    (tmp_path / FILE).write_text(content)
    node = Node(tmp_path)
    node.limits.restore()
    node.limits.look(BOTH, 0.0)
    assert node.shares(OPPORTUNISTIC) == [0]


def test_a_policy_or_an_option_that_is_not_known_is_refused() -> None:
    with pytest.raises(BadInput, match="antman-node"):
        make_policy({"name": "antmann"}, "agent.toml")
    with pytest.raises(BadInput, match="option 'x' is not known"):
        make_policy({"name": "antman-node", "x": 1}, "agent.toml")
