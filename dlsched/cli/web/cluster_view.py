"""What one viewer's page shows, fetched from the daemon with the viewer's rights.

The quick part (queue, nodes, status) is fetched when the page is asked for, at most every few
seconds. The schedule that is predicted and the past days cost the daemon more: they are fetched in
a thread of their own, at most once a minute, and a page shows the newest that is there.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, TypeVar

from dlsched.client.daemon_address import DaemonAddress
from dlsched.client.daemon_client import Client
from dlsched.client.job_records import Job, Queue
from dlsched.client.records import Node
from dlsched.core.errors import DlschedError
from dlsched.rpc.v1.control_pb2 import Filter, StatusReply, WhatIfReply, WhatIfRequest

KEPT_S = 3.0
SLOW_KEPT_S = 60.0
DAYS = 7
MOST_ENDED = 20_000  # jobs of the past days: the newest

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Fetched(Generic[T]):
    """The newest answer to a slow question: not there yet, there, or why it is not."""

    value: T | None = None
    at: float = 0.0  # seconds since the epoch
    why: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """The content of a page; `at` in seconds since the epoch."""

    at: float
    status: StatusReply
    queue: Queue
    nodes: tuple[Node, ...]
    schedule: Fetched[WhatIfReply]
    ended: Fetched[list[Job]]


class _Slow(Generic[T]):
    """An answer that is fetched beside the page."""

    def __init__(self, fetch: Callable[[], T]) -> None:
        self._fetch = fetch
        self._newest: Fetched[T] = Fetched()
        self._asked_at = float("-inf")
        self._thread: threading.Thread | None = None

    def newest(self, patience_s: float) -> Fetched[T]:
        """The newest answer; a new one is fetched when it is old, and waited for only so long."""
        busy = self._thread is not None and self._thread.is_alive()
        if not busy and time.monotonic() - self._asked_at > SLOW_KEPT_S:
            self._asked_at = time.monotonic()
            self._thread = threading.Thread(target=self._run, daemon=True)
            self._thread.start()
        if self._thread is not None:
            self._thread.join(patience_s)
        return self._newest

    def _run(self) -> None:
        try:
            self._newest = Fetched(self._fetch(), time.time())
        except DlschedError as error:
            self._newest = Fetched(None, time.time(), str(error))


class ClusterView:
    """The newest content of one viewer's page."""

    def __init__(self, address: DaemonAddress) -> None:
        """Connect later, with the first page."""
        self._client = Client.at(address)
        self._slow_client = Client.at(address)
        self._lock = threading.Lock()
        self._last: tuple[float, StatusReply, Queue, tuple[Node, ...]] | None = None
        self._schedule = _Slow(lambda: self._slow_client.what_if(WhatIfRequest(schedule=True)))
        self._past_client = Client.at(address)
        self._ended = _Slow(self._past_days)

    def close(self) -> None:
        """Close the connections; questions under way end."""
        for client in (self._client, self._slow_client, self._past_client):
            client.close()

    def seen(self) -> Seen:
        """The content of a page.

        Raises:
            DlschedError: the daemon refuses the viewer, or is away.
        """
        with self._lock:
            if self._last is None or time.time() - self._last[0] > KEPT_S:
                every_job = Filter(all_users=True)
                status = self._client.status()
                queue = self._client.queue(every_job, predict=True)
                self._last = (time.time(), status, queue, tuple(self._client.nodes()))
            at, status, queue, nodes = self._last
            return Seen(
                at=at,
                status=status,
                queue=queue,
                nodes=nodes,
                schedule=self._schedule.newest(1.0),
                ended=self._ended.newest(1.0),
            )

    def _past_days(self) -> list[Job]:
        since = time.time() - DAYS * 86400.0
        every_job = Filter(all_users=True)
        return list(self._past_client.history(every_job, since=since, limit=MOST_ENDED))
