"""Delivers notices: looks for those that are due, tells their receivers, and notes the outcome.

Only the leader delivers. Commands and calls run outside the event loop; receivers are told at the
same time, each of them in order. One that fails is left alone for a while, so that it delays no
other. A notice that a receiver has not taken after many tries is given up; its job's events say so.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
from collections import defaultdict
from collections.abc import Coroutine, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from dlsched.core.errors import DlschedError
from dlsched.daemon.cluster import Cluster
from dlsched.daemon.leader_driver import LedgerFollower
from dlsched.daemon.notifying.message import mail, message, tells_failure
from dlsched.daemon.notifying.receivers import Receiver, receivers
from dlsched.daemon.notifying.time_warnings import TimeWarnings, asking
from dlsched.daemon.notifying.webhook import post
from dlsched.daemon.settings import NotificationsSection
from dlsched.daemon.site_rules.webhook_urls import read_url
from dlsched.daemon.writer import TermBegun
from dlsched.db.notices import DueNotice, Notice, NoticeDelayed, NoticeSettled
from dlsched.db.reading.queries import StoredJob
from dlsched.db.records import Event
from dlsched.protocol.ledger import Changes
from dlsched.protocol.messages import JobId
from dlsched.system.clock import wall
from dlsched.system.command_path import PATH
from dlsched.system.site_commands import run_command

log = logging.getLogger("dlsched.daemon.notifying")
PAGE = 100  # notices in one pass
CALLS = 8  # of webhooks at the same time
TURN_S = 20.0  # after which a slow receiver leaves the rest of its notices to the next pass
FIRST_PAUSE_S = 5.0  # after a failure; then twice as long each time
LONGEST_PAUSE_S = 3600.0
CAUSE_WITHIN_S = 15.0  # a notice of a failure waits so long for what the outputs tell
CAUSE_LOOK_S = 0.5
LOOK_S = 60.0  # between two looks when nothing is known to be due


@dataclass(slots=True)
class _Tried:
    """What came of one notice in one pass."""

    due: DueNotice
    told: set[str]
    by: list[str] = field(default_factory=list)  # receivers, in words
    failed: dict[str, str] = field(default_factory=dict)  # receiver in words: why
    postponed: bool = False
    awaits_cause: bool = False
    waits: bool = False  # it, or one before it, awaits a cause


class Notifier(LedgerFollower):
    """Tells users of their jobs."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._wake = asyncio.Event()
        self._tasks: list[asyncio.Task[None]] = []
        self._calls = ThreadPoolExecutor(CALLS, thread_name_prefix="dlsched-webhook")
        self._failures: dict[str, tuple[int, float]] = {}  # of receivers: in a row, pause until
        self._unsaved: list[object] = []  # outcomes that the database does not have yet
        self._warnings = TimeWarnings(cluster)
        cluster.driver.follow(self)

    def start(self) -> None:
        """Begin."""
        self._tasks = [
            asyncio.create_task(self._deliver_for_ever(), name="notices"),
            asyncio.create_task(self._warnings.watch_for_ever(), name="time-warnings"),
        ]

    async def stop(self) -> None:
        """End; what is not noted as delivered is delivered again by the next leader."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._calls.shutdown(wait=False, cancel_futures=True)

    # -- following the ledger ----------------------------------------------------------------------

    def term_began(self, term: TermBegun) -> None:
        """Look for what an earlier leader has left."""
        self._warnings.term_began()
        self._wake.set()

    def committed(self, changed: set[JobId], changes: Changes) -> None:
        """Look for notices when a job changes whose user wants to be told."""
        wishes = asking(self._cluster, changed)
        if wishes or changes.of(Notice):
            self._wake.set()
        self._warnings.committed(changed, wishes)

    # -- delivering --------------------------------------------------------------------------------

    async def _deliver_for_ever(self) -> None:
        pause = LOOK_S
        while True:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._wake.wait(), pause)
            self._wake.clear()
            try:
                pause = await self.deliver()
            except DlschedError as error:  # the database is away, or the lead was lost
                log.warning("event=notices-not-delivered why=%r", str(error))
                pause = FIRST_PAUSE_S
            except Exception:
                log.exception("event=notices-defect")
                pause = LOOK_S

    async def deliver(self) -> float:
        """Deliver what is due; returns after how many seconds to look again."""
        driver = self._cluster.driver
        if not driver.leading or driver.store_down:
            return FIRST_PAUSE_S
        await self._save()
        now = wall()
        found = await driver.read(partial(driver.store.due_notices, now, PAGE))
        if surplus := self._too_many(found.waiting):
            await self._drop_oldest(*surplus)
            return 0.0
        if not found.due:
            return LOOK_S if found.next_at is None else min(max(found.next_at - now, 0.1), LOOK_S)
        wanted = {each.notice.job for each in found.due}
        jobs = {
            each.job.job: each for each in await driver.read(partial(driver.store.jobs, wanted))
        }
        tried = await self._try(found.due, jobs)
        self._unsaved += [row for each in tried for row in self._outcome(each)]
        await self._save()
        return CAUSE_LOOK_S if any(each.waits for each in tried) else 0.0

    async def _save(self) -> None:
        """Make outcomes durable; those that cannot be stored now are kept for the next pass."""
        if self._unsaved:
            rows = list(self._unsaved)
            await self._cluster.driver.attach(*rows)
            del self._unsaved[: len(rows)]

    def _too_many(self, waiting: Mapping[str, int]) -> tuple[str, int] | tuple[()]:
        """The user with the most notices and how many of them are too many; empty: none are."""
        site = self._cluster.settings.notifications
        user, most = max(waiting.items(), key=lambda each: each[1], default=("", 0))
        surplus = max(most - site.waiting_per_user, min(most, sum(waiting.values()) - site.waiting))
        return (user, surplus) if surplus > 0 else ()

    async def _drop_oldest(self, user: str, count: int) -> None:
        driver = self._cluster.driver
        some = await driver.read(partial(driver.store.oldest_notices, user, min(count, 1000)))
        log.error("event=notices-dropped user=%s count=%s why='too many wait'", user, len(some))
        why = "too many notices wait for their delivery"
        self._unsaved += [
            row for each in some for row in (NoticeSettled(key=each.key), _not_told(each, why))
        ]
        await self._save()

    async def _try(
        self, due: Iterable[DueNotice], jobs: dict[JobId, StoredJob]
    ) -> Sequence[_Tried]:
        """Tell the receivers of some notices, each receiver its own in order."""
        site, name = self._cluster.settings.notifications, self._cluster.settings.cluster.name
        tried: list[_Tried] = []
        turns: dict[Receiver, list[tuple[_Tried, dict[str, object]]]] = defaultdict(list)
        for each in due:
            outcome = _Tried(each, set(each.told))
            tried.append(outcome)
            stored = jobs.get(each.notice.job)
            spec = None if stored is None else stored.spec
            if stored is None or spec is None:
                continue
            content = message(each.notice, stored, name)
            awaits = not stored.cause and tells_failure(each.notice, stored)
            outcome.awaits_cause = awaits and wall() - each.notice.at < CAUSE_WITHIN_S
            body = spec.body
            for receiver in receivers(
                site, user=spec.user, url=body.notify_url, addresses=body.mail_user
            ):
                if receiver.key not in each.told:
                    turns[receiver].append((outcome, content))
        await _all(self._turn(site, receiver, some) for receiver, some in turns.items())
        return tried

    async def _turn(
        self,
        site: NotificationsSection,
        receiver: Receiver,
        some: list[tuple[_Tried, dict[str, object]]],
    ) -> None:
        """Tell one receiver its notices, until one fails or has to wait, or its time is over."""
        loop = asyncio.get_running_loop()
        until = loop.time() + TURN_S
        waits = False
        for outcome, content in some:
            waits = waits or outcome.awaits_cause
            outcome.waits = outcome.waits or waits
            failures, resting_until = self._failures.get(receiver.key, (0, 0.0))
            if waits or loop.time() > until or wall() < resting_until:
                outcome.postponed = True
                continue
            why = await self._tell(site, receiver, content)
            if not why:
                self._failures.pop(receiver.key, None)
                outcome.told.add(receiver.key)
                outcome.by.append(str(receiver))
                continue
            log.warning("event=not-told to=%r id=%s why=%r", str(receiver), content["id"], why)
            rests = min(FIRST_PAUSE_S * 2**failures, LONGEST_PAUSE_S)
            self._failures[receiver.key] = (min(failures + 1, 20), wall() + rests)
            outcome.failed[str(receiver)] = why
        while len(self._failures) > 1000:
            self._failures.pop(next(iter(self._failures)))

    async def _tell(
        self, site: NotificationsSection, receiver: Receiver, content: dict[str, Any]
    ) -> str:
        """Tell one receiver one notice; returns why it was not taken, empty if it was.

        Args:
            site: the settings that named the receiver; a reload may have changed them meanwhile.
            receiver: to tell.
            content: of the notice.
        """
        if receiver.kind == "url":
            call = partial(post, read_url(receiver.to), content, site.timeout_s)
            loop = asyncio.get_running_loop()
            try:
                return await asyncio.wait_for(
                    loop.run_in_executor(self._calls, call), 3 * site.timeout_s
                )
            except TimeoutError:
                return f"took longer than {3 * site.timeout_s:g} s"
        environment = {
            "PATH": PATH,
            "DLSCHED_NOTICE_ID": content["id"],
            "DLSCHED_EVENT": content["event"],
            "DLSCHED_JOB_ID": str(content["job"]),
            "DLSCHED_JOB_USER": content["user"],
        }
        if receiver.kind == "command":
            words, given = list(site.command), json.dumps(content).encode() + b"\n"
        else:
            put = {"{to}": receiver.to, "{subject}": content["text"]}
            words, given = [put.get(word, word) for word in site.mail_command], mail(content)
        return await run_command(words, site.timeout_s, given=given, environment=environment)

    def _outcome(self, tried: _Tried) -> Iterable[object]:
        """The rows that note what came of one notice."""
        due, notice = tried.due, tried.due.notice
        told = ", ".join(tried.by)
        if told:
            yield _event(notice, "notified", f"{notice.event}: {told}")
        if not tried.failed and not tried.postponed:
            yield NoticeSettled(key=notice.key)
            return
        tries = due.tries + bool(tried.failed)
        if tries > self._cluster.settings.notifications.retries:
            yield NoticeSettled(key=notice.key)
            yield _not_told(notice, "; ".join(f"{to}: {why}" for to, why in tried.failed.items()))
            return
        pause = 0.0 if tried.waits else FIRST_PAUSE_S
        if tried.failed:
            pause = min(FIRST_PAUSE_S * 2 ** (tries - 1), LONGEST_PAUSE_S)
        yield NoticeDelayed(
            key=notice.key, tries=tries, due_at=wall() + pause, told=tuple(sorted(tried.told))
        )


def _event(notice: Notice, kind: str, text: str) -> Event:
    return Event(at=wall(), kind=kind, actor="daemon", job=notice.job, text=text)


def _not_told(notice: Notice, why: str) -> Event:
    return _event(notice, "not-notified", f"{notice.event}: {why}")


async def _all(work: Iterable[Coroutine[None, None, None]]) -> None:
    async with asyncio.TaskGroup() as group:
        for each in work:
            group.create_task(each)
