"""What happens to a call before its handler: its caller, how much is received, what is decoded."""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import AsyncIterator, Coroutine, Iterator
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager, suppress
from types import SimpleNamespace
from typing import Any

import grpc
import pytest
from grpc import aio

from dlsched.rpc import interceptor, request_bounds
from dlsched.rpc.authorisation import RULES
from dlsched.rpc.channels import ClientTrust, open_channel
from dlsched.rpc.identity import DAEMON, Role, node
from dlsched.rpc.server import ServerTrust, add_ports, new_server
from dlsched.rpc.v1 import control_pb2

OPEN = ServerTrust(insecure_loopback=True, operators=frozenset({"olga"}))
SUBMIT = "/dlsched.v1.Control/Submit"
SHOW = "/dlsched.v1.Control/Show"
ATTACH = "/dlsched.v1.Control/Attach"
WAIT = "/dlsched.v1.Control/Wait"
CALL_S = 20


def run(work: Coroutine[Any, Any, Any]) -> Any:
    return asyncio.run(asyncio.wait_for(work, 60))


class Decoder:
    """Decodes as the message type does, and counts how often."""

    DESCRIPTOR = control_pb2.SubmitRequest.DESCRIPTOR
    calls = 0

    @classmethod
    def decode(cls, raw: bytes) -> Any:
        cls.calls += 1
        return control_pb2.SubmitRequest.FromString(raw)


class Everything(grpc.GenericRpcHandler):  # type: ignore[misc]  # grpc has no types
    """Serves every method, with a handler that waits until it may go on."""

    def __init__(self) -> None:
        self.go = asyncio.Event()
        self.go.set()
        self.inside = 0
        self.size = 0  # bytes of an answer; 0: as the request says
        self.first_letters: Counter[str] = Counter()  # of the requests inside

    def service(self, details: Any) -> Any:
        if details.method == ATTACH:
            return grpc.stream_stream_rpc_method_handler(self._echo, Decoder.decode)
        if "Watch" in details.method or details.method == WAIT:
            return grpc.unary_stream_rpc_method_handler(self._pages, Decoder.decode)
        return grpc.unary_unary_rpc_method_handler(self._answer, Decoder.decode)

    async def _answer(self, request: Any, context: Any) -> bytes:
        self.inside += 1
        self.first_letters[request.request_id[:1]] += 1
        await self.go.wait()
        if self.size:
            return bytes(self.size)
        return request.request_id.encode() or b"-"

    async def _echo(self, requests: AsyncIterator[Any], context: Any) -> AsyncIterator[bytes]:
        async for request in requests:
            yield await self._answer(request, context)

    async def _pages(self, request: Any, context: Any) -> AsyncIterator[bytes]:
        yield await self._answer(request, context)


