"""The jobs that a filter means."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from fnmatch import translate
from functools import partial
from typing import TypeVar

from dlsched.core.errors import BadInput
from dlsched.daemon.cluster import Cluster
from dlsched.daemon.control.bounds import check_text
from dlsched.daemon.control.views import word
from dlsched.daemon.rpc_errors import NotFound
from dlsched.daemon.turns import in_turns
from dlsched.db.reading import filters
from dlsched.protocol.ledger import Job
from dlsched.protocol.messages import JobId, NodeName
from dlsched.rpc.authorisation import require_owner
from dlsched.rpc.identity import Identity
from dlsched.rpc.request_bounds import PATTERN_STARS, WORD_BYTES
from dlsched.rpc.v1 import control_pb2

T = TypeVar("T")
PAGE = 250  # jobs that are looked at before other requests are served


def names_jobs(wanted: control_pb2.Filter) -> bool:
    """Whether a filter names single jobs."""
    return bool(wanted.jobs or wanted.elements)


def owner_of(cluster: Cluster, row: Job) -> str:
    """The user who owns a job."""
    return row.request.user or cluster.driver.table.spec(row).user


def subject(row: Job, cluster: Cluster) -> str:
    """A job as users name it: 17, or 17_3."""
    spec = cluster.driver.table.spec(row)
    if spec.array is None:
        return str(row.job)
    return f"{row.job - spec.index}_{spec.task}"


class Chosen:
    """The jobs that a filter names, and the names without a job."""

    def __init__(self) -> None:
        self.rows: dict[JobId, Job] = {}
        self.missing: list[tuple[str, JobId]] = []  # the name, and the id to look up
        self.ended: set[JobId] = set()  # of arrays named as a whole, others of which have not ended

    def add_whole(self, rows: Sequence[Job]) -> None:
        """Add a job, or all elements of an array."""
        self.rows.update((each.job, each) for each in rows)
        ended = {each.job for each in rows if each.status.is_terminal}
        if len(ended) < len(rows):
            self.ended |= ended


def chosen_ids(cluster: Cluster, wanted: control_pb2.Filter) -> Chosen:
    """The jobs that a filter names; an array's first element stands for the whole array."""
    jobs, table, found = cluster.driver.committed.jobs, cluster.driver.table, Chosen()
    for number in dict.fromkeys(map(JobId, wanted.jobs)):
        ids = table.elements(number) or [number]
        rows = [jobs[job] for job in ids if job in jobs]
        if not rows:
            found.missing.append((str(number), number))
        found.add_whole(rows)
    for first, tasks in _tasks_by_array(wanted).items():
        rows = [jobs[job] for job in table.elements(first) if job in jobs]
        if not tasks:
            found.add_whole(rows)
        seen = set()
        for each in rows:
            task = table.spec(each).task
            if task in tasks:
                seen.add(task)
                found.rows[each.job] = each
        found.missing += [(f"{first}_{task}", JobId(0)) for task in sorted(tasks - seen)]
        if not rows and not tasks:
            found.missing.append((str(first), first))
    return found


def _tasks_by_array(wanted: control_pb2.Filter) -> dict[JobId, set[int]]:
    """The tasks that a filter names of each array; empty: all."""
    found: dict[JobId, set[int]] = {}
    for some in wanted.elements:
        known = found.get(JobId(some.array_job))
        if known is None or not some.tasks:
            found[JobId(some.array_job)] = set(some.tasks)
        elif known:
            known.update(some.tasks)
    return found


async def stored_names(
    cluster: Cluster, missing: Sequence[tuple[str, JobId]]
) -> dict[str, list[JobId]]:
    """The jobs in the database of some names that are not in memory, in one read.

    Names without a job have an empty list; the name of an array has all of its elements.
    """
    if not missing:
        return {}
    tasks: dict[JobId, list[int]] = {}
    for name, job in missing:
        if not job:
            first, _, task = name.partition("_")
            tasks.setdefault(JobId(int(first)), []).append(int(task))
    ids = [job for _, job in missing if job]
    wanted = filters.Filter(
        jobs=tuple(ids),
        elements=(
            *(filters.ArrayElements(array_job=job) for job in ids),
            *(filters.ArrayElements(array_job=a, tasks=tuple(t)) for a, t in tasks.items()),
        ),
    )
    found: dict[str, list[JobId]] = {name: [] for name, _ in missing}
    for job, array, element in await cluster.driver.read(
        partial(cluster.driver.store.named, wanted)
    ):
        for known in {str(job), str(array), f"{array}_{element}"} & found.keys():
            found[known].append(job)
    return found


