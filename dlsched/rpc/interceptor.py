"""The interceptor of a server: what happens to a call before its handler sees it.

In this order: the caller is identified and the method's rule is applied, from the transport alone;
then the message is received, its bytes and elements are counted, and only then is it decoded.

Invariant: before its caller is known, no more of a call's message is received than the window of
gRPC's flow control, and nothing is decoded. So every method is served as one with a stream of
requests, which on the wire is the same: only such a method is called before a message is there.
Where more messages follow, each is counted and decoded by itself, when the handler asks for it.

A call holds its places until its answer is on its way, so that answers which are not read do not
pile up. A client that is stopped answers no keepalive, so its connection is closed.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import aclosing
from inspect import isawaitable
from typing import Any, NoReturn

import grpc
from google.protobuf.message import DecodeError, Message
from grpc import aio

from dlsched.core.errors import BadInput, NotTrusted
from dlsched.rpc import request_bounds as bounds
from dlsched.rpc.authentication import Authenticator
from dlsched.rpc.authorisation import RULES, Rule
from dlsched.rpc.connection_limits import ConnectionLimits
from dlsched.rpc.identity import Call, Identity, remember
from dlsched.rpc.wire_scan import scan

log = logging.getLogger(__name__)
CODE = grpc.StatusCode
Decode = Callable[[bytes], Message]  # `FromString` of a type of messages
REFUSAL_LINES = 10  # of the log in a second


class _Refused(Exception):
    """A call that goes no further; the status and the line that its caller gets."""

    def __init__(self, code: grpc.StatusCode, why: str) -> None:
        super().__init__(why)
        self.code = code


class _RefusalLog:
    """A line for each refused call, but few in a second: no caller can fill the disk with them."""

    def __init__(self) -> None:
        self._second, self._lines, self._left_out = 0, 0, 0

    def note(self, method: str, peer: str, why: _Refused) -> None:
        """Log a refused call, or count it."""
        second = int(time.monotonic())
        if second != self._second:
            if self._left_out:
                log.warning("further-calls-refused count=%d", self._left_out)
            self._second, self._lines, self._left_out = second, 0, 0
        if self._lines == REFUSAL_LINES:
            self._left_out += 1
            return
        self._lines += 1
        log.warning("call-refused method=%s peer=%s why=%s", method, peer, why)


class _Calls:
    """The calls of one caller that are under way, and what they share."""

    def __init__(self, caller: Identity) -> None:
        self.caller = caller
        self.count = 0
        self.undecoded = asyncio.Semaphore(bounds.UNDECODED_OF_ONE)  # places for large messages
        self._working: dict[str, asyncio.Semaphore] = {}

    def working(self, method: str) -> asyncio.Semaphore:
        """Places for calls of a method that work; a call waits until one is free."""
        places = self._working.get(method)
        if places is None:
            places = self._working[method] = asyncio.Semaphore(bounds.WORKING_OF_ONE)
        return places


class _Call:
    """A call that was let in, and what it holds."""

    __slots__ = ("calls", "places", "request", "works")

    def __init__(self, calls: _Calls) -> None:
        self.calls = calls  # of its caller
        self.places: list[asyncio.Semaphore] = []  # for its message
        self.works: asyncio.Semaphore | None = None  # the place that it has while it works
        self.request: object = None

    async def take(self, place: asyncio.Semaphore) -> None:
        """Wait for a place for its message, and hold it."""
        await place.acquire()
        self.places.append(place)

    async def take_turn(self, places: asyncio.Semaphore) -> None:
        """Wait until it may work."""
        await places.acquire()
        self.works = places

    def forget_message(self) -> None:
        """Let other messages have the places of this one, which is not held any more."""
        self.request = None
        while self.places:
            self.places.pop().release()

    def give_back(self) -> None:
        """Let other calls have all places that this one holds."""
        self.forget_message()
        if self.works is not None:
            self.works.release()
            self.works = None


class CallInterceptor(aio.ServerInterceptor):  # type: ignore[misc]  # grpc has no types
    """Stands in front of every handler of a server."""

    def __init__(
        self,
        authenticator: Authenticator,
        rules: Mapping[str, Rule] = RULES,
        connections: ConnectionLimits | None = None,
    ) -> None:
        """Store the means of authentication, the rules, and where connections are counted."""
        self._authenticator = authenticator
        self._connections = connections
        self._rules = rules
        self._guarded: dict[str, tuple[grpc.RpcMethodHandler, grpc.RpcMethodHandler]] = {}
        # places for large messages: of users, and of all others
        self._undecoded = {kind: asyncio.Semaphore(bounds.UNDECODED) for kind in (True, False)}
        self._calls: dict[Identity, _Calls] = {}
        self._refusals = _RefusalLog()
        self._decoders = ThreadPoolExecutor(2, thread_name_prefix="dlsched-decoder")

    async def intercept_service(
        self,
        continuation: Callable[[grpc.HandlerCallDetails], Awaitable[grpc.RpcMethodHandler]],
        handler_call_details: grpc.HandlerCallDetails,
    ) -> grpc.RpcMethodHandler:
        """The method's handler, behind the interceptor."""
        method = handler_call_details.method
        handler = await continuation(handler_call_details)
        if handler is None:
            return None  # unknown; gRPC answers so
        return self.guarded(method, handler)

    def guarded(self, method: str, handler: grpc.RpcMethodHandler) -> grpc.RpcMethodHandler:
        """A method's handler behind the interceptor."""
        held = self._guarded.get(method)
        if held is None or held[0] is not handler:
            held = self._guarded[method] = (handler, self._guard(method, handler))
        return held[1]

    def _guard(self, method: str, handler: grpc.RpcMethodHandler) -> grpc.RpcMethodHandler:
        decode = handler.request_deserializer
        inner = handler.stream_stream or handler.unary_stream or handler.unary_unary
        if inner is None:
            raise TypeError(f"{method}: a stream of requests with one answer is not served")

        async def one(requests: AsyncIterator[bytes], context: Call) -> object:
            call = await self._let_in(method, requests, context, decode)
            context.add_done_callback(lambda _: self._let_out(call))
            await _closed(requests)
            try:
                return await inner(call.request, context)
            finally:
                call.forget_message()

        async def many(requests: AsyncIterator[bytes], context: Call) -> AsyncIterator[object]:
            call = await self._let_in(method, requests, context, decode)
            try:
                request = call.request
                call.forget_message()  # others do not wait for as long as it answers
                if handler.request_streaming:
                    request = self._every(method, request, requests, decode)
                else:
                    await _closed(requests)
                answers = inner(request, context)
                if isawaitable(answers):  # it writes its answers itself
                    await answers
                    return
                try:
                    async with aclosing(answers):
                        async for answer in answers:
                            yield answer
                except _Refused as refused:  # a further message
                    await self._refuse(method, context, refused)
            finally:
                self._let_out(call)

        serializer = {"response_serializer": handler.response_serializer}
        if handler.response_streaming:
            return grpc.stream_stream_rpc_method_handler(many, **serializer)
        return grpc.stream_unary_rpc_method_handler(one, **serializer)

    async def _every(
        self, method: str, first: object, requests: AsyncIterator[bytes], decode: Decode
    ) -> AsyncIterator[object]:
        """The first request of a call, and those that follow."""
        yield first
        async for raw in requests:
            refused = too_large(method, len(raw))
            if refused is not None:
                raise refused
            yield await self._decoded(raw, decode)

    async def _let_in(
        self, method: str, requests: AsyncIterator[bytes], context: Call, decode: Decode
    ) -> _Call:
        """Admit a call with its request; `_let_out` is to follow.

        Context managers would need fewer lines, but every sync of every node would pay for them.

        Args:
            method: its full name.
            requests: its messages as bytes; the first is awaited when the caller may call.
            context: of the call.
            decode: makes the request of the bytes.
        """
        try:
            rule, caller = await self._caller(method, context)
            call = self._counted(caller)
        except _Refused as refused:
            await self._refuse(method, context, refused)
        try:
            call.request = await self._request(method, rule, call, requests, decode)
            remember(context, caller)
            if caller.kind == "user" and not caller.is_operator and not bounds.is_lasting(method):
                await call.take_turn(call.calls.working(method))
        except _Refused as refused:
            self._let_out(call)
            await self._refuse(method, context, refused)
        except BaseException:
            self._let_out(call)
            raise
        return call

    def _counted(self, caller: Identity) -> _Call:
        """A call, counted among those of its caller until it is let out."""
        calls = self._calls.get(caller)
        if calls is None:
            calls = self._calls[caller] = _Calls(caller)
        if calls.count >= bounds.CALLS_OF_ONE:
            why = f"{caller} has {bounds.CALLS_OF_ONE} calls under way, which is the most"
            raise _Refused(CODE.RESOURCE_EXHAUSTED, why)
        calls.count += 1
        return _Call(calls)

    def _let_out(self, call: _Call) -> None:
        """Let others have what a call holds that has ended."""
        call.give_back()
        call.calls.count -= 1
        if not call.calls.count:
            del self._calls[call.calls.caller]

    async def _request(
        self,
        method: str,
        rule: Rule,
        call: _Call,
        requests: AsyncIterator[bytes],
        decode: Decode,
    ) -> Message:
        """Receive and decode a call's request; with a large one it keeps its places."""
        caller = call.calls.caller
        await call.take(call.calls.undecoded)
        raw = await _received(method, requests)
        if len(raw) > bounds.SMALL:  # a place of all is for bytes that are there
            await call.take(self._undecoded[caller.kind == "user"])
        request = await self._decoded(raw, decode)
        if (other := rule.misspoken(caller, request)) is not None:
            raise _Refused(CODE.PERMISSION_DENIED, other)
        if len(raw) <= bounds.SMALL:
            call.forget_message()
        return request

    async def _caller(self, method: str, context: Call) -> tuple[Rule, Identity]:
        """The method's rule, and the caller, when it may call it."""
        rule = self._rules.get(method)
        if rule is None:
            raise _Refused(CODE.PERMISSION_DENIED, f"{method} has no authorisation rule")
        try:
            caller = await self._authenticator.identify(context)
        except NotTrusted as error:
            raise _Refused(CODE.UNAUTHENTICATED, str(error)) from None
        if self._connections is not None:
            self._connections.note(context.peer(), caller)
        why = rule.refusal(caller, method)
        if why is not None:
            raise _Refused(CODE.PERMISSION_DENIED, why)
        return rule, caller

    async def _decoded(self, raw: bytes, decode: Decode) -> Message:
        """The request; a large one is counted and decoded in a thread."""
        try:
            if len(raw) <= bounds.SMALL:
                return _decode(raw, decode)
            loop = asyncio.get_running_loop()
            return await loop.run_in_executor(self._decoders, _decode, raw, decode)
        except BadInput as error:
            raise _Refused(CODE.INVALID_ARGUMENT, str(error)) from None

    async def _refuse(self, method: str, context: Call, refused: _Refused) -> NoReturn:
        """End a call with one line, for its caller and for the log."""
        self._refusals.note(method, context.peer(), refused)
        try:
            await context.abort(refused.code, str(refused))
        except aio.AbortError:
            raise
        except Exception:  # its caller has left, or gRPC itself has refused the message
            raise asyncio.CancelledError from None
        raise AssertionError  # `abort` has raised