class Wire:
    """A way to a server that counts the bytes which go there."""

    def __init__(self, port: int) -> None:
        self._port = port
        self.straight = f"127.0.0.1:{port}"
        self.to_server = 0
        self.answers = asyncio.Event()  # they pass
        self.answers.set()

    async def connect(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        there, back = await asyncio.open_connection("127.0.0.1", self._port)
        pumps = self._pump(reader, back, True), self._pump(there, writer, False)
        with suppress(asyncio.CancelledError):  # the loop ends; asyncio would log it
            await asyncio.gather(*pumps)

    async def _pump(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, forth: bool
    ) -> None:
        try:
            while data := await reader.read(1 << 16):
                self.to_server += len(data) * forth
                if not forth:
                    await self.answers.wait()
                writer.write(data)
                await writer.drain()
        except (OSError, asyncio.CancelledError):
            pass
        finally:
            writer.close()


@asynccontextmanager
async def served() -> AsyncIterator[tuple[Everything, Wire, str]]:
    """A server with every method, the way to it, and the address of that way."""
    server, handlers = new_server(OPEN), Everything()
    server.add_generic_rpc_handlers((handlers,))
    wire = Wire(add_ports(server, ["127.0.0.1:0"], OPEN)[0])
    await server.start()
    between = await asyncio.start_server(wire.connect, "127.0.0.1", 0)
    try:
        yield handlers, wire, f"127.0.0.1:{between.sockets[0].getsockname()[1]}"
    finally:
        handlers.go.set()
        await server.stop(0)
        between.close()


def channel(target: str, name: str | Role | None) -> Any:
    """A channel of a user, of a role or of a stranger, which sends what it is told to send."""
    trust = ClientTrust(insecure_loopback=True)
    if isinstance(name, Role):
        trust = ClientTrust.claimed_role(name)
    elif name is not None:
        trust = ClientTrust.claimed_user(name, 1001)
    return open_channel(target, trust)


async def answer(open_: Any, raw: bytes, method: str = SUBMIT) -> tuple[grpc.StatusCode, str]:
    """The status and the line, or the answer, of a call with these bytes as its message."""
    try:
        if method == ATTACH:
            both = open_.stream_stream(method)(iter([raw]), timeout=CALL_S)
            return grpc.StatusCode.OK, (await anext(aiter(both))).decode()
        if "Watch" in method or method == WAIT:
            pages = [page async for page in open_.unary_stream(method)(raw, timeout=CALL_S)]
            return grpc.StatusCode.OK, pages[0].decode()
        return grpc.StatusCode.OK, (await open_.unary_unary(method)(raw, timeout=CALL_S)).decode()
    except aio.AioRpcError as error:
        return error.code(), error.details() or ""


@contextmanager
def counted() -> Iterator[type[Decoder]]:
    Decoder.calls = 0
    yield Decoder


@pytest.fixture
def decoder() -> Iterator[type[Decoder]]:
    with counted() as decoder:
        yield decoder


@pytest.mark.parametrize("size", [4 << 20, 31 << 20])
def test_of_a_stranger_one_window_is_received_and_nothing_decoded(
    decoder: type[Decoder], size: int
) -> None:
    async def work() -> None:
        async with served() as (handlers, wire, target), channel(target, None) as stranger:
            code, why = await answer(stranger, b"\x12\x00" * (size // 2))
            assert code is grpc.StatusCode.UNAUTHENTICATED, why
            assert wire.to_server < 200_000  # of 4 and of 31 MiB
            assert handlers.inside == decoder.calls == 0

    run(work())


def test_no_method_decodes_anything_of_a_stranger(
    decoder: type[Decoder], caplog: pytest.LogCaptureFixture
) -> None:
    async def work() -> None:
        async with served() as (handlers, _, target), channel(target, None) as stranger:
            for method in RULES:
                code, _ = await answer(stranger, b"\x12\x00", method)
                assert code is grpc.StatusCode.UNAUTHENTICATED
            assert handlers.inside == decoder.calls == 0

    run(work())
    assert not [record for record in caplog.records if record.exc_info]


def test_what_a_caller_may_not_call_is_not_received_either(decoder: type[Decoder]) -> None:
    async def work() -> None:
        async with served() as (handlers, wire, target):
            for name, method in (("ann", "SetPolicy"), (node("n1"), "Submit"), (DAEMON, "Act")):
                before = wire.to_server
                async with channel(target, name) as known:
                    whole = b"\x12\x00" * (1 << 20)
                    code, _ = await answer(known, whole, f"/dlsched.v1.Control/{method}")
                assert code is grpc.StatusCode.PERMISSION_DENIED
                assert wire.to_server - before < 200_000
            assert handlers.inside == decoder.calls == 0

    run(work())


def test_too_many_elements_are_refused_without_decoding(decoder: type[Decoder]) -> None:
    async def work() -> None:
        async with served() as (_, _, target), channel(target, "ann") as ann:
            code, why = await answer(ann, b"\x12\x00" * (2 << 20))
            assert code is grpc.StatusCode.INVALID_ARGUMENT
            assert why == "SubmitRequest.jobs: more than 20000 in one call"
            assert decoder.calls == 0
            assert (await answer(ann, b"\x0a\x01r" + b"\x12\x00" * 20_000))[1] == "r"
            assert decoder.calls == 1

    run(work())


def test_a_message_beyond_its_methods_bound_is_refused(decoder: type[Decoder]) -> None:
    async def work() -> None:
        async with served() as (_, _, target), channel(target, "ann") as ann:
            most = request_bounds.byte_bound("/dlsched.v1.Control/Queue")
            raw = b"\x0a\x80\x80\x80\x01" + b"x" * most
            code, why = await answer(ann, raw, "/dlsched.v1.Control/Queue")
            assert code is grpc.StatusCode.RESOURCE_EXHAUSTED
            assert why == f"/dlsched.v1.Control/Queue: {most + 5} bytes, at most {most}"
            assert decoder.calls == 0

    run(work())


def test_malformed_bytes_are_one_line_for_the_caller_and_for_the_log(
    decoder: type[Decoder], caplog: pytest.LogCaptureFixture
) -> None:
    async def work() -> None:
        async with served() as (_, _, target), channel(target, "ann") as ann:
            for method in (SUBMIT, "/grpc.health.v1.Health/Watch"):
                code, why = await answer(ann, b"\x0a\x05ab", method)
                assert code is grpc.StatusCode.INVALID_ARGUMENT
                assert why == "not a SubmitRequest: at byte 0: a length of 5 bytes, and 2 follow"
            assert decoder.calls == 0

    with caplog.at_level(logging.WARNING):
        run(work())
    mine = [record for record in caplog.records if record.name == interceptor.__name__]
    assert len(mine) == 2
    assert not [record for record in caplog.records if record.exc_info]


def test_many_refused_calls_are_few_lines_of_the_log(
    decoder: type[Decoder], caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    seconds = iter([*[7.0] * 50, 8.0])
    monkeypatch.setattr(interceptor, "time", SimpleNamespace(monotonic=lambda: next(seconds)))

    async def work() -> None:
        async with served() as (_, _, target), channel(target, "ann") as ann:
            for _ in range(51):
                await answer(ann, b"\x0a\x05ab")

    with caplog.at_level(logging.WARNING):
        run(work())
    said = [record.getMessage() for record in caplog.records if record.name == interceptor.__name__]
    assert [line.split()[0] for line in said].count("call-refused") == interceptor.REFUSAL_LINES + 1
    assert f"further-calls-refused count={50 - interceptor.REFUSAL_LINES}" in said


def test_of_one_caller_two_large_messages_are_held_and_others_are_served(
    decoder: type[Decoder],
) -> None:
    def large(letter: bytes) -> bytes:
        return b"\x0a\x80\x80\x40" + letter * (1 << 20)

    async def work() -> None:
        async with served() as (handlers, wire, target), channel(target, "ann") as ann:
            handlers.go.clear()
            calls = [asyncio.ensure_future(answer(ann, large(b"a"))) for _ in range(5)]
            while handlers.inside < 2:
                await asyncio.sleep(0)
            async with channel(target, "bob") as bob:  # not in ann's way
                others = [asyncio.ensure_future(answer(bob, large(b"b"))) for _ in range(2)]
                while handlers.first_letters["b"] < 2:
                    await asyncio.sleep(0)
                assert handlers.first_letters == {"a": 2, "b": 2}
                assert decoder.calls == 4
                assert wire.to_server < 5 << 20  # of 7 MiB
                handlers.go.set()
                for call in (*calls, *others):
                    assert (await call)[0] is grpc.StatusCode.OK

    run(work())


def test_messages_that_do_not_come_hold_up_no_other_user(
    decoder: type[Decoder], monkeypatch: pytest.MonkeyPatch
) -> None:
    received, waited_for = interceptor._received, 0

    def counted(*given: Any) -> Any:
        nonlocal waited_for
        waited_for += 1
        return received(*given)

    async def nothing() -> AsyncIterator[bytes]:
        await asyncio.Event().wait()
        yield b""

    async def work() -> None:
        slow = [f"slow{k}" for k in range(request_bounds.UNDECODED)]
        async with served() as (*_, target), AsyncExitStack() as stack:
            silent = []
            for name in slow:
                theirs = await stack.enter_async_context(channel(target, name))
                stream = theirs.stream_stream(SUBMIT)
                silent += [stream(nothing()) for _ in range(request_bounds.UNDECODED_OF_ONE)]
            while waited_for < len(silent):
                await asyncio.sleep(0)
            bob = await stack.enter_async_context(channel(target, "bob"))
            large = b"\x0a\x80\x80\x40" + b"b" * (1 << 20)
            assert (await answer(bob, large))[0] is grpc.StatusCode.OK
            for call in silent:
                call.cancel()

    monkeypatch.setattr(interceptor, "_received", counted)
    run(work())


def test_calls_that_last_hold_up_no_large_message(decoder: type[Decoder]) -> None:
    """Their messages are large, too."""

    async def work() -> None:
        async with served() as (handlers, _, target), channel(target, "ann") as ann:
            handlers.go.clear()
            waits = request_bounds.UNDECODED + 1
            large = named("w", request_bounds.SMALL)
            calls = [asyncio.ensure_future(answer(ann, large, WAIT)) for _ in range(waits)]
            while handlers.inside < waits:
                await asyncio.sleep(0)
            handlers.go.set()
            assert {code for code, *_ in await asyncio.gather(*calls)} == {grpc.StatusCode.OK}

    run(work())


def test_calls_of_one_user_take_turns_and_hold_up_no_other(decoder: type[Decoder]) -> None:
    """A user with many calls has a few that work; operators are trusted to know what they do."""
    few = request_bounds.WORKING_OF_ONE

    async def work() -> None:
        async with (
            served() as (handlers, _, target),
            channel(target, "ann") as ann,
            channel(target, "bob") as bob,
            channel(target, "olga") as olga,
        ):
            handlers.go.clear()
            calls = [asyncio.ensure_future(answer(ann, b"")) for _ in range(50)]
            while decoder.calls < 50:
                await asyncio.sleep(0)
            assert handlers.inside == few
            calls.append(asyncio.ensure_future(answer(bob, b"")))
            calls += [asyncio.ensure_future(answer(olga, b"")) for _ in range(2 * few)]
            while handlers.inside < few + 1 + 2 * few:
                await asyncio.sleep(0)
            handlers.go.set()
            assert {code for code, *_ in await asyncio.gather(*calls)} == {grpc.StatusCode.OK}
            assert handlers.inside == 50 + 1 + 2 * few

    run(work())


def test_answers_that_are_not_read_do_not_pile_up(decoder: type[Decoder]) -> None:
    """Calls beyond the few that work wait until their caller has read the answers before."""
    few = request_bounds.WORKING_OF_ONE
    size = 8 << 20  # the windows and buffers on the way hold one or two

    async def work() -> None:
        async with (
            served() as (handlers, wire, target),
            channel(target, "ann") as ann,
            channel(wire.straight, "bob") as bob,
        ):
            await answer(ann, b"")  # it is connected
            handlers.size, handlers.inside, decoder.calls = size, 0, 0
            wire.answers.clear()
            calls = [asyncio.ensure_future(answer(ann, b"")) for _ in range(4 * few)]
            while decoder.calls < 4 * few:
                await asyncio.sleep(0)
            for _ in range(3):
                assert (await answer(bob, b""))[0] is grpc.StatusCode.OK
            assert handlers.inside <= 2 * few + 3
            wire.answers.set()
            codes = {code for code, _ in await asyncio.gather(*calls)}
            assert codes == {grpc.StatusCode.OK}
            assert handlers.inside == 4 * few + 3

    run(work())


def test_one_caller_has_a_bounded_number_of_calls_at_a_time(
    decoder: type[Decoder], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(request_bounds, "CALLS_OF_ONE", 3)

    async def work() -> None:
        async with (
            served() as (handlers, _, target),
            channel(target, "ann") as ann,
            channel(target, "bob") as bob,
        ):
            handlers.go.clear()
            calls = [asyncio.ensure_future(answer(ann, b"")) for _ in range(3)]
            while handlers.inside < 3:
                await asyncio.sleep(0)
            code, why = await answer(ann, b"")
            assert code is grpc.StatusCode.RESOURCE_EXHAUSTED
            assert why == "ann has 3 calls under way, which is the most"
            other = asyncio.ensure_future(answer(bob, b""))
            while handlers.inside < 4:
                await asyncio.sleep(0)
            handlers.go.set()
            assert all(code is grpc.StatusCode.OK for code, _ in await asyncio.gather(*calls))
            await other
            assert (await answer(ann, b""))[0] is grpc.StatusCode.OK

    run(work())


def test_a_call_that_its_client_cancels_gives_its_place_back_at_once(
    decoder: type[Decoder], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its caller has as many calls as it may: some work, the others wait and are cancelled."""
    few = request_bounds.WORKING_OF_ONE
    monkeypatch.setattr(request_bounds, "CALLS_OF_ONE", few + 2)

    async def work() -> None:
        async with served() as (handlers, _, target), channel(target, "ann") as ann:
            handlers.go.clear()
            working = [asyncio.ensure_future(answer(ann, b"")) for _ in range(few)]
            while handlers.inside < few:
                await asyncio.sleep(0)
            waiting = [ann.unary_unary(SUBMIT)(b"", timeout=CALL_S) for _ in range(2)]
            while decoder.calls < few + 2:
                await asyncio.sleep(0)
            assert (await answer(ann, b"", SHOW))[0] is grpc.StatusCode.RESOURCE_EXHAUSTED
            for call in waiting:
                call.cancel()
            while handlers.inside == few:  # the server has not heard of it yet
                other = asyncio.ensure_future(answer(ann, b"", SHOW))
                while not other.done() and handlers.inside == few:
                    await asyncio.sleep(0)
            handlers.go.set()
            assert {code for code, _ in await asyncio.gather(*working, other)} == {
                grpc.StatusCode.OK
            }
            assert handlers.inside == few + 1, "no handler has seen what was cancelled"

    run(work())


def named(name: str, more: int = 0) -> bytes:
    """A message that the handler answers with its name, and so many bytes longer."""
    filler = control_pb2.EnvironmentVariable(name="x", value="x" * more)
    return control_pb2.SubmitRequest(request_id=name, environment=[filler]).SerializeToString()


@pytest.mark.parametrize(
    ("last", "code", "told"),
    [
        (named("c"), grpc.StatusCode.OK, ""),
        (named("c", 20_000), grpc.StatusCode.RESOURCE_EXHAUSTED, "bytes, at most 16384"),
        (b"\x12\xff", grpc.StatusCode.INVALID_ARGUMENT, "not a SubmitRequest"),
        (b"\x12\x00" * 7_000, grpc.StatusCode.OK, ""),
    ],
    ids=["good", "large", "malformed", "many"],
)
def test_each_message_of_a_call_with_many_is_bounded_by_itself(
    decoder: type[Decoder], last: bytes, code: grpc.StatusCode, told: str
) -> None:
    async def work() -> None:
        async with served() as (_, _, target), channel(target, "ann") as ann:
            call = ann.stream_stream(ATTACH)(timeout=CALL_S)
            await call.write(named("a"))
            assert await call.read() == b"a"
            await call.write(named("b"))
            assert await call.read() == b"b"
            assert decoder.calls == 2  # each when it came
            await call.write(last)
            await call.done_writing()
            assert (code is grpc.StatusCode.OK) == (await _rest(call) == 1)
            assert await call.code() is code
            assert told in (await call.details() or "")

    run(work())


async def _rest(call: Any) -> int:
    """How many more answers come."""
    try:
        return len([answer async for answer in call])
    except aio.AioRpcError:
        return 0
