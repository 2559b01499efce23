"""`Audit`: what users and parts of the cluster did, from the table of events; operators only."""

from __future__ import annotations

from collections.abc import AsyncIterator
from functools import partial

from dlsched.daemon.cluster import Cluster
from dlsched.db.reading.events import AuditFilter, StoredEvent
from dlsched.protocol.messages import JobId, NodeName
from dlsched.rpc.v1 import control_pb2

PAGE = 500


async def pages(
    cluster: Cluster, request: control_pb2.AuditRequest
) -> AsyncIterator[control_pb2.AuditPage]:
    """The events, the newest first, each page read in a transaction of its own."""
    wanted = AuditFilter(
        actors=tuple(request.actors),
        kinds=tuple(request.kinds),
        nodes=tuple(map(NodeName, request.nodes)),
        jobs=tuple(map(JobId, request.jobs)),
        since=request.since if request.HasField("since") else None,
        until=request.until if request.HasField("until") else None,
        parts_too=request.parts_too,
    )
    driver, left, before = cluster.driver, request.limit, None
    while before != 0:
        size = PAGE if request.limit <= 0 else min(PAGE, left)
        read = partial(driver.store.audit, wanted, before, limit=size)
        found, before = await driver.read(read)
        if found:
            yield control_pb2.AuditPage(lines=map(_line, found))
            left -= len(found)
        if request.limit > 0 and left <= 0:
            return


def _line(stored: StoredEvent) -> control_pb2.AuditLine:
    event = stored.event
    return control_pb2.AuditLine(
        id=stored.id,
        at=event.at,
        kind=event.kind,
        actor=event.actor,
        job=event.job,
        node=event.node or "",
        text=event.text,
    )
