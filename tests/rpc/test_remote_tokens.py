"""Tokens of users at a distance: stored hashed, refused once expired or revoked."""

from __future__ import annotations

import asyncio
import hashlib
import time
from collections.abc import Awaitable, Coroutine, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import grpc
import pytest
from grpc import aio

from dlsched.core.errors import BadInput, NotTrusted
from dlsched.rpc.channels import ClientTrust, open_channel
from dlsched.rpc.identity import Identity
from dlsched.rpc.server import ServerTrust
from dlsched.rpc.tls import KeyFiles
from dlsched.rpc.tokens import TokenRecord, check_remote, new_remote
from dlsched.rpc.v1 import control_pb2, control_pb2_grpc

NOW = 1_800_000_000.0


class Store:
    """Records in memory."""

    def __init__(self) -> None:
        self.records: dict[str, TokenRecord] = {}

    async def add_token(self, record: TokenRecord) -> None:
        self.records[record.token_id] = record

    async def find_token(self, token_id: str) -> TokenRecord | None:
        return self.records.get(token_id)

    async def list_tokens(self, user: str | None) -> Sequence[TokenRecord]:
        return [each for each in self.records.values() if user in (None, each.user)]

    async def revoke_token(self, token_id: str, at: float) -> bool:
        self.records[token_id] = replace(self.records[token_id], revoked_at=at)
        return True


def run(work: Coroutine[Any, Any, Any]) -> Any:
    return asyncio.run(asyncio.wait_for(work, 20))


async def refused(call: Awaitable[Any]) -> tuple[grpc.StatusCode, str]:
    with pytest.raises(aio.AioRpcError) as caught:
        await call
    return caught.value.code(), caught.value.details() or ""


def test_only_a_digest_is_kept() -> None:
    made = new_remote("ann", lifetime_s=60, now=NOW, comment="laptop")
    assert made.record.digest == hashlib.sha256(made.token.encode()).hexdigest()
    assert made.token not in repr(made.record)
    assert made.record.expires_at == NOW + 60
    assert new_remote("ann", lifetime_s=60, now=NOW).token != made.token


@pytest.mark.parametrize("life", [0.0, -1.0, float("nan")])
def test_a_token_without_a_life_is_not_made(life: float) -> None:
    with pytest.raises(BadInput):
        new_remote("ann", lifetime_s=life, now=NOW)


def test_what_is_refused_and_how() -> None:
    async def work() -> None:
        store = Store()
        made = new_remote("ann", lifetime_s=60, now=NOW)
        name = made.record.token_id
        with pytest.raises(NotTrusted, match="the token is not known here"):
            await check_remote(made.token, store, NOW)
        await store.add_token(made.record)
        assert (await check_remote(made.token, store, NOW)).user == "ann"
        with pytest.raises(NotTrusted, match=f"token {name} has expired"):
            await check_remote(made.token, store, NOW + 60)
        for wrong in (made.token[:-1], made.token + "x", f"dr1.{name}.", f"dr1.{name}"):
            with pytest.raises(NotTrusted, match="the token is not known here"):
                await check_remote(wrong, store, NOW)
        for wrong in ("", "x", "dr2.a.b", "dr1." + "x" * 5000):
            with pytest.raises(NotTrusted, match="the token is malformed"):
                await check_remote(wrong, store, NOW)
        await store.revoke_token(name, NOW)
        with pytest.raises(NotTrusted, match=f"token {name} has been revoked"):
            await check_remote(made.token, store, NOW)

    run(work())


def status(channel: aio.Channel) -> Awaitable[Any]:
    return control_pb2_grpc.ControlStub(channel).Status(control_pb2.StatusRequest(), timeout=5)


def test_a_user_at_a_distance_over_tls(
    serving: Any, daemon_files: KeyFiles, tmp_path: Path, account: tuple[str, int]
) -> None:
    """Without a certificate of one's own; revoked on an open connection, refused at once."""
    name, uid = account

    async def work() -> None:
        store = Store()
        made = new_remote(name, lifetime_s=60, now=time.time())
        await store.add_token(made.record)
        file = tmp_path / "token"
        file.touch(mode=0o600)
        file.write_text(made.token + "\n")
        trust = ServerTrust(files=daemon_files, remote=store)
        async with serving(trust, "users:127.0.0.1:0", "127.0.0.1:0") as served:
            mine = ClientTrust.token(daemon_files.ca, file)
            async with open_channel(served.target, mine) as channel:
                await status(channel)
                assert served.seen == [Identity(kind="user", name=name, uid=uid, via="token")]
                await store.revoke_token(made.record.token_id, time.time())
                assert await refused(status(channel)) == (
                    grpc.StatusCode.UNAUTHENTICATED,
                    f"token {made.record.token_id} has been revoked",
                )
            file.chmod(0o644)
            async with open_channel(served.target, mine) as channel:
                with pytest.raises(NotTrusted, match="can be read by others"):
                    await status(channel)

    run(work())


def test_root_is_never_reached_by_a_token(
    serving: Any, daemon_files: KeyFiles, tmp_path: Path
) -> None:
    async def work() -> None:
        store = Store()
        made = new_remote("root", lifetime_s=60, now=time.time())
        await store.add_token(made.record)
        file = tmp_path / "token"
        file.touch(mode=0o600)
        file.write_text(made.token)
        trust = ServerTrust(files=daemon_files, remote=store, operators=frozenset({"root"}))
        async with serving(trust, "users:127.0.0.1:0") as served:
            mine = ClientTrust.token(daemon_files.ca, file)
            async with open_channel(served.target, mine) as channel:
                code, why = await refused(status(channel))
        assert code is grpc.StatusCode.UNAUTHENTICATED
        assert why == "root cannot use dlsched with a remote token"

    run(work())