async def live_jobs(
    cluster: Cluster, wanted: control_pb2.Filter, caller: Identity
) -> tuple[list[Job], int]:
    """The live jobs that a filter means, and how many of others it leaves out."""
    if names_jobs(wanted):
        rows: Iterable[Job] = chosen_ids(cluster, wanted).rows.values()
    else:
        rows = cluster.driver.committed.jobs.values()
    kept: list[Job] = []
    others = 0
    named = names_jobs(wanted) or bool(wanted.users)
    fits = _Match(cluster, wanted)
    async for some in in_turns(each_page(list(rows), PAGE)):
        live = [row for row in some if not row.status.is_terminal]
        if not wanted.all_users and not named:
            mine = [row for row in live if owner_of(cluster, row) == caller.name]
            others += len(live) - len(mine)
            live = mine
        kept += filter(fits, live)
    return kept, others


class _Match:
    """Whether jobs match the other fields of a filter; each name is compared once."""

    def __init__(self, cluster: Cluster, wanted: control_pb2.Filter) -> None:
        self._cluster = cluster
        self._users, self._partitions = frozenset(wanted.users), frozenset(wanted.partitions)
        self._vcs, self._states = frozenset(wanted.vcs), frozenset(wanted.states)
        self._nodes = frozenset(wanted.nodes)
        patterns = dict.fromkeys(wanted.names)
        self._patterns = [re.compile(translate(pattern)).match for pattern in patterns]
        self._named: dict[str, bool] = {}

    def __call__(self, row: Job) -> bool:
        cluster, table = self._cluster, self._cluster.driver.table
        if self._users and owner_of(cluster, row) not in self._users:
            return False
        if self._partitions and table.field(row, "partition") not in self._partitions:
            return False
        if self._vcs and not {table.field(row, "vc"), table.field(row, "account")} & self._vcs:
            return False
        if self._states or self._nodes:
            run = cluster.driver.committed.live_run(row.job)
            if self._states and word(row, run) not in self._states:
                return False
            if self._nodes and (run is None or self._nodes.isdisjoint(run.members)):
                return False
        return not self._patterns or self._is_named(table.field(row, "name"))

    def _is_named(self, name: str) -> bool:
        known = self._named.get(name)
        if known is None:
            known = self._named[name] = any(match(name) for match in self._patterns)
        return known


def check_filter(wanted: control_pb2.Filter) -> None:
    """Check the words of a filter; the interceptor has counted them.

    Raises:
        BadInput: one is too long, or a pattern has too many stars.
    """
    for what, words in (
        ("user", wanted.users), ("partition", wanted.partitions), ("vc", wanted.vcs),
        ("state", wanted.states), ("node", wanted.nodes), ("name", wanted.names),
    ):  # fmt: skip
        for text in words:
            check_text(what, text, WORD_BYTES)
    for pattern in wanted.names:
        if pattern.count("*") > PATTERN_STARS:
            raise BadInput(f"name {pattern[:40]!r}: more than {PATTERN_STARS} stars")


def stored_filter(wanted: control_pb2.Filter, caller: Identity) -> filters.Filter:
    """The filter in the form that the store takes; checked."""
    check_filter(wanted)
    named = names_jobs(wanted) or wanted.users or wanted.all_users
    ids = dict.fromkeys(map(JobId, wanted.jobs))
    tasks = _tasks_by_array(wanted) | {job: set() for job in ids}
    return filters.Filter(
        jobs=tuple(ids),
        elements=tuple(
            filters.ArrayElements(array_job=array, tasks=tuple(some))
            for array, some in tasks.items()
        ),
        users=tuple(wanted.users) if named else (caller.name,),
        partitions=tuple(wanted.partitions),
        vcs=tuple(wanted.vcs),
        states=tuple(wanted.states),
        nodes=tuple(map(NodeName, wanted.nodes)),
        names=tuple(wanted.names),
    )


def each_page(rows: list[T], size: int) -> Iterator[list[T]]:
    """Rows in pages of a size."""
    for start in range(0, len(rows), size):
        yield rows[start : start + size]


async def owned_job(cluster: Cluster, number: int, caller: Identity) -> Job:
    """A job, live or ended, that the caller owns or may operate.

    Raises:
        NotFound: there is no such job.
        NotAllowed: it is another user's.
    """
    driver, job = cluster.driver, JobId(number)
    row = driver.committed.jobs.get(job)
    if row is None:
        row = (await driver.read(partial(driver.store.protocol_jobs, [job]))).get(job)
    if row is None:
        raise no_such(str(number))
    require_owner(caller, row.request.user, f"job {subject(row, cluster)}")
    return row


def no_such(subject_: str) -> NotFound:
    """The error for an unknown job."""
    return NotFound(f"job {subject_}: there is no such job")
