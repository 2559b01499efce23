"""What the tests of the command line share: calls as a user makes them, and a scripted daemon.

The scripted daemon is a real gRPC server of the Control service on loopback.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent import futures
from typing import Any, NamedTuple

import grpc
import pytest

from dlsched.cli.main import run
from dlsched.rpc.v1 import control_pb2 as pb
from dlsched.rpc.v1.control_pb2_grpc import ControlServicer, add_ControlServicer_to_server

STREAMS = {"Queue", "History", "Wait", "Logs", "Snapshot"}
METHODS = [name for name in vars(ControlServicer) if name[0].isupper()]


class Called(NamedTuple):
    """What came of a call."""

    code: int
    out: str
    err: str


@pytest.fixture
def dlsched(capfd, monkeypatch) -> Callable[..., Called]:
    """Call `dlsched` with some words; both streams are pipes."""

    def call(*words: object) -> Called:
        monkeypatch.setattr("sys.argv", ["dlsched", *map(str, words)])
        with pytest.raises(SystemExit) as stop:
            run()
        out, err = capfd.readouterr()
        return Called(int(stop.value.code or 0), out, err)

    return call


@pytest.fixture
def trace(tmp_path):
    """Five jobs: the second blocks, so that policies differ."""
    path = tmp_path / "tiny.csv"
    path.write_text(
        "job_id,submit_time,num_gpus,duration,user,vc\n"
        "a,0,3,100,ann,red\n"
        "b,10,4,100,bob,red\n"
        "c,20,1,50.5,ann,blue\n"
        "d,30,1,10,bob,blue\n"
        "e,300,4,10,ann,red\n"
    )
    return path


class Refusal(Exception):
    """What the daemon answers instead: a code and its line."""

    def __init__(self, code: grpc.StatusCode, line: str) -> None:
        super().__init__(line)
        self.code, self.line = code, line


class Scripted:
    """Answers by method: a message, a list of them, a refusal, or a function of the request."""

    def __init__(self) -> None:
        self.answers: dict[str, Any] = {}
        self.asked: list[tuple[str, Any]] = []
        self.metadata: list[dict[str, str]] = []
        self.address = ""

    def request(self, method: str) -> Any:
        """The only request of a method."""
        (found,) = [request for name, request in self.asked if name == method]
        return found

    def answer(self, method: str, request: Any, context: Any) -> Any:
        """Look up, and note."""
        self.asked.append((method, request))
        self.metadata.append(dict(context.invocation_metadata()))
        found = self.answers[method]
        try:
            if isinstance(found, list) and found and found[0] is NEXT:
                found = found.pop(1)
            found = found(request) if callable(found) else found
            if isinstance(found, Refusal):
                raise found
        except Refusal as refusal:
            context.abort(refusal.code, refusal.line)
        return found


NEXT = object()  # heads a list of answers, one a call


def servicer(script: Scripted) -> ControlServicer:
    def unary(name: str) -> Callable[..., Any]:
        return lambda self, request, context: script.answer(name, request, context)

    def stream(name: str) -> Callable[..., Any]:
        def serve(self: Any, request: Any, context: Any) -> Iterator[Any]:
            for each in script.answer(name, request, context):
                if isinstance(each, Refusal):
                    context.abort(each.code, each.line)
                yield each

        return serve

    made = {name: (stream if name in STREAMS else unary)(name) for name in METHODS}
    return type("ScriptedControl", (ControlServicer,), made)()


@pytest.fixture(scope="session")
def served() -> Iterator[Scripted]:
    script = Scripted()
    server = grpc.server(futures.ThreadPoolExecutor(max_workers=4))
    add_ControlServicer_to_server(servicer(script), server)
    script.address = f"127.0.0.1:{server.add_insecure_port('127.0.0.1:0')}"
    server.start()
    yield script
    server.stop(None).wait()


@pytest.fixture
def control(served: Scripted, monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> Scripted:
    """The scripted daemon, found by every verb of the test."""
    served.answers, served.asked, served.metadata = {}, [], []
    monkeypatch.setenv("DLSCHED_DAEMON", served.address)
    monkeypatch.setenv("DLSCHED_INSECURE_LOOPBACK", "1")
    monkeypatch.setenv("DLSCHED_DAEMON_WAIT", "2s")
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.setenv("TZ", "UTC")
    monkeypatch.delenv("DLSCHED_JOB_ID", raising=False)
    return served


@pytest.fixture
def refusal() -> type[Refusal]:
    return Refusal


@pytest.fixture
def one_a_call() -> Callable[..., list[Any]]:
    """Answers of which each call gets the next."""
    return lambda *answers: [NEXT, *answers]


def view(job: int = 11151, **fields: Any) -> pb.JobView:
    """A job as the daemon tells it; `submitted_at` is 2026-11-21 06:25:40 UTC."""
    known = {
        "name": "resnet50",
        "user": "alice",
        "vc": "research",
        "state": "RUNNING",
        "gpus": 8,
        "submitted_at": 1795242340.0,
    }
    return pb.JobView(job=job, **(known | fields))


@pytest.fixture
def job_view() -> Callable[..., pb.JobView]:
    return view
