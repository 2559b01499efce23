"""Users whose names are not ASCII, or have a sign that the metadata of a call gives a meaning."""

from __future__ import annotations

import asyncio
from pathlib import Path

import grpc
import pytest

from dlsched.rpc.identity import claimed_name, user_claim
from dlsched.rpc.v1 import control_pb2 as c

from .cluster_of_tests import Running, job, settings_of

NAMES = ["jörg", "Ελένη", "安娜", "a%41b", "DOMAIN\\ann", "ann"]


@pytest.mark.parametrize("name", NAMES)
def test_a_name_is_claimed_in_ascii_and_read_as_it_is(name: str) -> None:
    claim = user_claim(name, 1001)
    assert all(value.isascii() for _, value in claim)
    assert claimed_name(dict(claim)) == name


@pytest.mark.parametrize("name", NAMES[:2])
def test_a_user_whose_name_is_not_ascii_has_every_call(tmp_path: Path, name: str) -> None:
    async def scene() -> None:
        async with Running(settings_of(tmp_path)) as running:
            caller = running.caller(name)
            [number] = await caller.submit(job(held=True))
            [mine], _, _ = await caller.queue(users=[name])
            assert (mine.job, mine.user) == (number, name)
            wanted = c.Filter(jobs=[number])
            waiting = caller.control.Wait(c.WaitRequest(filter=wanted), timeout=60)
            await caller.act(c.ACTION_CANCEL, number)
            states = [end.job.state async for end in waiting]
            assert states[-1:] == ["CANCELLED"]
            history = caller.control.History(c.HistoryRequest(filter=c.Filter()), timeout=60)
            assert [view.user async for page in history for view in page.jobs] == [name]
            logs = caller.control.Logs(c.LogsRequest(job=number), timeout=60)
            with pytest.raises(grpc.aio.AioRpcError) as raised:
                assert [chunk async for chunk in logs] == []
            assert raised.value.details() == f"job {number} has not run yet"

    asyncio.run(scene())
