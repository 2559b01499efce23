"""What an agent and a keeper let in when the daemon asks: the run's user, and so many."""

from __future__ import annotations

import getpass
import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from queue import SimpleQueue
from typing import Any

import grpc
import pytest

from dlsched.nodeagent.shells.shells import MOST_SHELLS
from dlsched.rpc.channels import ClientTrust, open_blocking_channel
from dlsched.rpc.identity import DAEMON
from dlsched.rpc.v1.attach_pb2 import AttachInput, AttachTarget
from dlsched.rpc.v1.node_pb2_grpc import AgentStub
from dlsched.rpc.v1.run_pb2 import RunKey
from dlsched.torture.local_cluster import LocalCluster, eventually

pytestmark = pytest.mark.slow
CODE = grpc.StatusCode


@dataclass
class Asked:
    """An agent, asked as the daemon asks it, about one running job."""

    stub: Any
    key: RunKey

    def begin(self, ticket: str, *argv: str, **more: Any) -> tuple[Any, SimpleQueue[Any]]:
        """A call for a process, and what is still sent."""
        given = {"key": self.key, "user": getpass.getuser(), "uid": os.getuid(), **more}
        outgoing: SimpleQueue[Any] = SimpleQueue()
        outgoing.put(AttachInput(target=AttachTarget(ticket=ticket, argv=argv, **given)))
        method = self.stub.Forward if "port" in more else self.stub.Attach
        return method(iter(outgoing.get, None)), outgoing

    def refusal(self, ticket: str, *argv: str, **more: Any) -> tuple[grpc.StatusCode, str]:
        """How a call ends that is refused."""
        call, outgoing = self.begin(ticket, *argv, **more)
        try:
            with pytest.raises(grpc.RpcError) as caught:
                list(call)
        finally:
            outgoing.put(None)
        return caught.value.code(), caught.value.details()


@pytest.fixture(scope="module")
def asked() -> Iterator[Asked]:
    """The agent of a cluster of one node, and a job that runs there."""
    with LocalCluster(nodes=1) as cluster:
        job = cluster.submit("echo $DLSCHED_RUN_ID; exec sleep 600", gpus=1)
        run_id = str(eventually("it writes", lambda: cluster.output(job).strip()))
        found = re.search(r"listening address=(\S+)", cluster.log("n1"))
        assert found is not None
        trust = ClientTrust.claimed_role(DAEMON)
        with open_blocking_channel(found[1], trust) as channel:
            stub = AgentStub(channel)  # type: ignore[no-untyped-call]  # generated
            yield Asked(stub, RunKey(job=job, run=1, run_id=run_id))


def test_another_user_than_the_runs_is_refused_whatever_the_daemon_says(asked: Asked) -> None:
    for more in ({"uid": 12345}, {"user": "eve"}, {"uid": 12345, "port": 80}):
        code, why = asked.refusal("x" * 32, "true", **more)
        assert code is CODE.FAILED_PRECONDITION
        assert "the run is not of user" in why


def test_a_ticket_starts_one_process_and_finds_it_again(asked: Asked) -> None:
    first, outgoing = asked.begin("t" * 32, "cat")
    attached = next(first).attached
    assert (attached.ticket, attached.started, attached.position) == ("t" * 32, True, 0)
    outgoing.put(AttachInput(data=b"abc"))
    told = iter(first)
    while next(told).data != b"abc":
        pass
    second, more = asked.begin("t" * 32, "cat", taken=1)  # as if the answer had been lost
    attached = next(second).attached
    assert (attached.started, attached.position, attached.taken) == (False, 1, 3)
    assert next(second).data == b"bc"
    *_, last = told
    assert last.ended.elsewhere
    more.put(AttachInput(end=True))
    *_, last = second
    assert (last.ended.code, last.ended.signal) == (0, 0)
    for queue in (outgoing, more):
        queue.put(None)
    # its end is kept for a while, and nothing is started under a ticket that is not known
    third, queue = asked.begin("t" * 32, again=True, taken=3)
    assert [each.HasField("ended") for each in third] == [False, True]
    queue.put(None)
    code, why = asked.refusal("u" * 32, again=True)
    assert (code, "it has ended" in why) == (CODE.FAILED_PRECONDITION, True)


def test_the_processes_beside_a_run_are_bounded(asked: Asked) -> None:
    calls = [asked.begin(f"{number:032d}", "cat") for number in range(MOST_SHELLS)]
    try:
        assert all(next(call).attached.started for call, _ in calls)
        code, why = asked.refusal("v" * 32, "cat")
        assert code is CODE.FAILED_PRECONDITION
        assert f"{MOST_SHELLS} shells are open here, which is the most" in why
    finally:
        for _, outgoing in calls:
            outgoing.put(AttachInput(end=True))
        for call, outgoing in calls:
            assert [each for each in call if each.HasField("ended")]
            outgoing.put(None)
