"""What jobs of sweeps have reached is stored once, and read back whole."""

from __future__ import annotations

from dataclasses import replace

from dlsched.db.records import ArrayShape, JobSpec
from dlsched.db.rungs import RungReached
from dlsched.db.store import Store
from dlsched.jobs.sweep import Halving, Sweep
from dlsched.protocol.ledger import Attach, CancelJob, Submit
from dlsched.protocol.messages import Epoch, JobId
from tests.db.ledgers import submit, submit_array

SWEEP = Sweep(
    columns=("lr", "note"),
    rows=(("0.1", "it's"), ("0.2", '"{x}" é')),
    halving=Halving(rung=100, most=900),
)


def submit_sweep(first: int) -> list[Submit]:
    """Two jobs, of which each has its parameters in its name."""
    shape = ArrayShape(tasks=(1, 2), limit=1, sweep=SWEEP)
    found = []
    for each in submit_array(first, 2):
        spec = each.request.spec
        assert isinstance(spec, JobSpec)
        spec = replace(spec, array=shape, body=replace(spec.body, name="x-{lr}"))
        found.append(replace(each, request=replace(each.request, spec=spec)))
    return found


def test_a_sweep_and_its_names_come_back(store: Store, epoch: Epoch) -> None:
    store.persist(epoch, 1, submit_sweep(1), 1.0)
    specs = [job.request.spec for job in store.load().ledger.jobs.values()]
    assert [spec.array.sweep for spec in specs] == [SWEEP, SWEEP]  # type: ignore[union-attr]
    assert [spec.name for spec in specs] == ["x-0.1", "x-0.2"]  # type: ignore[union-attr]
    store.persist(epoch, 2, [CancelJob(JobId(2), "user")], 2.0)
    (ended,) = store.history()
    assert ended.spec is not None
    assert ended.spec.parameters == {"lr": "0.2", "note": '"{x}" é'}


def test_the_first_value_at_a_rung_stays(store: Store, epoch: Epoch) -> None:
    first = RungReached(job=JobId(1), rung=100, step=103, value=0.5)
    nan = RungReached(job=JobId(2), rung=100, step=100, value=None)
    later = replace(first, rung=300, step=310, value=0.25)
    writes = [*submit_sweep(1), submit(3), Attach(first), Attach(nan), Attach(later)]
    store.persist(epoch, 1, writes, 1.0)
    store.persist(epoch, 2, [Attach(replace(first, step=999, value=9.0))], 2.0)
    assert store.rungs(JobId(1)) == [first, later, nan]
    assert store.rungs(JobId(3)) == []


def test_a_stop_is_stored_in_whatever_transaction_it_comes(store: Store, epoch: Epoch) -> None:
    one = RungReached(job=JobId(1), rung=100, step=103, value=0.5)
    two = replace(one, job=JobId(2))
    store.persist(epoch, 1, [*submit_sweep(1), Attach(one)], 1.0)
    stops = [Attach(replace(one, stopped=True)), Attach(two), Attach(replace(two, stopped=True))]
    store.persist(epoch, 2, stops, 2.0)
    store.persist(epoch, 3, [Attach(one)], 3.0)  # a late report changes nothing
    assert store.rungs(JobId(1)) == [replace(one, stopped=True), replace(two, stopped=True)]
