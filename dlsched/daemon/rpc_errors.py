"""Errors of requests: one line each, and the gRPC status code that carries it.

The line is shown to the user unchanged, so it says what is wrong and why.
"""

from __future__ import annotations

import functools
import logging
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from contextlib import aclosing, asynccontextmanager
from typing import TypeVar

import grpc

from dlsched.core.errors import BadInput, DlschedError, NotAllowed, Unavailable
from dlsched.db.errors import StoreUnavailable
from dlsched.rpc.endpoint import NOT_TAKEN
from dlsched.rpc.identity import Call

log = logging.getLogger("dlsched.daemon")
Service = TypeVar("Service")
Request = TypeVar("Request")
Reply = TypeVar("Reply")


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
async def _reported(name: str, context: Call) -> AsyncIterator[None]:
    """Report errors to the caller as one line; a defect is logged and not shown."""
    try:
        yield
    except DlschedError as error:
        mark = ((NOT_TAKEN, "yes"),) if isinstance(error, NotTaken) else ()
        await context.abort(code_of(error), str(error), trailing_metadata=mark)
    except (grpc.aio.AbortError, grpc.aio.BaseError):
        raise
    except Exception:
        log.exception("event=defect rpc=%s", name)
        await context.abort(grpc.StatusCode.INTERNAL, "the daemon failed here; see its log")


def answered(
    handler: Callable[[Service, Request, Call], Awaitable[Reply]],
) -> Callable[[Service, Request, Call], Awaitable[Reply]]:
    """Wrap a handler: its errors reach the caller as one line."""

    @functools.wraps(handler)
    async def wrapped(self: Service, request: Request, context: Call) -> Reply:
        async with _reported(handler.__name__, context):
            return await handler(self, request, context)

    return wrapped


def streamed(
    handler: Callable[[Service, Request, Call], AsyncGenerator[Reply]],
) -> Callable[[Service, Request, Call], AsyncIterator[Reply]]:
    """Wrap a handler that streams: its errors reach the caller as one line."""

    @functools.wraps(handler)
    async def wrapped(self: Service, request: Request, context: Call) -> AsyncIterator[Reply]:
        messages = handler(self, request, context)
        async with _reported(handler.__name__, context), aclosing(messages):
            async for message in messages:
                yield message

    return wrapped
