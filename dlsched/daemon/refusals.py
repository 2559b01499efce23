"""What the daemon says no with: one line each, and the status code that carries it.

The line is shown to the user unchanged, so it says what, which and why.
"""

from __future__ import annotations

import functools
import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any, TypeVar

import grpc

from dlsched.core.errors import BadInput, DlschedError, NotAllowed, Unavailable
from dlsched.db.errors import StoreUnavailable

log = logging.getLogger("dlsched.daemon")
F = TypeVar("F", bound=Callable[..., Any])


class Refused(DlschedError):
    """What was asked for cannot be."""


class NotFound(DlschedError):
    """There is no such job, run or node."""


class Conflict(DlschedError):
    """A request id that stands for something else."""


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
    (Refused, grpc.StatusCode.FAILED_PRECONDITION),
    (DlschedError, grpc.StatusCode.FAILED_PRECONDITION),
)


def code_of(error: DlschedError) -> grpc.StatusCode:
    """The status that carries an error."""
    return next(code for kind, code in CODES if isinstance(error, kind))


def answered(handler: Callable[..., Awaitable[Any]]) -> Callable[..., Awaitable[Any]]:
    """A handler whose errors reach the caller as one line; a defect is logged, not shown."""

    @functools.wraps(handler)
    async def wrapped(self: Any, request: Any, context: Any) -> Any:
        try:
            return await handler(self, request, context)
        except DlschedError as error:
            await context.abort(code_of(error), str(error))
        except (grpc.aio.AbortError, grpc.aio.BaseError):
            raise
        except Exception:
            log.exception("event=defect rpc=%s", handler.__name__)
            await context.abort(grpc.StatusCode.INTERNAL, "the daemon failed here; see its log")

    return wrapped


def streamed(
    handler: Callable[..., AsyncIterator[Any]],
) -> Callable[..., AsyncIterator[Any]]:
    """As `answered`, for a handler that streams."""

    @functools.wraps(handler)
    async def wrapped(self: Any, request: Any, context: Any) -> AsyncIterator[Any]:
        try:
            async for message in handler(self, request, context):
                yield message
        except DlschedError as error:
            await context.abort(code_of(error), str(error))
        except (grpc.aio.AbortError, grpc.aio.BaseError):
            raise
        except Exception:
            log.exception("event=defect rpc=%s", handler.__name__)
            await context.abort(grpc.StatusCode.INTERNAL, "the daemon failed here; see its log")

    return wrapped
