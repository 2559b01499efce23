"""Calls on a unix socket without gRPC: for clients on this machine, whose start must be short.

The same interceptor stands before the same handlers as on the gRPC ports: the caller is known from
the kernel's peer credentials, then the rule is applied, then the announced size is checked, and
only then is the message read, counted and decoded.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
from collections.abc import AsyncIterator, Callable, Mapping
from inspect import isasyncgen
from pathlib import Path

import grpc
from grpc import aio

from dlsched.core.errors import Unavailable
from dlsched.rpc import request_bounds as bounds
from dlsched.rpc.endpoint import NOT_TAKEN
from dlsched.rpc.interceptor import CallInterceptor, too_large
from dlsched.rpc.local_frames import (
    END,
    HEAD,
    MARK,
    MESSAGE,
    REFUSED,
    frame_of,
    refusal_body,
)
from dlsched.rpc.login import take_path
from dlsched.rpc.peer_credentials import peer_uid
from dlsched.rpc.unix_server import serve_unix

log = logging.getLogger(__name__)
BUFFER_BYTES = 64 * bounds.KIB  # of a message, before its caller is known


class LocalCalls:
    """Serves a service's methods on a unix socket; add a servicer as to a gRPC server."""

    def __init__(self, path: Path, interceptor: CallInterceptor, *, mode: int = 0o666) -> None:
        """Serve on `path`, behind `interceptor`; only trusted users can write to its folder."""
        self.path = path
        self._interceptor = interceptor
        self._mode = mode
        self._methods: dict[
            str, tuple[str, grpc.RpcMethodHandler]
        ] = {}  # by short name: full name, handler
        self._server: asyncio.Server | None = None
        self._under_way: set[asyncio.Task[None]] = set()

    def add_generic_rpc_handlers(self, _handlers: object) -> None:
        """Generated code calls this, too; the registered handlers are enough."""

    def add_registered_method_handlers(
        self, service: str, handlers: Mapping[str, grpc.RpcMethodHandler]
    ) -> None:
        """Take the handlers of a service."""
        for name, handler in handlers.items():
            method = f"/{service}/{name}"
            self._methods[name] = (method, self._interceptor.guarded(method, handler))

    async def start(self) -> None:
        """Listen.

        Raises:
            Unavailable: the socket cannot be created, or another process uses it.
        """
        take_path(self.path)
        try:
            self._server = await serve_unix(
                self._serve, self.path, mode=self._mode, limit=BUFFER_BYTES
            )
        except OSError as error:
            raise Unavailable(f"cannot listen on {self.path}: {error.strerror or error}") from None

    async def stop(self, grace_s: float = 0.0) -> None:
        """Close and remove the socket; calls under way get some time."""
        if self._server is None:
            return
        self._server.close()
        if self._under_way:
            await asyncio.wait(self._under_way, timeout=grace_s)
        for task in tuple(self._under_way):
            task.cancel()
        await asyncio.gather(*self._under_way, return_exceptions=True)
        self._server = None
        with contextlib.suppress(FileNotFoundError):
            os.unlink(self.path)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._under_way.add(task)
        try:
            async with asyncio.timeout(bounds.ARRIVAL_S):
                mark, length, size = HEAD.unpack(await reader.readexactly(HEAD.size))
                if mark != MARK:
                    return
                name = (await reader.readexactly(length)).decode("ascii", "replace")
            await self._one(name, size, reader, writer)
            await writer.drain()
        except (ConnectionError, asyncio.IncompleteReadError, TimeoutError):
            pass  # the client has left, or never spoke
        except asyncio.CancelledError:
            pass  # the daemon stops
        finally:
            self._under_way.discard(task)
            writer.close()

    async def _one(
        self, name: str, size: int, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        """Answer one call."""
        call = LocalCall(peer_uid(writer.get_extra_info("socket")))
        found = self._methods.get(name)
        if found is None:
            text = "not a method of this daemon"
            writer.write(frame_of(REFUSED, refusal_body("UNIMPLEMENTED", text, not_taken=True)))
            return
        method, guarded = found
        received = asyncio.Event()
        requests = _message(method, size, reader, received)
        working = asyncio.ensure_future(_answer(guarded, requests, call, writer))
        leaving = asyncio.ensure_future(_left(reader, received))
        try:
            await asyncio.wait((working, leaving), return_when=asyncio.FIRST_COMPLETED)
        finally:
            leaving.cancel()
            if not working.done():
                working.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await working


class LocalCall:
    """What handler and interceptor know of a call; as gRPC's context, as far as it is used."""

    def __init__(self, uid: int) -> None:
        """A call of the user at the other end of the socket."""
        self.peer_uid = uid
        self.refusal = ("UNKNOWN", "", False)
        self._at_its_end: list[Callable[[LocalCall], None]] = []

    def add_done_callback(self, callback: Callable[[LocalCall], None]) -> None:
        """Call this when the answer has been taken, or is not sent."""
        self._at_its_end.append(callback)

    def end(self) -> None:
        """Call what waits for the end of the call."""
        for callback in self._at_its_end:
            callback(self)

    def peer(self) -> str:
        """The other end, as gRPC names it."""
        return "unix:"

    async def abort(
        self,
        code: grpc.StatusCode,
        details: str = "",
        trailing_metadata: tuple[tuple[str, str], ...] = (),
    ) -> None:
        """End the call with one line."""
        not_taken = any(key == NOT_TAKEN for key, _ in trailing_metadata)
        self.refusal = (code.name, details, not_taken)
        raise aio.AbortError


async def _message(
    method: str, size: int, reader: asyncio.StreamReader, received: asyncio.Event
) -> AsyncIterator[bytes]:
    """The one message of a call, once it is asked for."""
    refused = too_large(method, size)
    if refused is not None:
        raise refused
    raw = await reader.readexactly(size)
    received.set()
    yield raw


async def _left(reader: asyncio.StreamReader, received: asyncio.Event) -> None:
    """Wait until the client closes its end, after its message."""
    await received.wait()
    with contextlib.suppress(ConnectionError):
        await reader.read(1)


async def _answer(
    guarded: grpc.RpcMethodHandler,
    requests: AsyncIterator[bytes],
    call: LocalCall,
    writer: asyncio.StreamWriter,
) -> None:
    packed = guarded.response_serializer
    try:
        if guarded.response_streaming:
            answers = guarded.stream_stream(requests, call)
            async with contextlib.aclosing(answers):
                async for answer in answers:
                    writer.write(frame_of(MESSAGE, packed(answer)))
                    await _taken(writer)
        else:
            writer.write(frame_of(MESSAGE, packed(await guarded.stream_unary(requests, call))))
            await _taken(writer)
        writer.write(frame_of(END))
    except aio.AbortError:
        code, text, not_taken = call.refusal
        writer.write(frame_of(REFUSED, refusal_body(code, text, not_taken=not_taken)))
    except (ConnectionError, asyncio.IncompleteReadError):
        pass  # the client has left
    except Exception:
        log.exception("event=defect")
        text = "the daemon failed here; see its log"
        writer.write(frame_of(REFUSED, refusal_body("INTERNAL", text, not_taken=False)))
    finally:
        call.end()
        if isasyncgen(requests):
            await requests.aclose()


async def _taken(writer: asyncio.StreamWriter) -> None:
    """Wait until the client has taken most of what was sent.

    Raises:
        ConnectionError: it takes nothing, so the connection is closed and nothing kept for it.
    """
    try:
        async with asyncio.timeout(bounds.TAKEN_S):
            await writer.drain()
    except TimeoutError:
        writer.transport.abort()
        raise ConnectionError from None
