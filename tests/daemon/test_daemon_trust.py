"""The daemon's own certificate: renewed while it runs, and a problem before it expires."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path
from typing import Any

import pytest

from dlsched.core.errors import NotAllowed
from dlsched.daemon.nodes.agents import Agents
from dlsched.daemon.settings import TrustSection
from dlsched.daemon.trust import DaemonTrust, check_may_run
from dlsched.protocol.messages import NodeName
from dlsched.rpc.certificate_folder import CertificateFolder
from dlsched.rpc.identity import DAEMON, Identity
from dlsched.rpc.v1 import node_pb2

DAY = 86400.0


def trusted(folder: Path, *, days: float = 365, ago: float = 0) -> tuple[Any, DaemonTrust]:
    made = CertificateFolder(folder)
    now = time.time() - ago * DAY
    made.create("test", now=now)
    made.issue(DAEMON, now=now, life_s=days * DAY)
    return made, DaemonTrust(TrustSection(folder=str(folder / "tls")), insecure=False)


def test_a_renewed_certificate_opens_channels_anew(tmp_path: Path) -> None:
    made, trust = trusted(tmp_path)
    opened: list[str] = []

    def open_channel(address: str, name: str) -> Any:
        opened.append(f"{name} at {address}")
        return trust.open_channel(address, name)

    async def work() -> None:
        agents = Agents(open_channel, trust.stamp)
        facts = node_pb2.NodeFacts(address="127.0.0.1:1")
        agents.describe(node_pb2.NodeDescription(node="n1", facts=facts))
        for _ in range(3):
            assert agents.stub(NodeName("n1")) is not None
        assert opened == ["n1 at 127.0.0.1:1"]
        made.renew(DAEMON, now=time.time())
        assert agents.stub(NodeName("n1")) is not None
        assert len(opened) == 2
        await agents.close()

    asyncio.run(work())


@pytest.mark.parametrize(
    ("ago", "said"),
    [(0, None), (300, None), (340, "expires on"), (400, "has expired on")],
)
def test_a_certificate_that_expires_soon_is_a_problem(
    tmp_path: Path, ago: float, said: str | None
) -> None:
    _, trust = trusted(tmp_path, ago=ago)
    told = trust.problem()
    assert (told is None) if said is None else (said in str(told))


def test_a_certificate_that_cannot_be_read_is_a_problem(tmp_path: Path) -> None:
    _, trust = trusted(tmp_path)
    (tmp_path / "tls" / "daemon.crt").unlink()
    assert "cannot be read" in str(trust.problem())
    assert DaemonTrust(TrustSection(), insecure=True).problem() is None


@pytest.mark.parametrize(
    ("uid", "via", "allowed", "fine"),
    [
        (1000, "local", False, True),
        (0, "local", False, False),
        (0, "local", True, True),
        (0, "claimed", False, True),
    ],
)
def test_roots_jobs_need_a_setting(uid: int, via: str, allowed: bool, fine: bool) -> None:
    caller = Identity(kind="user", name="someone", uid=uid, via=via)
    section = TrustSection(root_jobs=allowed)
    if fine:
        check_may_run(caller, section)
        return
    with pytest.raises(NotAllowed, match="root's jobs are not run here"):
        check_may_run(caller, section)