async def _received(method: str, requests: AsyncIterator[bytes]) -> bytes:
    """The bytes of a request."""
    try:
        async with asyncio.timeout(bounds.ARRIVAL_S):
            raw = await anext(requests)
    except StopAsyncIteration:
        raise _Refused(CODE.INVALID_ARGUMENT, f"{method}: there is no message") from None
    except TimeoutError:
        why = f"{method}: the message did not arrive within {bounds.ARRIVAL_S:g} s"
        raise _Refused(CODE.DEADLINE_EXCEEDED, why) from None
    refused = too_large(method, len(raw))
    if refused is not None:
        raise refused
    return raw


async def _closed(requests: AsyncIterator[bytes]) -> None:
    """Read no more: gRPC's reader, a cycle, would keep the bytes until the next collection."""
    reader: Any = aiter(requests)  # a generator, of gRPC or of a local call
    await reader.aclose()


def too_large(method: str, size: int) -> Exception | None:
    """The refusal of a message of so many bytes; None: it may come."""
    most = bounds.byte_bound(method)
    if size <= most:
        return None
    return _Refused(CODE.RESOURCE_EXHAUSTED, f"{method}: {size} bytes, at most {most}")


def _decode(raw: bytes, decode: Decode) -> Message:
    """Count the elements of a message and decode it.

    Raises:
        BadInput: it has too many of something, or is malformed.
    """
    kind: type[Message] = decode.__self__  # type: ignore[attr-defined]  # the message type of `FromString`
    scan(raw, kind.DESCRIPTOR, bounds.element_bound, bounds.VALUES)
    try:
        return decode(raw)
    except DecodeError:
        raise BadInput(f"not a {kind.DESCRIPTOR.name}") from None
