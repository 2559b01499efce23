"""No list reads what jobs execute, and a page of jobs is bounded in bytes too."""

from __future__ import annotations

import inspect
import random
from collections.abc import Callable
from typing import Any

import pytest
from sqlalchemy import event, func, select

from dlsched.db import schema
from dlsched.db.contents import JobContent, program_of
from dlsched.db.reading.events import AuditFilter
from dlsched.db.reading.filters import ArrayElements, Filter
from dlsched.db.reading.queries import PAGE_BYTES, Reads
from dlsched.db.retention import JobsRemoved
from dlsched.db.store import Store
from dlsched.db.stored_bytes import ROW_BYTES
from dlsched.protocol.ledger import Attach, CancelJob
from dlsched.protocol.messages import Epoch, JobId, RequestId, RunId
from tests.db.ledgers import assign, content_of, ended, node, submit, submit_array

ONE = Filter(jobs=(JobId(1),))
# how each read of a store is called; a new one belongs here
READS: dict[str, Callable[[Reads], object]] = {
    "jobs": lambda r: r.jobs([JobId(1), JobId(2)]),
    "last_ended": lambda r: r.last_ended([JobId(1), JobId(2)], 9),
    "last_completed": lambda r: r.last_completed(9),
    "named": lambda r: r.named(ONE),
    "queue": lambda r: r.queue(),
    "history": lambda r: r.history(Filter(users=("ann",))),
    "before_last": lambda r: r.before_last(Filter(), 1),
    "events": lambda r: r.events(JobId(1)),
    "audit": lambda r: r.audit(AuditFilter()),
    "due_notices": lambda r: r.due_notices(1e9, 10),
    "oldest_notices": lambda r: r.oldest_notices("ann", 10),
    "runs": lambda r: r.runs(JobId(1)),
    "last_runs": lambda r: r.last_runs([JobId(1)]),
    "training": lambda r: r.training(JobId(1)),
    "pasts": lambda r: r.pasts([JobId(1)]),
    "curves": lambda r: r.curves(JobId(1)),
    "curves_of": lambda r: r.curves_of([JobId(1)]),
    "rungs": lambda r: r.rungs(JobId(3)),
    "task_runs": lambda r: r.task_runs(JobId(3)),
    "task_counts": lambda r: r.task_counts(JobId(3)),
    "checkpoints": lambda r: r.checkpoints(Filter(elements=(ArrayElements(array_job=JobId(3)),))),
    "unsaved": lambda r: r.unsaved(Filter(), 9),
    "checkpoints_of_ended": lambda r: r.checkpoints_of_ended(doomed=True),
    "removable_jobs": lambda r: r.removable_jobs(1e9, 10),
    "has_old_lines": lambda r: r.has_old_lines(1e9),
    "failed_starts": lambda r: r.failed_starts(0.0, 1e9),
    "predictions": lambda r: r.predictions(JobId(1)),
    "predicted_starts": lambda r: r.predicted_starts(),
    "usage": lambda r: r.usage(since=0.0, live=[RunId("run-1-1")]),
    "run_usage": lambda r: r.run_usage(0.0),
    "run_lookup": lambda r: r.run_lookup([RunId("run-1-1")]),
    "protocol_jobs": lambda r: r.protocol_jobs([JobId(1)]),
    "last_leader": lambda r: r.last_leader(),
    "request_lookup": lambda r: r.request_lookup("ann", RequestId("r1")),
    "stored_bytes": lambda r: r.stored_bytes("ann"),
    "contents": lambda r: r.contents([JobId(1)]),
}
OF_LAUNCHES = {"contents"}
SCRIPT = b"#!/bin/sh\necho a script that no list reads\n"


def statements_of(store: Store, work: Callable[[], object]) -> list[str]:
    asked: list[str] = []

    def note(_c: object, _k: object, statement: str, *_: object) -> None:
        asked.append(statement)

    event.listen(store.engine, "before_cursor_execute", note)
    work()
    event.remove(store.engine, "before_cursor_execute", note)
    return asked


def test_only_a_launch_reads_what_jobs_execute(store: Store, epoch: Epoch) -> None:
    public = {name for name, _ in inspect.getmembers(Reads, inspect.isfunction) if name[0] != "_"}
    assert public == READS.keys()
    writes = [node("n1"), submit(1), content_of(1, script=SCRIPT), submit(2), *submit_array(3, 2)]
    store.persist(epoch, 1, [*writes, assign(1, ("n1", (0,)))], 1.0)
    store.persist(epoch, 2, [ended(1, "n1"), CancelJob(JobId(2))], 2.0)
    calls = {name: (lambda c=call: c(store)) for name, call in READS.items()}  # type: ignore[misc]
    calls["load"] = store.load
    for name, call in calls.items():
        asked = " ".join(statements_of(store, call))
        reads = {table for table in ("programs", "scripts") if table in asked}
        assert reads == ({"programs", "scripts"} if name in OF_LAUNCHES else set()), name
        assert "FROM" in asked, name


