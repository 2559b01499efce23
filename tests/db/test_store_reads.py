"""What is shown: facts that grow with the changes, pages, filters, secrets that are not shown."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

import pytest
from sqlalchemy import func, inspect, select, text

from dlsched.core.errors import InvariantBroken
from dlsched.db import schema
from dlsched.db.contents import (
    ContentGiven,
    JobContent,
    Repeats,
    program_of,
    seal_of,
)
from dlsched.db.engine import reading
from dlsched.db.reading.filters import ArrayElements, Filter
from dlsched.db.reading.queries import StoredJob
from dlsched.db.records import (
    CheckpointCommitted,
    Dependency,
    Drained,
    Event,
    FieldsChanged,
    HoldChanged,
    JobSpec,
    NodeDescribed,
    NodesHeard,
    PolicySet,
    PolicyState,
    Prediction,
    Progress,
    RoundDone,
)
from dlsched.db.store import Store
from dlsched.protocol.ledger import (
    Attach,
    CancelJob,
    MemberOver,
    ReleaseRun,
    Request,
    StopRun,
    Write,
)
from dlsched.protocol.messages import (
    Epoch,
    ExitReason,
    JobId,
    NodeName,
    RequestId,
    RunId,
    StopReason,
)
from dlsched.rpc.tokens import TokenRecord
from tests.db.ledgers import (
    assign,
    content_of,
    ended,
    key,
    node,
    received,
    request,
    submit,
    submit_array,
)

SECRET = "hunter2-do-not-tell"


class Term:
    """Persists under growing numbers at growing times."""

    def __init__(self, store: Store, epoch: Epoch) -> None:
        self.store, self.epoch, self.number = store, epoch, 0

    def __call__(self, *writes: Write | object, at: float | None = None) -> None:
        self.number += 1
        rows = [
            w if type(w).__module__ == "dlsched.protocol.ledger.writes" else Attach(w)
            for w in writes
        ]
        when = float(self.number) if at is None else at
        self.store.persist(self.epoch, self.number, rows, when)  # type: ignore[arg-type]


@pytest.fixture
def persist(store: Store, epoch: Epoch) -> Term:
    return Term(store, epoch)


def numbers(found: list[StoredJob]) -> list[int]:
    return [job.job.job for job in found]


def one(store: Store, job: int) -> StoredJob:
    (found,) = store.jobs([JobId(job)])
    return found


def test_facts_grow_with_the_changes(store: Store, persist: Term) -> None:
    persist(node("n1"), submit(1, gang=(2,)), at=10.0)
    persist(assign(1, ("n1", (0, 1))), at=20.0)
    persist(StopRun(key(1).run_id, StopReason.PREEMPT), at=30.0)
    over = ended(1, "n1", code=143, stop=StopReason.PREEMPT)
    persist(over, received(1, held_s=8.0, gpus=2), at=40.0)
    first = one(store, 1)
    assert (first.state, first.facts.starts) == ("PENDING", 1)
    assert first.facts.ended_at is None
    persist(assign(1, ("n1", (2, 3)), run=2), at=50.0)
    persist(StopRun(key(1, 2).run_id, StopReason.MIGRATE), at=60.0)
    over = ended(1, "n1", run=2, code=143, stop=StopReason.MIGRATE)
    persist(over, received(1, run=2, held_s=9.0, gpus=2), at=70.0)
    persist(assign(1, ("n1", (0, 1)), run=3), at=80.0)
    persist(ended(1, "n1", run=3), received(1, run=3, held_s=5.0, gpus=2), at=90.0)
    job = one(store, 1)
    facts = job.facts
    assert (job.state, job.nodes, job.end) == ("COMPLETED", ("n1",), "completed: exit 0")
    assert (facts.submitted_at, facts.first_started_at, facts.started_at) == (10.0, 20.0, 80.0)
    assert (facts.ended_at, facts.starts, facts.migrations, facts.resizes) == (90.0, 3, 1, 0)
    runs = store.runs(JobId(1))
    assert [(r.run.key.run, r.released_at, r.ended_at, r.received.attained) for r in runs] == [
        (1, 20.0, 40.0, 16.0),
        (2, 50.0, 70.0, 18.0),
        (3, 80.0, 90.0, 10.0),
    ]


@pytest.mark.parametrize(
    ("told", "shown"),
    [
        pytest.param((22.0, 25.0), 25.0, id="when its last node has ended"),
        pytest.param((22.0, 99.0), 40.0, id="a clock ahead: when the daemon has heard of it"),
        pytest.param((3.0, 5.0), 20.0, id="a clock behind: when it has started"),
        pytest.param((22.0, None), 40.0, id="one node does not know"),
    ],
)
def test_a_run_ended_when_its_nodes_say_not_when_the_daemon_heard_of_it(
    store: Store, persist: Term, told: tuple[float, float | None], shown: float
) -> None:
    persist(node("n1"), node("n2"), submit(1, gang=(1, 1)), at=10.0)
    persist(assign(1, ("n1", (0,)), ("n2", (0,))), at=15.0)
    persist(ReleaseRun(key(1).run_id), at=20.0)
    persist(*(ended(1, f"n{k}", at=at) for k, at in enumerate(told, 1)), at=40.0)
    assert one(store, 1).facts.ended_at == shown
    assert [run.ended_at for run in store.runs(JobId(1))] == [shown]


@pytest.mark.parametrize("stop", [StopReason.MIGRATE, StopReason.RESIZE])
def test_a_stop_that_finds_the_job_done_is_no_move(
    store: Store, persist: Term, stop: StopReason
) -> None:
    persist(node("n1"), submit(1, gang=(2,)), assign(1, ("n1", (0, 1))))
    persist(StopRun(key(1).run_id, stop))
    persist(ended(1, "n1", code=0, ran_s=9.0))
    job = one(store, 1)
    assert job.state == "COMPLETED"
    assert (job.facts.starts, job.facts.migrations, job.facts.resizes) == (1, 0, 0)


def test_a_late_record_ends_its_job_and_changes_no_figure(store: Store, persist: Term) -> None:
    persist(node("n1"), submit(1), assign(1, ("n1", (0,))))
    presumed = MemberOver(key(1).run_id, NodeName("n1"), presumed="down")
    persist(presumed, received(1, held_s=40.0))
    persist(ended(1, "n1", ran_s=33.0))
    assert one(store, 1).state == "COMPLETED"
    assert [run.received.held_s for run in store.runs(JobId(1))] == [40.0]


def test_a_gang_starts_when_it_is_released(store: Store, persist: Term) -> None:
    persist(node("n1"), node("n2"), submit(1, gang=(1, 1)), at=1.0)
    persist(assign(1, ("n2", (0,)), ("n1", (0,))), at=2.0)
    assert one(store, 1).facts.starts == 0
    persist(ReleaseRun(key(1).run_id), at=3.0)
    job = one(store, 1)
    assert (job.facts.starts, job.facts.first_started_at) == (1, 3.0)
    assert job.nodes == ("n2", "n1")  # in the order of the layout


def test_a_cause_is_that_of_the_latest_run(store: Store, persist: Term) -> None:
    persist(node("n1"), submit(1), assign(1, ("n1", (0,))))
    persist(StopRun(key(1).run_id, StopReason.MIGRATE))
    persist(ended(1, "n1", code=143, stop=StopReason.MIGRATE))
    first = Event(at=1.0, kind="cause", job=JobId(1), run_id=key(1).run_id, text="first")
    persist(first, assign(1, ("n1", (0,)), run=2))
    persist(ended(1, "n1", run=2, code=127))
    job = one(store, 1)
    assert (job.state, job.end, job.cause) == ("FAILED", "failed: exit 127", "")
    persist(replace(first, run_id=key(1, 2).run_id, text="second"))
    assert one(store, 1).cause == "second"


def test_words_of_states(store: Store, persist: Term) -> None:
    persist(node("n1"), *(submit(k) for k in range(1, 5)))
    persist(assign(1, ("n1", (0,))), assign(2, ("n1", (1,))), CancelJob(JobId(3)))
    persist(
        ended(1, "n1", code=0, reason=ExitReason.OUT_OF_MEMORY),
        StopRun(key(2).run_id, StopReason.PREEMPT),
    )
    states = [job.state for job in store.jobs(map(JobId, range(1, 5)))]
    assert states == ["OUT_OF_MEMORY", "COMPLETING", "CANCELLED", "PENDING"]


# -- what is attached ------------------------------------------------------------------------------


def test_attached_rows_come_back(store: Store, persist: Term) -> None:
    chosen = PolicySet(at=1.0, parts={"scheduling": "las"}, options=("A=1",), actor="root")
    drained = Drained(node=NodeName("n1"), drained=True, reason="fan", actor="root", at=5.0)
    saved = CheckpointCommitted(
        job=JobId(1), run_id=RunId("r"), at=2.0, path="/c", step=7, size_bytes=9, sha256="ab"
    )
    step = Progress(run_id=key(1).run_id, step=9, executed_s=3.0, loss=0.5)
    persist(
        *(node("n1"), submit(1), assign(1, ("n1", (0,)))),
        *(chosen, PolicyState(state=b"\x00\x01"), drained, saved, replace(saved, step=8), step),
        NodeDescribed(node=NodeName("n1"), facts='{"cpus":4}'),
        NodesHeard(heard_at={NodeName("n1"): 4.5}),
        RoundDone(
            number=41,
            at=1.0,
            mode="full",
            policy="las",
            wall_s=0.1,
            cpu_s=0.1,
            pending=1,
            running=2,
            starts=3,
            stops=4,
        ),
        HoldChanged(job=JobId(1), held="admin", actor="root"),
        Prediction(job=JobId(1), made_at=1.0, start_at=9.0, basis="forecast"),
    )
    persist(PolicyState(state=b"\x02"), replace(step, step=10))
    loaded = store.load()
    assert (loaded.policy, loaded.policy_state, loaded.round_number) == (chosen, b"\x02", 41)
    assert loaded.drained == {"n1": drained}
    assert loaded.nodes_described == {"n1": '{"cpus":4}'}
    assert loaded.heard_at == {"n1": 4.5}
    facts = loaded.jobs[JobId(1)]
    assert facts.held == "admin"
    assert facts.checkpoint == replace(saved, step=8)
    assert facts.progress == replace(step, step=10)
    assert store.predictions(JobId(1))[0].basis == "forecast"
    assert loaded.run_times == {key(1).run_id: (1.0, 1.0)}
    persist(replace(drained, drained=False))
    assert store.load().drained == {}


def test_first_predictions_stand_beside_what_came(store: Store, persist: Term) -> None:
    def told(job: int, made_at: float, start_at: float) -> Prediction:
        return Prediction(job=JobId(job), made_at=made_at, start_at=start_at, basis="limits")

    persist(node("n1"), *(submit(k) for k in range(1, 4)))
    persist(told(1, 1.0, 90.0), told(2, 1.0, 80.0), told(1, 2.0, 95.0), told(3, 1.0, 70.0))
    persist(assign(1, ("n1", (0,))))
    persist(assign(2, ("n1", (1,))))
    early, late = sorted(store.predicted_starts(), key=lambda each: each.prediction.job)
    assert (early.prediction.start_at, late.prediction.start_at) == (90.0, 80.0)
    assert early.started_at == one(store, 1).facts.first_started_at
    assert store.predicted_starts(late.started_at + 1.0) == []
    assert one(store, 1).first_prediction == told(1, 1.0, 90.0)
    assert one(store, 3).first_prediction == told(3, 1.0, 70.0)


def test_predicted_ends_stand_beside_those_of_jobs_that_completed(
    store: Store, persist: Term
) -> None:
    told = Prediction(
        job=JobId(1), made_at=1.0, start_at=9.0, basis="limits", policy="las", source="time limit",
        gpus=2, start_p10=5.0, start_p90=12.0, end_at=50.0, end_p10=30.0, end_p90=70.0,
    )  # fmt: skip
    persist(node("n1"), submit(1), submit(2), told, replace(told, job=JobId(2)))
    persist(assign(1, ("n1", (0,))), assign(2, ("n1", (1,))))
    assert [each.ended_at for each in store.predicted_starts()] == [None, None]
    persist(ended(1, "n1", code=0, ran_s=40.0), ended(2, "n1", code=1, ran_s=40.0))
    found = {each.prediction.job: each for each in store.predicted_starts()}
    assert found[1].prediction == told
    assert found[1].ended_at == one(store, 1).facts.ended_at is not None
    assert found[2].ended_at is None  # a failure was not predicted


def test_changed_fields_come_back_as_what_they_were(store: Store, persist: Term) -> None:
    persist(submit(1, vc="a"))
    waits = (Dependency(kind="afterok", job=JobId(9)),)
    fields = {"gpu_types": ("v100", "a100"), "dependencies": waits, "vc": "b", "grace_s": 5.0}
    persist(FieldsChanged(job=JobId(1), fields=fields, actor="ann"))
    persist(FieldsChanged(job=JobId(1), fields={"priority": 2.0}, actor="ann"))
    assert store.load().jobs[JobId(1)].updated == {**fields, "priority": 2.0}
    assert numbers(store.queue(Filter(vcs=("b",)))) == [1]


def test_events_are_in_order_and_in_pages(store: Store, persist: Term) -> None:
    persist(submit(1), *(Event(at=float(k), kind="k", job=JobId(1)) for k in range(7)))
    persist(Event(at=0.0, kind="node", node=NodeName("n1"), text="hm"))
    persist(Event(at=9.0, kind="cancel", job=JobId(1), actor="bob"), CancelJob(JobId(1)))
    page = store.events(JobId(1), limit=5)
    rest = store.events(JobId(1), after=page[-1].id)
    assert [e.event.at for e in (*page, *rest)][:8] == [0, 1, 2, 3, 4, 5, 6, 9]
    assert [e.event.kind for e in (*page, *rest)][8:] == ["end"]  # what the cancel led to
    assert [e.event.text for e in store.events(node=NodeName("n1"))] == ["hm"]
    assert one(store, 1).facts.cancelled_by == "bob"


def test_what_has_no_table_is_a_defect(store: Store, persist: Term) -> None:
    with pytest.raises(InvariantBroken, match="float has no table"):
        persist(3.5)


# -- lists -----------------------------------------------------------------------------------------


def test_history_goes_by_pages_in_both_directions(store: Store, persist: Term) -> None:
    persist(*(submit(k) for k in range(1, 10)))
    for k in range(1, 9):
        persist(CancelJob(JobId(k)), at=float(k // 2))  # ends that are equal
    for newest in (False, True):
        found: list[int] = []
        after = None
        while page := store.history(after=after, limit=3, newest_first=newest):
            found += numbers(page)
            after = page[-1].after
        assert found == sorted(range(1, 9), key=lambda k: (k // 2, k), reverse=newest)
    assert numbers(store.history(since=1.0, until=3.0)) == [2, 3, 4, 5]
    assert numbers(store.queue()) == [9]
    assert numbers(store.queue(after=JobId(9))) == []


def test_filters(store: Store, persist: Term) -> None:
    persist(
        *(node("n1"), node("n2")),
        submit(1, name="train-a", vc="x", partition="p"),
        submit(2, name="train-b", user="bob"),
        submit(3, name="tr_in%"),
        *submit_array(4, 3),
        assign(1, ("n2", (0,))),
    )
    cases = {
        Filter(): [1, 2, 3, 4, 5, 6],
        Filter(jobs=(JobId(2), JobId(5))): [2, 5],
        Filter(elements=(ArrayElements(array_job=JobId(4)),)): [4, 5, 6],
        Filter(elements=(ArrayElements(array_job=JobId(4), tasks=(1, 2)),)): [5, 6],
        Filter(jobs=(JobId(1),), elements=(ArrayElements(array_job=JobId(4), tasks=(0,)),)): [1, 4],
        Filter(users=("bob",)): [2],
        Filter(vcs=("x",)): [1],
        Filter(partitions=("p", "q")): [1],
        Filter(states=("RUNNING",)): [1],
        Filter(nodes=(NodeName("n2"),)): [1],
        Filter(nodes=(NodeName("n1"),)): [],
        Filter(names=("train-*",)): [1, 2],
        Filter(names=("tr_in%",)): [3],
        Filter(names=("tr_*",)): [3],
        Filter(names=("train-a", "array")): [1, 4, 5, 6],
        Filter(users=("bob",), names=("train-a",)): [],
    }
    for wanted, expected in cases.items():
        assert numbers(store.queue(wanted)) == expected, wanted


def test_usage_by_virtual_cluster_and_by_user(store: Store, persist: Term) -> None:
    persist(node("n1"), submit(1, vc="x"), submit(2, vc="y", user="bob"))
    persist(assign(1, ("n1", (0,))), assign(2, ("n1", (1,))))
    persist(ended(1, "n1"), received(1, held_s=5.0), at=100.0)
    persist(ended(2, "n1"), received(2, held_s=7.0), at=200.0)
    assert [(u.name, u.gpu_s, u.jobs) for u in store.usage()[0]] == [("x", 5.0, 1), ("y", 7.0, 1)]
    assert [u.name for u in store.usage(by="user", since=150.0)[0]] == ["bob"]


def test_a_read_sees_one_state(store: Store, persist: Term) -> None:
    persist(submit(1))
    count = select(func.count()).select_from(schema.jobs)
    with reading(store.engine) as connection:
        assert connection.execute(count).scalar() == 1
        persist(submit(2))
        assert connection.execute(count).scalar() == 1
    with reading(store.engine) as connection:
        assert connection.execute(count).scalar() == 2


# -- looking up -----------------------------------------------------------------------------------


def test_a2_a_request_id_is_known_for_ever(store: Store, persist: Term) -> None:
    content = JobContent(script=b"#!/bin/sh\n", argv=("1",), environment={"A": SECRET})

    def asked(content: JobContent, salt: bytes = b"two", **body: Any) -> Request:
        program, seal = program_of(content, ""), seal_of(content.environment, salt)
        return request("one", program=program, seal=seal, **body)

    first = asked(content, salt=b"one")
    persist(replace(submit(1), request=first), Attach(ContentGiven(job=JobId(1), content=content)))
    persist(CancelJob(JobId(1)))
    found = store.request_lookup("ann", first.request_id)
    assert found is not None
    assert (found.job, found.request) == (1, first)

    def same(other: Request, its: JobContent = content) -> bool:
        return Repeats().is_same(found.request, other, its)

    again = asked(content)
    assert isinstance(again.spec, JobSpec)
    assert again != first
    assert same(again)
    assert same(replace(again, spec=replace(again.spec, submitted_at=999.0)))
    for changed in ({"environment": {"A": "else"}}, {"script": b"#!/bin/bash\n"}, {"argv": ()}):
        other = replace(content, **changed)
        assert not same(asked(other), other)
    assert not same(asked(content, account="two"))
    assert not same(replace(again, retries=3))
    assert store.request_lookup("bob", first.request_id) is None
    assert store.request_lookup("ann", RequestId("never")) is None


@pytest.mark.parametrize(
    "content",
    [
        JobContent(),
        JobContent(
            argv=("sh", "-c", "caf\u00e9 \udcff"), environment={"\udcff": "\udcff", "A": ""}
        ),
        JobContent(script=bytes(range(256)), argv=("", "\n")),
    ],
)
def test_what_a_job_executes_is_read_as_it_was_given(
    store: Store, persist: Term, content: JobContent
) -> None:
    persist(submit(1), Attach(ContentGiven(job=JobId(1), content=content)))
    assert store.contents([JobId(1)]) == {1: content}


def everything(store: Store, *, but: str = "") -> str:
    """Every value of every table as text."""
    found = []
    with store.engine.connect() as connection:
        for name in inspect(connection).get_table_names():
            if name != but:
                rows = connection.execute(text(f'SELECT * FROM "{name}"')).all()
                found += [repr(tuple(row)) for row in rows]
    return "\n".join(found)


def test_environments_are_secrets(store: Store, persist: Term) -> None:
    secret = {"TOKEN": SECRET}
    persist(node("n1"), submit(1), content_of(1, environment=secret))
    persist(*submit_array(2, 3), content_of(2, environment=secret))
    assert SECRET in everything(store)
    assert SECRET not in everything(store, but="job_environments")
    contents = store.contents([JobId(1), JobId(3), JobId(4), JobId(99)])
    assert {job: each.environment for job, each in contents.items()} == dict.fromkeys(
        (1, 3, 4), secret
    )
    assert contents[JobId(3)] is contents[JobId(4)]
    shown = [*store.queue(), *store.jobs([JobId(1)]), store.load(), contents]
    assert SECRET not in repr(shown)

    persist(assign(1, ("n1", (0,))), CancelJob(JobId(2)), CancelJob(JobId(3)))
    assert store.contents([JobId(4)])[JobId(4)].environment == secret  # an element lives
    persist(ended(1, "n1"), CancelJob(JobId(4)))
    assert SECRET not in everything(store)
    gone = store.contents([JobId(1), JobId(4)])
    assert gone[JobId(1)].environment == gone[JobId(4)].environment == {}


def test_a_job_that_is_submitted_and_cancelled_at_once_leaves_no_secret(
    store: Store, persist: Term
) -> None:
    persist(submit(1), content_of(1, environment={"TOKEN": SECRET}), CancelJob(JobId(1)))
    assert SECRET not in everything(store)
    assert one(store, 1).state == "CANCELLED"
    assert one(store, 1).facts.ended_at == 1.0


def test_elements_of_an_array_share_their_body(store: Store, persist: Term) -> None:
    persist(*submit_array(1, 50), content_of(1, environment={"A": "1"}))
    with store.engine.connect() as connection:
        for table in (schema.job_bodies, schema.job_environments, schema.arrays):
            assert len(connection.execute(select(table)).all()) == 1
    specs = [job.request.spec for job in store.load().ledger.jobs.values()]
    assert all(isinstance(spec, JobSpec) for spec in specs)
    assert len({id(spec.body) for spec in specs if isinstance(spec, JobSpec)}) == 1


def test_tokens_are_kept_as_digests(store: Store) -> None:
    record = TokenRecord(
        token_id="t1", digest="d", user="ann", created_at=1.0, expires_at=2.0, comment="laptop"
    )

    async def scenario() -> None:
        await store.tokens.add_token(record)
        assert await store.tokens.find_token("t1") == record
        assert await store.tokens.find_token("t2") is None
        assert await store.tokens.list_tokens("ann") == [record]
        assert await store.tokens.list_tokens("bob") == []
        assert await store.tokens.revoke_token("t1", 5.0)
        assert await store.tokens.revoke_token("t1", 6.0)
        assert not await store.tokens.revoke_token("t2", 6.0)
        assert await store.tokens.list_tokens(None) == [replace(record, revoked_at=5.0)]

    asyncio.run(scenario())
