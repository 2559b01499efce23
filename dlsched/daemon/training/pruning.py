"""Checkpoints of ended jobs are deleted by the site's rule, with the rights of their user.

First a row is `doomed`, and no job can begin at it any more; then the node that wrote the files
deletes them, now or when it is back. Files that a later job begins at stay.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial

import grpc

from dlsched.core.errors import DlschedError
from dlsched.daemon.cluster import Cluster
from dlsched.daemon.settings import CheckpointsSection
from dlsched.db.checkpoints import DELETED, DOOMED, CheckpointsMarked, RegisteredCheckpoint
from dlsched.protocol.messages import JobId, NodeName
from dlsched.rpc.call_failures import answer
from dlsched.rpc.v1 import node_pb2
from dlsched.system.clock import wall

log = logging.getLogger("dlsched.daemon.checkpoints")
DELETE_S = 120.0  # that a node may take for the files of one user
AT_ONCE = 100  # folders in one call


async def prune_for_ever(cluster: Cluster) -> None:
    """Prune again and again while this daemon leads."""
    while True:
        await asyncio.sleep(cluster.settings.checkpoints.prune_every_s)
        if not cluster.driver.leading:
            continue
        try:
            await prune(cluster)
        except DlschedError as error:
            log.warning("event=checkpoints-not-pruned why=%r", str(error))


async def prune(cluster: Cluster) -> None:
    """Doom what the site's rule does not keep, and delete what is doomed."""
    driver, registry = cluster.driver, cluster.checkpoints
    rows = await driver.read(partial(driver.store.checkpoints_of_ended, doomed=False))
    jobs = driver.reserved.jobs  # an ended job may have started again meanwhile
    rows = [row for row in rows if row.job not in jobs or jobs[row.job].status.is_terminal]
    surplus = beyond_rule(rows, cluster.settings.checkpoints, wall(), registry.is_held)
    if surplus:  # no other task runs between the look at what is held and this
        await driver.attach(*marked(surplus))
    doomed = await driver.read(partial(driver.store.checkpoints_of_ended, doomed=True))
    places: defaultdict[tuple[NodeName | None, str, int], list[RegisteredCheckpoint]]
    places = defaultdict(list)
    for row in doomed:
        places[row.node, row.user, row.uid].append(row)
    for (node, user, uid), some in places.items():
        for start in range(0, len(some), AT_ONCE):
            part = some[start : start + AT_ONCE]
            gone = await _deleted(cluster, node, user, uid, [row.path for row in part])
            over = [row for row in part if row.path in gone]
            if over:
                await driver.attach(*_as(DELETED, over))
                log.info(
                    "event=checkpoints-deleted user=%s node=%s count=%s", user, node, len(over)
                )


def beyond_rule(
    rows: Sequence[RegisteredCheckpoint],
    rule: CheckpointsSection,
    now: float,
    is_held: Callable[[JobId, str], bool],
) -> list[RegisteredCheckpoint]:
    """The checkpoints of ended jobs that are not kept.

    Args:
        rows: of ended jobs, latest first.
        rule: the site's.
        now: seconds since the epoch.
        is_held: whether another job begins at the files of a job.
    """
    surplus: list[RegisteredCheckpoint] = []
    kept: Counter[JobId] = Counter()
    used: Counter[str] = Counter()
    for row in rows:
        if row.source is None and is_held(row.job, row.path):
            continue
        aged = row.ended_at is not None and now - row.ended_at > (rule.max_age_s or float("inf"))
        many = rule.keep is not None and kept[row.job] >= rule.keep
        size = row.size_bytes if row.source is None else 0
        large = rule.max_bytes is not None and used[row.user] + size > rule.max_bytes
        if aged or many or large:
            surplus.append(row)
        else:
            kept[row.job] += 1
            used[row.user] += size
    return surplus


def marked(surplus: Iterable[RegisteredCheckpoint]) -> Iterator[CheckpointsMarked]:
    """Doom files of their own jobs; let files of other jobs go."""
    own = [row for row in surplus if row.source is None]
    yield from _as(DOOMED, own)
    yield from _as(DELETED, [row for row in surplus if row.source is not None])


def _as(state: str, rows: Iterable[RegisteredCheckpoint]) -> Iterator[CheckpointsMarked]:
    by_job: defaultdict[JobId, list[RegisteredCheckpoint]] = defaultdict(list)
    for row in rows:
        by_job[row.job].append(row)
    for job, some in by_job.items():
        ids, paths = tuple(row.id for row in some), tuple(row.path for row in some)
        yield CheckpointsMarked(job=job, ids=ids, paths=paths, state=state)


async def _deleted(
    cluster: Cluster, node: NodeName | None, user: str, uid: int, paths: Sequence[str]
) -> frozenset[str]:
    """The paths that a node has deleted, or has not found; none when it does not answer."""
    stub = None if node is None else cluster.agents.stub(node)
    if stub is None:
        return frozenset()
    request = node_pb2.DeleteCheckpointsRequest(user=user, uid=uid, paths=paths)
    try:
        reply = await answer(stub.DeleteCheckpoints(request, timeout=DELETE_S))
    except (grpc.aio.AioRpcError, DlschedError) as error:
        why = error.details() if isinstance(error, grpc.aio.AioRpcError) else str(error)
        log.warning("event=checkpoints-not-deleted node=%s user=%s why=%r", node, user, why)
        return frozenset()
    return frozenset(reply.gone)
