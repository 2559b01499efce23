"""A cluster's certificates, and real servers to try them on."""

# ruff: noqa: N802  methods of the services
from __future__ import annotations

import os
import pwd
import tempfile
import time
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from grpc import aio

from dlsched.rpc.authorisation import RULES, Rule, require_owner
from dlsched.rpc.authority import LIFE_S, Authority
from dlsched.rpc.identity import DAEMON, Identity, Role, identity_of, node, operator
from dlsched.rpc.server import ServerTrust, add_ports, new_server
from dlsched.rpc.tls import KeyFiles
from dlsched.rpc.v1 import control_pb2, control_pb2_grpc, node_pb2, node_pb2_grpc


@dataclass
class Certificates:
    """An authority whose certificates lie in one folder."""

    folder: Path
    authority: Authority
    name: str = "ca"

    @classmethod
    def make(cls, folder: Path, name: str = "ca") -> Certificates:
        made = Authority.create("test", now=time.time())
        (folder / f"{name}.crt").write_bytes(made.certificate)
        return cls(folder, Authority(made.certificate, made.key), name)

    def files(
        self, role: Role, *, now: float | None = None, life_s: float = LIFE_S, suffix: str = ""
    ) -> KeyFiles:
        """A certificate of a role, as files."""
        issued = self.authority.issue(role, now=time.time() if now is None else now, life_s=life_s)
        base = self.folder / (str(role).replace("/", "-") + suffix + "-" + self.name)
        files = KeyFiles(
            ca=self.folder / f"{self.name}.crt",
            certificate=base.with_suffix(".crt"),
            key=base.with_suffix(".key"),
        )
        files.certificate.write_bytes(issued.certificate)
        files.key.touch(mode=0o600)
        files.key.write_bytes(issued.key)
        return files


@pytest.fixture(scope="session")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    return Certificates.make(tmp_path_factory.mktemp("certificates"))


@pytest.fixture(scope="session")
def daemon_files(certificates: Certificates) -> KeyFiles:
    return certificates.files(DAEMON)


@pytest.fixture(scope="session")
def n1_files(certificates: Certificates) -> KeyFiles:
    return certificates.files(node("n1"))


@pytest.fixture(scope="session")
def operator_files(certificates: Certificates) -> KeyFiles:
    return certificates.files(operator("olga"))


class Control(control_pb2_grpc.ControlServicer):  # type: ignore[misc]  # generated
    """Says which user called; job 1 is ann's."""

    def __init__(self, seen: list[Identity]) -> None:
        self.seen = seen

    async def Status(self, request: Any, context: Any) -> Any:
        self.seen.append(identity_of(context))
        return control_pb2.StatusReply(leader=str(identity_of(context)))

    async def SetPolicy(self, request: Any, context: Any) -> Any:
        self.seen.append(identity_of(context))
        return control_pb2.SetPolicyReply()

    async def Queue(self, request: Any, context: Any) -> AsyncIterator[Any]:
        self.seen.append(identity_of(context))
        for _ in range(3):
            yield control_pb2.QueuePage()

    async def Logs(self, request: Any, context: Any) -> None:
        self.seen.append(identity_of(context))
        await context.write(control_pb2.LogChunk(data=b"x" * 10))

    async def Act(self, request: Any, context: Any) -> Any:
        reply = control_pb2.ActReply()
        for job in request.filter.jobs:
            require_owner(identity_of(context), "ann", f"job {job}")
            reply.done.append(str(job))
        return reply

    async def Submit(self, request: Any, context: Any) -> Any:
        return control_pb2.SubmitReply()


class Leader(node_pb2_grpc.LeaderServicer):  # type: ignore[misc]  # generated
    """Says which node spoke."""

    def __init__(self, seen: list[Identity]) -> None:
        self.seen = seen

    async def Sync(self, request: Any, context: Any) -> Any:
        self.seen.append(identity_of(context))
        return node_pb2.Reply(node=request.node)


class Agent(node_pb2_grpc.AgentServicer):  # type: ignore[misc]  # generated
    """Answers nudges and questions of other agents."""

    async def Nudge(self, request: Any, context: Any) -> Any:
        return node_pb2.NudgeReply()

    async def Witness(self, request: Any, context: Any) -> Any:
        return node_pb2.WitnessAnswer(nonce=request.nonce)


@dataclass
class Served:
    """A running server and what its handlers saw."""

    ports: list[int]
    seen: list[Identity] = field(default_factory=list)

    @property
    def target(self) -> str:
        return f"127.0.0.1:{self.ports[0]}"


@asynccontextmanager
async def _serving(
    trust: ServerTrust, *listen: str, rules: Mapping[str, Rule] = RULES
) -> AsyncIterator[Served]:
    """All services on some addresses."""
    server: aio.Server = new_server(trust, rules=rules)
    seen: list[Identity] = []
    control_pb2_grpc.add_ControlServicer_to_server(Control(seen), server)
    node_pb2_grpc.add_LeaderServicer_to_server(Leader(seen), server)
    node_pb2_grpc.add_AgentServicer_to_server(Agent(), server)
    ports = add_ports(server, listen or ("127.0.0.1:0",), trust)
    await server.start()
    try:
        yield Served(ports, seen)
    finally:
        await server.stop(0)


Serving = Callable[..., AbstractAsyncContextManager[Served]]


@pytest.fixture(scope="session")
def serving() -> Serving:
    """`async with serving(trust, *listen) as served`."""
    return _serving


@contextmanager
def _open_folder() -> Iterator[Path]:
    """A folder that every user can reach; pytest closes its own to others whenever it starts."""
    with tempfile.TemporaryDirectory(prefix="dlsched-") as name:
        folder = Path(name)
        folder.chmod(0o755)
        yield folder


@pytest.fixture
def place() -> Iterator[Path]:
    """Where every user can go and only its owner writes to."""
    with _open_folder() as folder:
        yield folder


@pytest.fixture(scope="module")
def shared_place() -> Iterator[Path]:
    """The same, for all tests of a module."""
    with _open_folder() as folder:
        yield folder


def _accounts() -> list[tuple[str, int]]:
    """Accounts of this machine that are neither root's nor of user nobody nor the tests' own."""
    kept = {0, 65534, os.geteuid()}
    return [(each.pw_name, each.pw_uid) for each in pwd.getpwall() if each.pw_uid not in kept]


@pytest.fixture(scope="session")
def account() -> tuple[str, int]:
    """A user."""
    if not _accounts():
        pytest.skip("this machine has no further account")
    return _accounts()[0]


@pytest.fixture(scope="session")
def other_account() -> tuple[str, int]:
    """Another one."""
    if len(_accounts()) < 2:
        pytest.skip("this machine has no two further accounts")
    return _accounts()[1]
