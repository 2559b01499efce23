"""Following the output of a job, from before its start."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import grpc
import pytest

from dlsched.client.daemon_client import Client
from dlsched.client.errors import RequestRefused
from dlsched.rpc.v1 import control_pb2 as pb
from dlsched.rpc.v1.control_pb2_grpc import ControlServicer, add_ControlServicer_to_server


class Control(ControlServicer):
    """A daemon with a job that waits when its output is asked for first, and has ended then."""

    def __init__(self) -> None:
        self.asked = 0
        self.writes = True

    def Logs(self, request: Any, context: Any) -> Iterator[Any]:  # noqa: N802
        """Refuse, then give what it has written."""
        self.asked += 1
        if self.asked == 1 or not self.writes:
            context.abort(grpc.StatusCode.FAILED_PRECONDITION, "job 7 has not run yet")
        yield pb.LogChunk(data=b"written\n")

    def Show(self, request: Any, context: Any) -> Any:  # noqa: N802
        """The job as it is at the second look."""
        job = pb.JobView(job=7, state="COMPLETED", ended_at=1.0)
        return pb.ShowReply(jobs=[pb.JobDetail(job=job)], total=1)


@pytest.fixture
def control() -> Iterator[tuple[Control, str]]:
    server, served = grpc.server(ThreadPoolExecutor(1)), Control()
    add_ControlServicer_to_server(served, server)  # type: ignore[no-untyped-call]  # generated
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    yield served, f"127.0.0.1:{port}"
    server.stop(None)


def test_a_job_that_ends_between_two_looks_has_its_output_shown(
    control: tuple[Control, str],
) -> None:
    with Client(control[1], insecure_loopback=True) as client:
        assert b"".join(client.follow(7)) == b"written\n"


def test_a_job_that_ended_without_output_is_asked_for_once_more(
    control: tuple[Control, str],
) -> None:
    served, address = control
    served.writes = False
    with Client(address, insecure_loopback=True) as client, pytest.raises(RequestRefused):
        list(client.follow(7))
    assert served.asked == 2
