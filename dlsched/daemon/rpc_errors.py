"""Errors of requests: one line each, and the gRPC status code that carries it.

The line is shown to the user unchanged, so it says what is wrong and why.
"""

from __future__ import annotations

import functools
import logging
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from contextlib import aclosing, asynccontextmanager
from typing import Any

import grpc

from dlsched.core.errors import BadInput, DlschedError, NotAllowed, Unavailable
from dlsched.db.errors import StoreUnavailable
from dlsched.rpc.endpoint import NOT_TAKEN

log = logging.getLogger("dlsched.daemon")


class NotPossible(DlschedError):
    """What was asked for is not possible in the present state."""


class NotFound(DlschedError):
    """There is no such job, run or node."""


class Conflict(DlschedError):
    """A request id was used before, for another request."""


class NotTaken(Unavailable):
    """Nothing was done, because this daemon does not lead or cannot store; another daemon may."""


class TooMuch(DlschedError):
    """A bound of the cluster's configuration is reached."""


CODES: tuple[tuple[type[DlschedError], grpc.StatusCode], ...] = (
    (NotFound, grpc.StatusCode.NOT_FOUND),
    (NotAllowed, grpc.StatusCode.PERMISSION_DENIED),
    (Unavailable, grpc.StatusCode.UNAVAILABLE),
    (StoreUnavailable, grpc.StatusCode.UNAVAILABLE),
    (Conflict, grpc.StatusCode.ALREADY_EXISTS),
    (TooMuch, grpc.StatusCode.RESOURCE_EXHAUSTED),
    (BadInput, grpc.StatusCode.INVALID_ARGUMENT),
    (NotPossible, grpc.StatusCode.FAILED_PRECONDITION),
    (DlschedError, grpc.StatusCode.FAILED_PRECONDITION),
)


def code_of(error: DlschedError) -> grpc.StatusCode:
    """The gRPC status code that carries an error."""
    return next(code for kind, code in CODES if isinstance(error, kind))


@asynccontextmanager
async def _reported(handler: Callable[..., Any], context: Any) -> AsyncIterator[None]:
    """Report errors to the caller as one line; a defect is logged and not shown."""
    try:
        yield
    except DlschedError as error:
        mark = ((NOT_TAKEN, "yes"),) if isinstance(error, NotTaken) else ()
        await context.abort(code_of(error), str(error), trailing_metadata=mark)
    except (grpc.aio.AbortError, grpc.aio.BaseError):
        raise
    except Exception:
        log.exception("event=defect rpc=%s", handler.__name__)
        await context.abort(grpc.StatusCode.INTERNAL, "the daemon failed here; see its log")


def answered(handler: Callable[..., Awaitable[Any]]) -> Callable[..., Awaitable[Any]]:
    """Wrap a handler: its errors reach the caller as one line."""

    @functools.wraps(handler)
    async def wrapped(self: Any, request: Any, context: Any) -> Any:
        async with _reported(handler, context):
            return await handler(self, request, context)

    return wrapped


def streamed(
    handler: Callable[..., AsyncGenerator[Any]],
) -> Callable[..., AsyncIterator[Any]]:
    """Wrap a handler that streams: its errors reach the caller as one line."""

    @functools.wraps(handler)
    async def wrapped(self: Any, request: Any, context: Any) -> AsyncIterator[Any]:
        messages = handler(self, request, context)
        async with _reported(handler, context), aclosing(messages):
            async for message in messages:
                yield message

    return wrapped
