"""The store says what the protocol's ledger says after the same writes, whatever they are."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from dlsched.core.errors import InvariantBroken
from dlsched.db.records import ArrayShape, Dependency, JobBody, JobSpec
from dlsched.db.store import Store
from dlsched.protocol.json_form import dumps, loads
from dlsched.protocol.ledger import (
    NONE_LEFT,
    Adopt,
    Assign,
    CancelJob,
    ChangeTerms,
    JobStatus,
    Ledger,
    LetGo,
    MemberOver,
    NodeStatus,
    OrphanOver,
    Quarantine,
    RaiseEpoch,
    RaiseRevision,
    RegisterNode,
    ReleaseRun,
    Request,
    Restart,
    RunStatus,
    SetNode,
    SetWitnesses,
    StopRun,
    Submit,
    SuspendRun,
    Terms,
    Write,
    apply,
    apply_all,
)
from dlsched.protocol.messages import (
    BootId,
    Epoch,
    ExitReason,
    ExitRecord,
    Fence,
    GpuId,
    HeldRun,
    Incarnation,
    Inventory,
    JobId,
    LaunchMode,
    Limits,
    NodeName,
    Phase,
    RequestId,
    Revision,
    RunId,
    RunKey,
    RunNumber,
    Share,
    StopReason,
)
from tests.db.emptied_store import Emptied, emptied_store
from tests.protocol.simulation import Faults, schedules
from tests.protocol.simulation.truth import Database, live_part

pytestmark = pytest.mark.slow

Draw = st.DrawFn
NODES = [NodeName(f"n{k}") for k in range(1, 4)]
WORDS = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=6)
SECONDS = st.floats(0, 1e9)
COUNTS = st.integers(0, 2**40)

bodies = st.builds(
    JobBody,
    name=WORDS,
    gang=st.none() | st.lists(st.integers(1, 8), min_size=1, max_size=2).map(tuple),
    priority=st.none() | st.floats(allow_nan=False),
    time_limit_s=st.none() | SECONDS,
    requeue=st.booleans(),
    dependencies=st.lists(
        st.builds(
            Dependency,
            kind=st.sampled_from(["afterok", "singleton"]),
            job=st.integers(0, 9).map(JobId),
            delay_s=SECONDS,
            or_next=st.booleans(),
        ),
        max_size=2,
    ).map(tuple),
    memory_bytes=st.none() | COUNTS,
    extra=st.dictionaries(WORDS, WORDS, max_size=1),
)
requests = st.builds(
    Request,
    request_id=st.just(RequestId("")),
    user=st.sampled_from(["ann", "bob"]),
    gang=st.lists(st.integers(1, 2), min_size=1, max_size=2).map(tuple),
    mode=st.sampled_from(LaunchMode),
    requeue=st.booleans(),
    fence=st.sampled_from(Fence),
    retries=st.integers(0, 2),
    timeouts=st.integers(0, 2),
    gpu_retries=st.none() | st.integers(0, 2),
    limits=st.builds(Limits, time_s=st.none() | SECONDS, memory_bytes=st.none() | COUNTS),
    grace_s=SECONDS,
    gpu_share=st.none() | st.sampled_from([0.25, 1 / 3, 0.5]),
)


@given(body=bodies)
def test_a_body_is_read_as_it_was_written(body: JobBody) -> None:
    assert loads(JobBody, dumps(body), exact=True) == body


@st.composite
def writes_on(draw: Draw, ledger: Ledger, numbers: itertools.count[int]) -> list[Write]:
    """One thing that may happen to a ledger; what the protocol refuses is drawn again elsewhere."""
    kind: Callable[[Draw, Ledger, itertools.count[int]], list[Write]] = draw(
        st.sampled_from([_submits, _place, _run_changes, _end, _end, _node_changes, _orphans])
    )
    return kind(draw, ledger, numbers)


def _submits(draw: Draw, ledger: Ledger, numbers: itertools.count[int]) -> list[Write]:
    request, body = draw(requests), draw(bodies)
    elements = draw(st.integers(1, 3))
    shape = ArrayShape(tasks=tuple(range(0, 2 * elements, 2)), limit=draw(st.integers(0, 2)))
    bare = draw(st.booleans()) and draw(st.booleans())
    found: list[Write] = []
    for k in range(elements):
        spec = JobSpec(
            body=body,
            user=request.user,
            uid=1000,
            submitted_at=draw(SECONDS),
            array=shape if elements > 1 else None,
            index=k,
        )
        name = RequestId(f"q{next(numbers)}")
        asked = replace(request, request_id=name, spec=None if bare else spec)
        found.append(Submit(request=asked, job=JobId(ledger.next_job + k)))
    return found


def _place(draw: Draw, ledger: Ledger, numbers: itertools.count[int]) -> list[Write]:
    waiting = [
        job
        for job in ledger.jobs.values()
        if job.status is JobStatus.PENDING and ledger.live_run(job.job) is None
    ]
    if not waiting:
        return []
    job = draw(st.sampled_from(waiting))
    free = {
        name: sorted(set(node.gpus) - ledger.busy(name, share=job.request.gpu_share))
        for name, node in ledger.nodes.items()
    }
    places = [name for name, gpus in free.items() if gpus]
    if not places:
        return []
    chosen = draw(st.lists(st.sampled_from(places), min_size=1, max_size=2, unique=True))
    key = RunKey(job.job, RunNumber(job.runs + 1), RunId(f"run{next(numbers)}"))
    shares = tuple(Share(node=name, gpus=tuple(free[name][:2])) for name in chosen)
    return [Assign(key=key, shares=shares)]


def _run_changes(draw: Draw, ledger: Ledger, _: itertools.count[int]) -> list[Write]:
    if not ledger.runs:
        return []
    run = draw(st.sampled_from(list(ledger.runs.values())))
    job, run_id = run.key.job, run.key.run_id
    choices: list[Write] = [
        StopRun(
            run_id,
            draw(st.sampled_from(StopReason)),
            draw(st.none() | COUNTS),
            draw(st.sampled_from(["", "Deadline"])),
        ),
        SuspendRun(run_id, draw(st.booleans()), draw(st.booleans())),
        LetGo(run_id, draw(st.sampled_from(list(run.members)))),
    ]
    if run.status is RunStatus.PREPARING:
        choices.append(ReleaseRun(run_id))
    limits = Limits(time_s=draw(SECONDS))
    terms = Terms(limits=limits, grace_s=draw(SECONDS), retries=draw(st.integers(0, 2)))
    choices.append(ChangeTerms(job, terms))
    if ledger.jobs[job].status.is_terminal and ledger.live_run(job) is None:
        choices.append(Restart(job))
    if ledger.jobs[job].status is JobStatus.PENDING:
        choices.append(CancelJob(job, draw(st.sampled_from(["", "Deadline"]))))
    return [draw(st.sampled_from(choices))]


def _record(draw: Draw, key: RunKey, node: NodeName) -> ExitRecord:
    return ExitRecord(
        key=key,
        node=node,
        reason=draw(st.sampled_from(ExitReason)),
        code=draw(st.sampled_from([0, 0, 1, 143])),
        signal=draw(st.sampled_from([0, 9])),
        stop=draw(st.none() | st.sampled_from(StopReason)),
        ran_s=draw(SECONDS),
        detail=draw(WORDS),
        nodes=(node,) * draw(st.integers(0, 2)),
        request_id=RequestId(draw(st.sampled_from(["", "q1"]))),
        at=draw(st.none() | SECONDS),
        stuck=draw(st.booleans()) and draw(st.booleans()),
    )


def _end(draw: Draw, ledger: Ledger, numbers: itertools.count[int]) -> list[Write]:
    """A member of any run, over already or not, is over; a late record is the interesting case."""
    if not ledger.runs:
        return []
    run = draw(st.sampled_from(list(ledger.runs.values())))
    node = draw(st.sampled_from(list(run.members)))
    if draw(st.booleans()):
        again = draw(st.sampled_from([None, RunId(f"run{next(numbers)}")]))
        return [MemberOver(run.key.run_id, node, exit=_record(draw, run.key, node), again=again)]
    return [MemberOver(run.key.run_id, node, presumed=draw(st.sampled_from(["lost", *NONE_LEFT])))]


def _node_changes(draw: Draw, ledger: Ledger, _: itertools.count[int]) -> list[Write]:
    name = draw(st.sampled_from(NODES))
    count = draw(st.integers(0, 3))
    register = RegisterNode(
        node=name,
        boot_id=BootId(draw(WORDS)),
        incarnation=Incarnation(draw(COUNTS)),
        inventory=Inventory(
            gpus=tuple(GpuId(f"{name}-{k}") for k in range(count)), can_fence=draw(st.booleans())
        ),
    )
    if name not in ledger.nodes:
        return [register]
    gpus = st.sampled_from([GpuId(f"{name}-{k}") for k in range(4)])
    choices: list[Write] = [
        register,
        SetNode(name, draw(st.sampled_from(NodeStatus)), draw(WORDS)),
        SetWitnesses(name, (tuple(NODES[: draw(st.integers(0, 3))]), tuple(NODES))),
        Quarantine(name, tuple(draw(st.lists(gpus, unique=True, max_size=3)))),
        RaiseRevision(name, Revision(draw(COUNTS))),
        RaiseEpoch(Epoch(ledger.epoch + draw(st.integers(-1, 2)))),
    ]
    return [draw(st.sampled_from(choices))]


def _orphans(draw: Draw, ledger: Ledger, numbers: itertools.count[int]) -> list[Write]:
    if not ledger.nodes:
        return []
    if ledger.orphans and draw(st.booleans()):
        place = draw(st.sampled_from(list(ledger.orphans)))
        key = ledger.orphans[place].held.key
        record = draw(st.none() | st.just(_record(draw, key, place[0])))
        return [OrphanOver(place[0], place[1], record)]
    node = draw(st.sampled_from(list(ledger.nodes)))
    known = list(ledger.jobs.values())
    job = draw(st.sampled_from(known)) if known and draw(st.booleans()) else None
    key = RunKey(
        job.job if job is not None else JobId(draw(st.integers(1, 99))),
        RunNumber(draw(st.integers(1, 4))),
        RunId(f"lost{next(numbers)}"),
    )
    same = job is not None and draw(st.booleans())
    held = HeldRun(
        key=key,
        phase=draw(st.sampled_from(Phase)),
        gpus=(GpuId("x"),),
        nodes=(node,),
        request_id=job.request.request_id if job is not None and same else RequestId("other"),
    )
    return [Adopt(held, node)]


def possible(ledger: Ledger, writes: list[Write]) -> Ledger | None:
    """The ledger after some writes, or None where the protocol refuses them."""
    try:
        for write in writes:
            ledger = apply(ledger, write)
    except (InvariantBroken, KeyError):
        return None
    return ledger


@pytest.fixture(scope="module", params=["sqlite", "postgres"])
def fresh(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Emptied]:
    """Empties the store and returns it, many times a test."""
    cluster = request.getfixturevalue("postgres_cluster") if request.param == "postgres" else None
    yield from emptied_store(tmp_path_factory.mktemp("store"), cluster)


def check_all(store: Store, ledger: Ledger) -> None:
    """What lives is loaded, and all the rest is found."""
    assert store.load().ledger == live_part(ledger)
    runs = {run.key.run_id: (job, run) for job, run in store.run_lookup(ledger.runs)}
    assert {run_id: run for run_id, (_, run) in runs.items()} == ledger.runs
    jobs = store.protocol_jobs(ledger.jobs)
    assert jobs.keys() == ledger.jobs.keys()
    for number, job in ledger.jobs.items():
        assert jobs[number] == job
    assert all(job == jobs[run.key.job] for job, run in runs.values())


@given(data=st.data())
@settings(
    max_examples=25,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
)
def test_any_writes_are_stored_as_the_ledger_applies_them(
    fresh: Emptied, data: st.DataObject
) -> None:
    store = fresh()
    term = store.contend("d1")
    assert term is not None
    ledger, numbers = store.load().ledger, itertools.count(1)
    for number in range(1, data.draw(st.integers(1, 8)) + 1):
        transaction: list[Write] = []
        epoch, after = ledger.epoch, ledger
        for _ in range(data.draw(st.integers(1, 6))):
            drawn = data.draw(writes_on(after, numbers))
            result = possible(after, drawn)
            if result is not None:
                after = result
                transaction += drawn
        store.persist(epoch, number, transaction, 100.0 + number)
        assert after == apply_all(ledger, transaction)
        ledger = after
        assert store.load().ledger == live_part(ledger)
    check_all(store, ledger)


def _restores(faults: Faults) -> bool:
    return any(fault.kind == "restore" for fault in faults.faults)


@pytest.mark.parametrize("theme", sorted(set(schedules.THEMES) - {"restore"}))
def test_what_a_simulated_cluster_writes_is_stored_as_its_ledger_says(
    fresh: Emptied, theme: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Crashes, cuts, lost nodes and late ends write what no careful test would think of."""
    done: list[tuple[Any, Ledger]] = []
    contend, write = Database.contend, Database.write

    def contend_too(self: Database, name: str, now: float, alive: bool) -> Ledger | None:
        given = contend(self, name, now, alive)
        if given is not None:
            done.append((name, given))
        return given

    def write_too(self: Database, name: str, transaction: Any) -> bool:
        before = self.ledger
        accepted = write(self, name, transaction)
        if self.ledger is not before:
            done.append((transaction, self.ledger))
        return accepted

    monkeypatch.setattr(Database, "contend", contend_too)
    monkeypatch.setattr(Database, "write", write_too)
    seeds = (s for s in range(5, 60) if not _restores(schedules.world(theme, s).faults))
    schedules.play(theme, next(seeds))
    store = fresh()
    last = Ledger()
    for k, (what, ledger) in enumerate(done):
        if isinstance(what, str):
            term = store.contend(what)
            assert term is not None
            assert term.epoch == ledger.epoch
        else:
            store.persist(what.epoch, what.number, what.writes, float(k))
        if k % 7 == 0:
            assert store.load().ledger == live_part(ledger)
        last = ledger
    assert len(done) > 10
    check_all(store, last)
