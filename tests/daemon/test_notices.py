"""What is bounded of notices: how many wait, how often one is tried, and what they cost."""

from __future__ import annotations

import asyncio
import http.server
import json
import threading
from pathlib import Path

import pytest

from dlsched.core.errors import BadInput
from dlsched.daemon.notifying.message import message
from dlsched.daemon.notifying.receivers import check_receivers, receivers
from dlsched.daemon.settings import NotificationsSection
from dlsched.daemon.site_rules.webhook_urls import is_allowed, read_url
from dlsched.rpc.v1 import control_pb2 as c
from dlsched.system.own_domain import own_domain

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
            await eventually(lambda: store.due_notices(0.0, 1).waiting == {"ann": 2})
            for number in jobs[:3]:
                [(kind, text)] = await eventually(lambda number=number: _told(caller, number))
                assert (kind, text) == (
                    "not-notified",
                    "end: too many notices wait for their delivery",
                )
            assert [n.job for n in store.oldest_notices("ann", 9)] == jobs[3:]

    asyncio.run(scene())


def test_one_user_s_notices_keep_no_other_user_s_waiting(tmp_path: Path) -> None:
    """One user has more of them than may wait; another one's is told first and is not dropped."""
    told, released = list[str](), threading.Event()

    class Counting(http.server.BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            content = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            released.wait(60)
            told.append(content["user"])
            self.send_response(200)
            self.end_headers()

        def log_message(self, format: str, *args: object) -> None:
            pass

    async def scene(port: int) -> None:
        site = {"url": f"http://127.0.0.1:{port}/", "waiting_per_user": 150, "timeout_s": 100}
        async with Running(settings_of(tmp_path, notifications=site)) as running:
            bob, ann = running.caller("bob", 1002), running.caller("ann", 1001)
            many = await bob.submit(*(job(held=True, notify="end") for _ in range(300)))
            await bob.act(c.ACTION_CANCEL, *many)
            [mine] = await ann.submit(job(held=True, notify="end"))
            await ann.act(c.ACTION_CANCEL, mine)
            released.set()
            [(kind, _)] = await eventually(lambda: _told(ann, mine))
            assert kind == "notified"
            store = running.daemon.driver.store
            await eventually(lambda: store.due_notices(0.0, 1).waiting == {})

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Counting)
    threading.Thread(target=server.serve_forever).start()
    try:
        asyncio.run(scene(server.server_port))
    finally:
        released.set()
        server.shutdown()
        server.server_close()
    # those of one page were being told already; hers is the second one of the next page at most
    assert told.index("ann") <= 101
    assert told.count("bob") <= 250


def test_what_happens_to_many_elements_is_told_once(tmp_path: Path, closed: str) -> None:
    async def scene() -> None:
        site = {"url": closed, "retries": 100}
        async with Running(settings_of(tmp_path, notifications=site)) as running:
            caller, store = running.caller(), running.daemon.driver.store
            [array] = await caller.submit(
                job(held=True, notify="all,array_tasks", array="0-499", name="many")
            )
            await caller.act(c.ACTION_CANCEL, array)
            waiting = await eventually(lambda: store.oldest_notices("ann", 999))
            assert len(waiting) < 10  # one for each transaction
            assert sum(each.elements for each in waiting) == 500
            stored = {each.job.job: each for each in store.jobs([array])}
            line = message(waiting[0], stored[array], "here")["text"]
            assert (
                line == f"{waiting[0].elements} elements of array {array} (many) ended: CANCELLED"
            )

    asyncio.run(scene())


def test_a_reload_that_takes_the_mail_away_meanwhile_ends_no_delivery(tmp_path: Path) -> None:
    """The settings that named a receiver are those by which it is told."""
    hung, mailed = tmp_path / "hung", tmp_path / "mailed"
    program = tmp_path / "mail"
    program.write_text(
        f"#!/bin/sh\ntouch {hung}\nwhile [ -e {hung} ]; do sleep 0.05; done\necho >> {mailed}\n"
    )
    program.chmod(0o700)

    async def scene() -> None:
        site = {"mail_command": [str(program), "{to}"], "timeout_s": 60}
        async with Running(settings_of(tmp_path, notifications=site)) as running:
            caller, cluster = running.caller(), running.daemon.cluster
            jobs = await caller.submit(job(held=True, notify="end"), job(held=True, notify="end"))
            await caller.act(c.ACTION_CANCEL, *jobs)
            await eventually(hung.exists)
            without = NotificationsSection()
            cluster.settings = cluster.settings.model_copy(update={"notifications": without})
            hung.unlink()
            await eventually(lambda: hung.exists() or mailed.exists())
            await eventually(lambda: [hung.unlink(missing_ok=True), len(told())][1] == 2)
            for number in jobs:
                [(kind, _)] = await eventually(lambda number=number: _told(caller, number))
                assert kind == "notified"

    def told() -> list[str]:
        return mailed.read_text().splitlines() if mailed.exists() else []

    asyncio.run(scene())


@pytest.mark.parametrize(
    ("domains", "own", "address", "allowed"),
    [
        ((), "example.org", "ann", True),
        ((), "example.org", "ann@EXAMPLE.org", True),
        ((), "example.org", "ann@example.com", False),
        ((), "", "ann@example.com", False),
        ((), "", "ann", True),
        (("a.org", "b.org"), "example.org", "ann@b.org", True),
        (("a.org",), "example.org", "ann@example.org", False),
        (("*",), "", "ann@example.com", True),
    ],
)
def test_without_a_word_of_the_operator_mail_stays_in_the_site_s_own_domain(
    monkeypatch: pytest.MonkeyPatch,
    domains: tuple[str, ...],
    own: str,
    address: str,
    allowed: bool,
) -> None:
    monkeypatch.setattr("dlsched.daemon.notifying.receivers.own_domain", lambda: own)
    site = NotificationsSection(mail_command=("/usr/bin/mail", "{to}"), mail_domains=domains)
    found = [each.to for each in receivers(site, user="ann", addresses=address)]
    assert found == ([address] if allowed else [])
    if allowed:
        check_receivers(site, "", address)
    else:
        with pytest.raises(BadInput, match="this site mails to"):
            check_receivers(site, "", address)


@pytest.mark.parametrize(
    ("name", "resolver", "domain"),
    [
        ("head.Cluster.example", "search other.org\n", "cluster.example"),
        ("head", "# x\nnameserver 10.0.0.1\nsearch example.org b.org\n", "example.org"),
        ("head", "search .\n", ""),
        ("head", "nameserver 10.0.0.1\n", ""),
        ("head", None, ""),
    ],
)
def test_a_machine_s_own_domain_is_that_of_its_name_or_its_resolver(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    name: str,
    resolver: str | None,
    domain: str,
) -> None:
    monkeypatch.setattr("dlsched.system.own_domain.socket.gethostname", lambda: name)
    path = tmp_path / "resolv.conf"
    if resolver is not None:
        path.write_text(resolver)
    assert own_domain(path) == domain


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
            assert running.daemon.driver.store.due_notices(0.0, 1).waiting == {}

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
                assert running.daemon.driver.store.due_notices(0.0, 1).waiting == {"ann": 20}
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