def test_a_page_of_jobs_is_bounded_in_bytes_and_none_is_left_out(
    store: Store, epoch: Epoch
) -> None:
    long = "x" * (PAGE_BYTES // 4)
    writes: list[Any] = []
    for job in range(1, 11):
        writes += [submit(job, comment=long), CancelJob(JobId(job))]
    shape = submit_array(11, 20, comment=long)
    store.persist(epoch, 1, [*writes, *shape, *(CancelJob(each.job) for each in shape)], 1.0)
    found, sizes, after = [], [], None
    while page := store.history(after=after):
        found += [each.job.job for each in page]
        sizes.append(len(page))
        after = page[-1].after
    assert found == list(range(1, 31))
    assert max(sizes[:2]) <= 4
    assert len(sizes) <= 5  # elements of an array share what they ask for


def test_a_job_that_alone_is_more_than_a_page_is_listed(store: Store, epoch: Epoch) -> None:
    long = "x" * (PAGE_BYTES + 1)
    store.persist(epoch, 1, [submit(1, comment=long), submit(2, comment=long)], 1.0)
    assert [each.job.job for each in store.queue()] == [1]
    assert [each.job.job for each in store.queue(after=JobId(1))] == [2]


# -- scripts that are stored once ----------------------------------------------------------------


def kept(store: Store) -> dict[str, int]:
    """What the database has of each user, counted anew."""
    jobs, bodies, programs = schema.jobs, schema.job_bodies.c, schema.programs.c
    scripts, found = schema.scripts.c, dict[str, int]()
    lengths = func.sum(func.length(bodies.content) + func.length(programs.argv))
    with store.engine.connect() as connection:
        for query in (
            select(jobs.c.user_name, func.count() * ROW_BYTES).group_by(jobs.c.user_name),
            select(programs.user_name, lengths)
            .join_from(schema.programs, schema.job_bodies, bodies.body == programs.body)
            .group_by(programs.user_name),
            select(scripts.user_name, func.sum(func.length(scripts.content))).group_by(
                scripts.user_name
            ),
        ):
            for user, size in connection.execute(query):
                found[user] = found.get(user, 0) + int(size)
    return found


@pytest.mark.parametrize("seed", range(5))
def test_what_is_kept_of_each_user_is_counted_whatever_comes_and_goes(
    store: Store, epoch: Epoch, seed: int
) -> None:
    chance, number, alive, over = random.Random(seed), 0, set[int](), set[int]()
    scripts, job = [b"#!/bin/sh\n%d\n" % k * 50 for k in range(3)], 1
    for _ in range(30):
        number += 1
        what = chance.random()
        if what < 0.5 or not alive:
            user, script = chance.choice(["ann", "bob"]), chance.choice([b"", *scripts])
            count = chance.choice([1, 1, 4])
            new: list[Any] = [submit(job, user=user)] if count == 1 else submit_array(job, count)
            given = content_of(job, script=script, argv=("a", "\udcff" * chance.randrange(5)))
            store.persist(epoch, number, [*new, given], 1.0)
            alive |= set(range(job, job + count))
            job += count
        elif what < 0.8 or not over:
            some = chance.sample(sorted(alive), min(len(alive), 3))
            store.persist(epoch, number, [CancelJob(JobId(each)) for each in some], 2.0)
            alive -= set(some)
            over |= set(some)
        else:
            gone = tuple(JobId(each) for each in chance.sample(sorted(over), min(len(over), 3)))
            store.persist(epoch, number, [Attach(JobsRemoved(jobs=gone))], 3.0)
            over -= set(gone)
        for user in ("ann", "bob"):
            assert store.stored_bytes(user) == kept(store).get(user, 0)
    for each in alive:
        number += 1
        assert store.contents([JobId(each)]).keys() == {each}
        store.persist(epoch, number, [CancelJob(JobId(each))], 4.0)
    gone = tuple(JobId(each) for each in sorted(alive | over))
    store.persist(epoch, number + 1, [Attach(JobsRemoved(jobs=gone))], 5.0)
    with store.engine.connect() as connection:
        for table in (schema.programs, schema.scripts, schema.job_bodies):
            assert connection.execute(select(func.count()).select_from(table)).scalar_one() == 0
    assert [store.stored_bytes(user) for user in ("ann", "bob")] == [0, 0]


def test_a_script_is_stored_once_for_each_of_its_users(store: Store, epoch: Epoch) -> None:
    for number, user in enumerate(("ann", "ann", "bob"), 1):
        given = content_of(number, script=SCRIPT, argv=(str(number),))
        store.persist(epoch, number, [submit(number, user=user), given], 1.0)
    with store.engine.connect() as connection:
        owners = list(connection.execute(select(schema.scripts.c.user_name)).scalars())
    assert sorted(owners) == ["ann", "bob"]
    wanted = {number: JobContent(script=SCRIPT, argv=(str(number),)) for number in (1, 2, 3)}
    assert store.contents([JobId(1), JobId(2), JobId(3)]) == wanted
    store.persist(epoch, 4, [CancelJob(JobId(1))], 2.0)
    store.persist(epoch, 5, [Attach(JobsRemoved(jobs=(JobId(1),)))], 3.0)
    assert store.contents([JobId(2)]) == {2: wanted[2]}


def test_which_program_it_is_needs_no_script(store: Store, epoch: Epoch) -> None:
    program = program_of(JobContent(script=SCRIPT), "/home/ann")
    given = content_of(1, script=SCRIPT)
    store.persist(epoch, 1, [submit(1, program=program, working_directory="/home/ann"), given], 1.0)
    (found,) = store.queue()
    assert found.spec is not None
    assert found.spec.body.program == program
    assert found.spec.content_bytes >= len(SCRIPT)
