"""What is bounded of notices: how many wait, how often one is tried, and what they cost."""

from __future__ import annotations

import asyncio
import http.server
import threading
from pathlib import Path

import pytest

from dlsched.core.errors import BadInput
from dlsched.daemon.site_rules.webhook_urls import is_allowed, read_url
from dlsched.rpc.v1 import control_pb2 as c

from .cluster_of_tests import Caller, Running, eventually, job, settings_of


async def _told(caller: Caller, number: int) -> list[tuple[str, str]]:
    events = (await caller.show(number)).events
    return [(e.kind, e.text) for e in events if e.kind in ("notified", "not-notified")]


@pytest.fixture
def closed() -> str:
    """A URL at which nothing listens."""
    server = http.server.HTTPServer(("127.0.0.1", 0), http.server.BaseHTTPRequestHandler)
    server.server_close()
    return f"http://127.0.0.1:{server.server_port}/"


def test_notices_beyond_the_bound_are_dropped_oldest_first(tmp_path: Path, closed: str) -> None:
    async def scene() -> None:
        site = {"url": closed, "waiting": 2, "retries": 100}
        async with Running(settings_of(tmp_path, notifications=site)) as running:
            caller = running.caller()
            jobs = await caller.submit(*(job(held=True, notify="end") for _ in range(5)))
            await caller.act(c.ACTION_CANCEL, *jobs)
            store = running.daemon.driver.store
            await eventually(lambda: store.due_notices(0.0, 1).waiting == 2)
            for number in jobs[:3]:
                [(kind, text)] = await eventually(lambda number=number: _told(caller, number))
                assert (kind, text) == (
                    "not-notified",
                    "end: too many notices wait for their delivery",
                )
            assert [n.job for n in store.oldest_notices(9)] == jobs[3:]

    asyncio.run(scene())


def test_a_notice_that_no_receiver_takes_is_given_up(tmp_path: Path, closed: str) -> None:
    async def scene() -> None:
        site = {"url": closed, "retries": 0}
        async with Running(settings_of(tmp_path, notifications=site)) as running:
            caller = running.caller()
            [number] = await caller.submit(job(held=True, notify="end"))
            await caller.act(c.ACTION_CANCEL, number)
            [(kind, text)] = await eventually(lambda: _told(caller, number))
            assert kind == "not-notified"
            assert text.startswith(f"end: {closed.rstrip('/')}: ConnectionRefusedError")
            assert running.daemon.driver.store.due_notices(0.0, 1).waiting == 0

    asyncio.run(scene())


def test_a_receiver_that_hangs_holds_up_no_call_of_a_user(tmp_path: Path) -> None:
    released = threading.Event()

    class Hanging(http.server.BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            released.wait(60)

        def log_message(self, format: str, *args: object) -> None:
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Hanging)
    threading.Thread(target=server.serve_forever).start()
    try:

        async def scene() -> None:
            site = {"url": f"http://127.0.0.1:{server.server_port}/", "timeout_s": 100}
            async with Running(settings_of(tmp_path, notifications=site)) as running:
                caller = running.caller()
                jobs = await caller.submit(*(job(held=True, notify="end") for _ in range(20)))
                await caller.act(c.ACTION_CANCEL, *jobs)
                assert await caller.state(jobs[-1]) == "CANCELLED"
                assert running.daemon.driver.store.due_notices(0.0, 1).waiting == 20
                released.set()

        asyncio.run(scene())
    finally:
        released.set()
        server.shutdown()
        server.server_close()


async def _transactions(folder: Path, notify: str) -> int:
    """How many transactions a job takes that is cancelled and, if it asks for it, told of."""
    folder.mkdir()
    command = {"command": ["/bin/true"]}
    settings = settings_of(folder, notifications=command, round={"interval_s": 3600})
    async with Running(settings) as running:
        caller, driver = running.caller(), running.daemon.driver
        [number] = await caller.submit(job(held=True, notify=notify))
        before = driver.transactions
        await caller.act(c.ACTION_CANCEL, number)
        if notify:
            told = [("notified", "end: the site's command")]
            assert await eventually(lambda: _told(caller, number)) == told
        return driver.transactions - before


def test_a_notice_adds_one_transaction_and_none_is_added_without(tmp_path: Path) -> None:
    silent = asyncio.run(_transactions(tmp_path / "silent", ""))
    assert asyncio.run(_transactions(tmp_path / "told", "end")) <= silent + 1


@pytest.mark.parametrize(
    ("text", "allowed", "expected"),
    [
        ("https://a.org/hooks/x", "https://a.org/hooks/", True),
        ("https://a.org/hooks/x?y=1", "https://a.org/hooks", True),
        ("https://A.org:443/hooks", "https://a.org/hooks", True),
        ("https://a.org/hooksx", "https://a.org/hooks", False),
        ("http://a.org/hooks/x", "https://a.org/hooks", False),
        ("https://a.org:8443/hooks/x", "https://a.org/hooks", False),
        ("https://a.org.evil.net/hooks/x", "https://a.org/hooks", False),
        ("http://[::1]/x", "http://[::1]/", True),
    ],
)
def test_a_url_is_allowed_by_scheme_host_port_and_path(
    text: str, allowed: str, expected: bool
) -> None:
    assert is_allowed(read_url(text), [read_url(allowed)]) is expected


@pytest.mark.parametrize(
    "text",
    [
        *(
            "",
            "a.org",
            "//a.org/x",
            "ftp://a.org/",
            "http:///x",
            "http://u@a.org/",
            "http://a.org/#x",
        ),
        *("http://a.org/a/%2E%2E/b", "http://a.org/a\\..\\b", "http://a.org/ b", "http://a.org:x/"),
        *("http://a.org/\r\nHost: b", "http://ä.org/", "http://a.org/a%2F..%2Fb"),
    ],
)
def test_what_is_not_a_plain_url_is_refused(text: str) -> None:
    with pytest.raises(BadInput):
        read_url(text)
