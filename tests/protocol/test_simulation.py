"""Seeded schedules of faults, crash points walked one by one, and the bugs that were found so."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dlsched.core.errors import InvariantBroken
from dlsched.protocol.ledger import JobStatus, Request
from dlsched.protocol.messages import Fence, LaunchMode, RequestId
from tests.protocol.simulation import Behaviour, Fault, Faults, World, schedules

ONE = Request(request_id=RequestId("one"))
GANG = Request(request_id=RequestId("gang"), gang=(1, 1), mode=LaunchMode.NODE)
SHORT = Behaviour(work_s=5.0)
FIRST, BATCH = 2, 5  # seeds a test, so that workers share them


@pytest.mark.parametrize("theme", sorted(schedules.THEMES))
@pytest.mark.parametrize(
    "seeds",
    [
        range(FIRST),
        *(
            pytest.param(range(first, first + BATCH), marks=mark)
            for mark, seeds in ((pytest.mark.slow, (FIRST, 32)), (pytest.mark.exhaustive, (32, 62)))
            for first in range(*seeds, BATCH)
        ),
    ],
    ids=lambda seeds: f"{seeds[0]}-{seeds[-1]}",
)
def test_short_schedules_keep_every_promise(theme: str, seeds: range) -> None:
    for seed in seeds:
        schedules.play(theme, seed)


@pytest.mark.exhaustive
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("theme", sorted(schedules.THEMES))
@pytest.mark.parametrize("first", range(1000, 2000, 250))
def test_thousands_of_schedules_keep_every_promise(theme: str, first: int) -> None:
    for seed in range(first, first + 250):
        schedules.play(theme, seed)


@given(theme=st.sampled_from(sorted(schedules.THEMES)), seed=st.integers(10_000, 10**9))
@settings(max_examples=20)
def test_any_seed_keeps_every_promise(theme: str, seed: int) -> None:
    schedules.play(theme, seed)


def test_the_same_seed_tells_the_same_story() -> None:
    first, second = schedules.play("two-leaders", 3), schedules.play("two-leaders", 3)
    assert first.lines == second.lines


# Each seed once broke a promise; the name says what was wrong.
FOUND = {
    "a job at its time limit whose processes were stuck was run again for ever": ("calm", 11),
    "a database older than the nodes was noticed only after it had been spoken from": (
        "restore",
        29,
    ),
    "a registration could not be asked for under a term that had stepped back": ("restore", 128),
    "a leader's second term reused the transaction numbers of its first": ("two-leaders", 135),
    "a fenced run that had got TERM was taken for thawed and then killed": ("lease", 54),
    "a time limit was told of a job whose script had ended on a lost node": ("lease", 1700),
    "an adopted stopping run was waited for after a restore": ("restore", 44),
    "a job that was to start again left memory before that was committed": ("again", 91),
    "a late record of a lost run was taken for the end that is repeated": ("lease", 1541),
    "a process that was killed before its node fell silent counted as fenced": ("joining", 1132),
    "a process that could not be killed was forgotten until its GPUs were closed": (
        "joining",
        5278,
    ),
    "a run that was being killed got work when its gang was complete": ("again", 5275),
    "the process of a lost keeper was forgotten where nothing fences": ("unfenced", 20457),
    "a run that was killed ended by itself with 0": ("joining", 5119),
    "an end that no keeper had seen counted as one": ("paused keepers", 5550),
    "a run got its GPUs back before an unknown one was heard there": ("giving way", 5168),
    "a job waited for a process that had ended": ("again", 20094),
    "a lost keeper failed a job that gave way": ("giving way", 1021),
    "a lost keeper failed a gang that gave way": ("gangs", 5116),
    "a job left memory while it was queued again and cancelled": ("again", 1415288415),
    "GPUs were given away before their frozen run was dead": ("joining", 1691152784),
    "a terminal job was to follow a record that came too late": ("joining", 1691152539),
    "an end was lost with its disk more than once": ("lost records", 1286565630),
    "a run whose end was acknowledged executed again for an older database": (
        "restore",
        4094851402,
    ),
    "a run without a trace, of which no daemon knew any more, counted as forgotten": (
        "lost records",
        2353696836,
    ),
    "what an operator knew of one node was taken for another": ("unfenced", 2965614864),
    "jobs that had more to do than the time of a schedule counted as a hang": (
        "switched off",
        1637183989,
    ),
}


@pytest.mark.parametrize("name", sorted(FOUND))
def test_a_bug_that_was_found_stays_fixed(name: str) -> None:
    schedules.play(*FOUND[name])


def test_jobs_that_are_never_placed_count_as_a_hang(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(World, "first_fit", lambda *_: ())
    with pytest.raises(InvariantBroken, match="liveness: job 1 is still pending"):
        schedules.play("switched off", 1637183989)


def walk(fails: int = 0, **kinds: Any) -> int:
    """Crash the party of every persist point, before and after it; how many points there were.

    Every job completes and is charged for its own failures alone. A keeper that crashes may take
    the run that would have failed with it: that run is repeated, and its failure never was.
    """

    def run(crash: Any) -> World:
        world = World(seed=1, crash=crash, **kinds).run_until_done(400.0)
        world.run(world.now + 20.0)
        world.checker.settled()
        return world

    points = run(None).points
    for number in range(1, len(points) + 1):
        for when in ("before", "after"):
            world = run((number, when))
            for job in world.database.ledger.jobs.values():
                found = (points[number - 1], when, job.story)
                own = {0, fails} if points[number - 1].endswith("keeper") else {fails}
                assert job.status is JobStatus.COMPLETED, found
                assert job.failures in own, found
    return len(points)


def test_every_crash_point_of_a_one_node_job() -> None:
    assert walk(nodes=1, jobs=[(ONE, SHORT)]) >= 12


def test_every_crash_point_of_a_two_node_gang() -> None:
    assert walk(nodes=2, jobs=[(GANG, SHORT)]) >= 22


def test_every_crash_point_with_a_standby() -> None:
    assert walk(nodes=2, leaders=2, jobs=[(GANG, SHORT)]) >= 22


@pytest.mark.slow
def test_every_crash_point_of_a_preempted_gang() -> None:
    preempt = Faults(faults=(Fault(at=8.0, kind="preempt", target="1"),))
    behaviour = Behaviour(work_s=12.0)
    assert walk(nodes=2, jobs=[(GANG, behaviour)], faults=preempt) >= 40


RETRIED = Request(
    request_id=RequestId("again"), gang=(1, 1), mode=LaunchMode.NODE, retries=2, user="ann"
)
FAILS_ONCE = Behaviour(work_s=6.0, code=3, fails=1, alone=True)


@pytest.mark.slow
def test_every_crash_point_of_a_gang_that_is_repeated_in_place() -> None:
    assert walk(fails=1, nodes=2, jobs=[(RETRIED, FAILS_ONCE)]) >= 30


def test_a_failed_gang_keeps_its_gpus_before_a_job_that_waits_for_them() -> None:
    waiting = Request(request_id=RequestId("waits"), gang=(2,))
    jobs = [(RETRIED, FAILS_ONCE), (waiting, SHORT)]
    world = World(nodes=2, jobs=jobs, whole_runs=True).run_until_done(200.0)
    world.checker.settled()
    gang, other = world.database.ledger.jobs.values()
    assert (gang.status, gang.runs, gang.failures) == (JobStatus.COMPLETED, 2, 1)
    assert other.status is JobStatus.COMPLETED
    assert [run_id.partition("-")[0] for _, run_id in world.executions] == [*"1111", "2"]
    assert "stopping -> starting: restarted in place after exit 3 on" in " ".join(gang.story)
    assert world.checker.repeated == 1


def test_runs_that_fail_at_once_leave_their_gpus_and_pause_ever_longer() -> None:
    short = Behaviour(work_s=1.5, code=3)
    request = Request(request_id=RequestId("fast"), retries=6)
    world = World(nodes=1, gpus=1, jobs=[(request, short)]).run_until_done(300.0)
    world.checker.settled()
    [job] = world.database.ledger.jobs.values()
    assert (job.status, job.failures) == (JobStatus.FAILED, 6)
    assert world.checker.repeated == 1  # the first one: it had executed for more than a second


def test_an_ended_job_that_its_user_wants_back_runs_again_and_no_other_does() -> None:
    asked = Faults(faults=tuple(Fault(at=40.0, kind="requeue", target=k) for k in "12"))
    other = Request(request_id=RequestId("other"))
    jobs = [(ONE, Behaviour(work_s=5.0, code=3)), (other, Behaviour(work_s=100.0)), (GANG, SHORT)]
    world = World(nodes=2, jobs=jobs, faults=asked).run_until_done(300.0)
    world.checker.settled()
    found = [(job.status, job.runs) for job in world.database.ledger.jobs.values()]
    assert found == [
        (JobStatus.FAILED, 2),
        (JobStatus.COMPLETED, 2),
        (JobStatus.COMPLETED, 1),
    ]


def test_schedules_repeat_runs_in_place_and_bring_ended_jobs_back() -> None:
    worlds = [schedules.play("again", seed) for seed in (3, 5, 7, 8)]
    assert sum(world.checker.repeated for world in worlds) >= 3
    assert sum(len(world.checker.began_again) for world in worlds) >= 2


def test_jobs_run_on_without_the_daemon_and_their_ends_are_delivered_later() -> None:
    away = Faults(faults=(Fault(at=10.0, kind="crash leader", target="d1", for_s=350.0),))
    jobs = [(ONE, Behaviour(work_s=300.0)), (Request(request_id=RequestId("b")), Behaviour(code=7))]
    world = World(jobs=jobs, faults=away).run(355.0)
    assert not world.processes
    assert not any("signal" in line or "frozen" in line for _, _, line in world.lines)
    world.run_until_done(500.0)
    first, second = world.database.ledger.jobs.values()
    assert (first.status, second.status) == (JobStatus.COMPLETED, JobStatus.FAILED)
    assert second.exit is not None
    assert second.exit.code == 7


def test_fenced_jobs_extend_their_own_lease_while_the_daemon_is_away() -> None:
    away = Faults(faults=(Fault(at=10.0, kind="crash leader", target="d1", for_s=350.0),))
    request = Request(request_id=RequestId("l"), fence=Fence.LEASE)
    world = World(nodes=3, jobs=[(request, Behaviour(work_s=300.0))], faults=away).run(355.0)
    assert not any("signal" in line or "frozen" in line for _, _, line in world.lines)


def test_a_cut_off_fenced_job_freezes_in_time_and_restarts_elsewhere() -> None:
    request = Request(request_id=RequestId("l"), fence=Fence.LEASE)
    jobs = [(request, Behaviour(work_s=120.0))]
    home = World(nodes=4, jobs=jobs).run(29.0).executions[0][0]
    cut = Faults(faults=(Fault(at=30.0, kind="cut", target=home, other="*", for_s=130.0),))
    world = World(nodes=4, jobs=jobs, faults=cut).run_until_done(600.0)
    frozen = next(time for time, where, text in world.lines if where == home and "frozen" in text)
    again = next(time for time, _, text in world.lines if "1.2 executes" in text)
    assert 55.0 < frozen < 65.0
    assert 90.0 < again < 110.0
    assert world.database.ledger.jobs[next(iter(world.database.ledger.jobs))].runs == 2


def test_a_confirmed_dead_node_gives_its_job_to_another() -> None:
    jobs = [(ONE, Behaviour(work_s=60.0))]
    home = World(nodes=2, jobs=jobs).run(9.0).executions[0][0]
    faults = (
        Fault(at=10.0, kind="reboot", target=home, for_s=300.0),
        Fault(at=40.0, kind="node down", target=home),
    )
    world = World(nodes=2, jobs=jobs, faults=Faults(faults=faults)).run(150.0)
    job = next(iter(world.database.ledger.jobs.values()))
    assert (job.status, job.runs) == (JobStatus.COMPLETED, 2)


def test_a_fast_reboot_is_noticed_without_any_window() -> None:
    jobs = [(ONE, Behaviour(work_s=30.0))]
    faults = Faults(faults=(Fault(at=10.0, kind="reboot", target="n1", for_s=3.0),))
    world = World(nodes=1, jobs=jobs, faults=faults).run(60.0)
    job = next(iter(world.database.ledger.jobs.values()))
    assert (job.status, job.runs) == (JobStatus.COMPLETED, 2)


def test_cancelling_a_suspended_job_is_quick() -> None:
    faults = (
        Fault(at=10.0, kind="suspend", target="1"),
        Fault(at=20.0, kind="cancel", target="1"),
    )
    jobs = [(ONE, Behaviour(work_s=60.0, on_term="ignore"))]
    world = World(nodes=1, jobs=jobs, faults=Faults(faults=faults), resumes=False).run(21.0)
    job = next(iter(world.database.ledger.jobs.values()))
    assert job.status is JobStatus.CANCELLED


def test_a_gang_that_is_cancelled_while_it_prepares_starts_nowhere() -> None:
    faults = Faults(faults=(Fault(at=4.05, kind="cancel", target="1"),))
    world = World(nodes=2, jobs=[(GANG, SHORT)], faults=faults).run(40.0)
    world.checker.settled()
    assert next(iter(world.database.ledger.jobs.values())).status is JobStatus.CANCELLED
    assert not world.executions
    assert world.ever_reserved


def test_a_gang_whose_member_cannot_prepare_starts_nowhere() -> None:
    cut = Faults(faults=(Fault(at=4.02, kind="cut", target="n2", other="d1", for_s=60.0),))
    world = World(nodes=2, jobs=[(GANG, SHORT)], faults=cut).run(60.0)
    job = next(iter(world.database.ledger.jobs.values()))
    assert (job.status, job.failures) == (JobStatus.STOPPING, 0)  # n2 has not said that it is over
    assert not world.executions
    world.run_until_done(200.0)
    assert next(iter(world.database.ledger.jobs.values())).status is JobStatus.COMPLETED


@pytest.mark.parametrize(("retries", "end"), [(1, JobStatus.COMPLETED), (0, JobStatus.FAILED)])
def test_a_late_failure_ends_no_job_that_has_retries_left(retries: int, end: JobStatus) -> None:
    """The only node is cut off, given up after the job has failed there, and comes back."""
    faults = Faults(
        faults=(
            Fault(at=10.0, kind="cut", target="n1", other="d1", for_s=70.0),
            Fault(at=50.0, kind="node down", target="n1"),
        )
    )
    request = Request(request_id=RequestId("late"), retries=retries)
    behaviour = Behaviour(work_s=20.0, code=3, fails=1)
    world = World(nodes=1, gpus=1, jobs=[(request, behaviour)], faults=faults)
    world.run_until_done(400.0).checker.settled()
    [job] = world.database.ledger.jobs.values()
    assert (job.status, job.runs, job.failures) == (end, 1 + retries, 0)
