"""Calls whose channel may be closed under them by their own side.

gRPC tells that to whoever waits as asyncio's own cancellation: the waiting task would end without
a word, as if somebody had cancelled it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from typing import TypeVar

from grpc.aio import UsageError

from dlsched.core.errors import DlschedError

__all__ = ["HungUp", "answer"]

T = TypeVar("T")


class HungUp(DlschedError):
    """This side closed the channel before the answer came."""


async def answer(call: Awaitable[T]) -> T:
    """What a call answers; a cancellation of the waiting task itself stays one.

    Raises:
        HungUp: when the channel was closed meanwhile.
        AioRpcError: as the call does.
    """
    try:
        return await call
    except asyncio.CancelledError:
        task = asyncio.current_task()
        if task is not None and task.cancelling():
            raise
        raise HungUp("the channel was closed before the answer came") from None
    except UsageError as error:
        raise HungUp(f"the channel was closed before the call: {error}") from None
