"""Jobs that come later in a snapshot that is run on: at a time, after others, in turn."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from dlsched.daemon.live.tenant_limits import limits_of_classes
from dlsched.daemon.round.forecasts.later_arrivals import later_of
from dlsched.daemon.round.running_on import RunOn, run_on
from dlsched.daemon.round.snapshot import LiveSnapshot
from dlsched.daemon.round.snapshot_builder import take_snapshot
from dlsched.db.records import ArrayShape, Dependency
from dlsched.tenants.fields import PriorityClass, Quota

NOW = 10.0


def ran_on(lab: Any) -> RunOn:
    """What becomes of the jobs of a lab, through the bytes of a snapshot."""
    snapshot = replace(take_snapshot(lab.state, "full", NOW), later=later_of(lab.live, NOW))
    return run_on(LiveSnapshot.from_bytes(snapshot.to_bytes()))


def starts(found: RunOn) -> dict[int, float]:
    """When each job starts, in seconds of the policy's clock; those that never do are left out."""
    told = zip(found.jobs.tolist(), (found.start_s + NOW).tolist(), strict=True)
    return {job: at for job, at in told if not np.isnan(at)}


def a_job_of_100_s(lab: Any, **more: Any) -> int:
    number: int = lab.submit(0.0, 2, expected_s=100.0, **more)
    return number


def test_a_later_begin_a_dependency_and_a_hold(live: Any) -> None:
    lab = live.LiveLab((2,), parts={"scheduling": "fifo"})
    first = a_job_of_100_s(lab)
    lab.round(0.0)
    later = a_job_of_100_s(lab, begin_at=500.0)
    after = a_job_of_100_s(lab, dependencies=(Dependency(kind="afterok", job=first),))
    chain = a_job_of_100_s(lab, dependencies=(Dependency(kind="afterany", job=after),))
    failed = a_job_of_100_s(lab, dependencies=(Dependency(kind="afternotok", job=first),))
    found = ran_on(lab)
    assert starts(found) == {after: 100.0, chain: 200.0, later: 500.0}
    assert failed in found.jobs
    assert found.figures()["never_start"] == 1


def test_singletons_come_one_after_the_other(live: Any) -> None:
    lab = live.LiveLab((8,), parts={"scheduling": "fifo"})
    once = (Dependency(kind="singleton", job=0),)
    plain = [a_job_of_100_s(lab, name="one") for _ in range(2)]
    lab.round(0.0)
    later = [a_job_of_100_s(lab, name="one", dependencies=once) for _ in range(3)]
    other = a_job_of_100_s(lab, name="two", dependencies=once)
    lab.round(1.0)
    assert set(lab.running()) == {*plain, other}
    assert starts(ran_on(lab)) == {job: 100.0 * (k + 1) for k, job in enumerate(later)}


def test_elements_of_an_array_come_in_turn(live: Any) -> None:
    lab = live.LiveLab((8,), parts={"scheduling": "fifo"})
    shape = ArrayShape(tasks=(0, 1, 2, 3, 4), limit=2)
    jobs = [a_job_of_100_s(lab, array=shape, index=k) for k in range(5)]
    lab.round(0.0)
    assert len(lab.running()) == 2
    assert starts(ran_on(lab)) == {jobs[2]: 100.0, jobs[3]: 100.0, jobs[4]: 200.0}


def test_jobs_over_a_quota_come_when_others_of_their_tenant_have_ended(live: Any) -> None:
    lab = live.LiveLab((8,), parts={"scheduling": "fifo"})
    classes = [PriorityClass(name="urgent", gpus=4, gpus_per_user=2)]
    lab.live.set_quotas(limits_of_classes(classes), {})
    ann = [a_job_of_100_s(lab, priority_class="urgent") for _ in range(2)]
    bob = [a_job_of_100_s(lab, priority_class="urgent", user="bob") for _ in range(2)]
    cat = a_job_of_100_s(lab, priority_class="urgent", user="cat")
    lab.round(0.0)
    assert set(lab.running()) == {ann[0], bob[0]}
    found = ran_on(lab)
    assert starts(found) == {ann[1]: 100.0, bob[1]: 100.0, cat: 200.0}
    assert found.figures()["never_start"] == 0
    hours = Quota(kind="user", name="ann", gpu_hours=1.0)
    lab.live.set_quotas({("user", "ann"): hours}, {})
    lab.live.eligibility.tenant_limits.used_hours = {("user", "ann"): 2.0}
    assert ann[1] not in starts(ran_on(lab))  # it is not known when it may start


def test_an_older_snapshot_has_none(live: Any) -> None:
    lab = live.LiveLab((2,), parts={"scheduling": "fifo"})
    a_job_of_100_s(lab, begin_at=500.0)
    found = run_on(take_snapshot(lab.state, "full", NOW))
    assert found.figures()["never_start"] == 1
