"""The verdict on the end of a run, case by case from the table in `docs/how-runs-end.md`."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from dlsched.protocol import keeper, ledger
from dlsched.protocol import messages as m
from dlsched.protocol.ledger import Cause

PAGE = Path(__file__).parents[2] / "docs" / "how-runs-end.md"
KEY = m.RunKey(m.JobId(1), m.RunNumber(1), m.RunId("r1"))
CAUSES = {
    "completed": Cause.COMPLETED,
    "failed": Cause.FAILED,
    "queued again": Cause.REQUEUED,
    "cancelled": Cause.CANCELLED,
    "timeout": Cause.TIMED_OUT,
}


def _cases() -> list[tuple[str, str, str, str]]:
    text = PAGE.read_text(encoding="utf-8")
    rows = text.partition("| case | stop |")[2].partition("\n\n")[0].splitlines()[2:]
    cells = [[cell.strip() for cell in row.strip("|").split("|")] for row in rows]
    return [(name, stop, end, verdict) for name, stop, end, verdict in cells]


CASES = _cases()


def record(node: str, stop: m.StopReason | None, told: str) -> m.ExitRecord | None:
    """The exit record of one node, from the words of the table; None: nothing is recorded."""
    if told == "nothing":
        return None
    made = m.ExitRecord(key=KEY, node=m.NodeName(node), reason=m.ExitReason.EXITED)
    for word in told.split(", "):
        kind, _, number = word.partition(" ")
        match kind:
            case "asked":
                made = replace(made, stop=stop)
            case "TERM":
                made = replace(made, stop=stop, term_s=2.0)
            case "time-limit":
                made = replace(made, stop=m.StopReason.TIME_LIMIT)
            case "agreed":
                made = replace(made, told=m.Told.STOPPED)
            case "finished":
                made = replace(made, told=m.Told.FINISHED)
            case "checkpoint":
                made = replace(made, checkpoint=41)
            case "exit":
                late = made.stop is m.StopReason.TIME_LIMIT and int(number) > 0
                reason = m.ExitReason.TIME_LIMIT if late else m.ExitReason.EXITED
                made = replace(made, reason=reason, code=int(number))
            case "signal":
                made = replace(made, reason=m.ExitReason.SIGNALLED, signal=int(number))
            case _:
                made = replace(made, reason=m.ExitReason(kind))
    return made


def judged(
    stop_word: str, end: str, *, mode: m.LaunchMode = m.LaunchMode.NODE
) -> tuple[Cause, str, m.ExitRecord | None]:
    """The verdict on a run that ends as a row of the table says."""
    return ledger.judge(*ended(stop_word, end, mode=mode))


def ended(
    stop_word: str, end: str, *, mode: m.LaunchMode = m.LaunchMode.NODE
) -> tuple[ledger.Run, ledger.Job]:
    """A run that ends as a row of the table says, and its job."""
    stop = None if stop_word == "-" else m.StopReason(stop_word)
    members = {}
    for number, told in enumerate(end.split(" / "), 1):
        name = m.NodeName(f"n{number}")
        members[name] = ledger.Member(
            node=name,
            gpus=(m.GpuId("g"),),
            boot_id=m.BootId("b"),
            since=m.Term(),
            exit=record(name, stop, told),
            presumed="gone" if told == "nothing" else "",
        )
    by_node = stop in (m.StopReason.TIME_LIMIT, m.StopReason.OVER)  # the leader has not asked
    run = ledger.Run(
        key=KEY,
        status=ledger.RunStatus.OVER,
        members=members,
        epoch=m.Epoch(1),
        stop=None if by_node else stop,
        released=True,
    )
    request = ledger.Request(request_id=m.RequestId("q"), mode=mode)
    return run, ledger.Job(job=KEY.job, request=request)


@pytest.mark.parametrize(
    ("stop", "end", "verdict"), [c[1:] for c in CASES], ids=[c[0] for c in CASES]
)
def test_the_end_of_a_run_means_what_the_table_says(stop: str, end: str, verdict: str) -> None:
    assert judged(stop, end)[0] is CAUSES[verdict]


def test_the_table_has_every_verdict_and_every_reason_of_an_end() -> None:
    assert {case[3] for case in CASES} == set(CAUSES)
    told = " ".join(case[2] for case in CASES)
    reasons = {reason.value for reason in m.ExitReason} - {"exited", "signalled"}
    assert all(reason in told for reason in reasons)
    assert {stop.value for stop in m.StopReason} <= {case[1] for case in CASES}


@pytest.mark.parametrize(
    ("stop", "end", "why"),
    [
        (
            "preempt",
            "asked, agreed, checkpoint, exit 0",
            "preempted (stopped by agreement, checkpoint of step 41)",
        ),
        ("migrate", "TERM, exit 1", "moved (exit 1, 2.0 s after TERM)"),
        ("preempt", "asked, exit 1", "preempted"),
        ("time-limit", "asked, agreed, checkpoint, exit 0", "time limit (checkpoint of step 41)"),
        ("-", "agreed, exit 0", "exit 0, which the scheduler did not ask for"),
        ("peer", "TERM, exit 1 / signal 11", "signal 11"),
    ],
)
def test_the_verdict_is_told_in_plain_words(stop: str, end: str, why: str) -> None:
    assert judged(stop, end)[1] == why


def gang(*records: m.ExitRecord, released: bool = True) -> tuple[Cause, str, m.ExitRecord | None]:
    """The verdict on a gang whose nodes end with these records, in the order of its layout."""
    members = {
        each.node: ledger.Member(
            node=each.node,
            gpus=(m.GpuId("g"),),
            boot_id=m.BootId("b"),
            since=m.Term(),
            exit=replace(each, nodes=tuple(one.node for one in records)),
        )
        for each in records
    }
    status = ledger.RunStatus.OVER
    run = ledger.Run(
        key=KEY,
        status=status,
        members=members,
        epoch=m.Epoch(1),
        stop=m.StopReason.PEER if released else m.StopReason.ABORT,
        released=released,
    )
    request = ledger.Request(request_id=m.RequestId("q"), mode=m.LaunchMode.GPU)
    return ledger.judge(run, ledger.Job(job=KEY.job, request=request))


@pytest.mark.parametrize(
    "victim", [{"stop": m.StopReason.ABORT}, {"detail": m.NOT_RELEASED_IN_TIME}], ids=str
)
def test_a_gang_that_could_not_start_names_the_node_that_could_not(
    victim: dict[str, object],
) -> None:
    refused = m.ExitReason.NOT_STARTED
    first = m.ExitRecord(key=KEY, node=m.NodeName("n1"), reason=refused, **victim)
    second = m.ExitRecord(key=KEY, node=m.NodeName("n2"), reason=refused, detail="no space on n2")
    assert gang(first, second, released=False)[1] == "n2: not-started no space on n2"


def test_a_gang_that_failed_names_the_node_that_failed_first_and_its_words() -> None:
    late = m.ExitRecord(
        key=KEY, node=m.NodeName("n1"), reason=m.ExitReason.EXITED, code=1, ran_s=7.5,
        detail="rank 0: RuntimeError: Connection reset by peer",
    )  # fmt: skip
    words = "rank 3: ValueError:\x1b[31m bad\nshard " + "x" * 1000
    first = replace(late, node=m.NodeName("n2"), code=7, ran_s=7.4, detail=words)
    cause, why, record = gang(late, first)
    assert (cause, record.node if record else "") == (Cause.FAILED, "n2")
    assert why.startswith("rank 3 on n2: exit 7: ValueError: [31m bad shard xxx")
    assert why.endswith("x…")
    assert len(why) < 330
    for left in ({"code": 143}, {"code": 0, "signal": 15}):  # while the other ranks were ended
        early = replace(late, ran_s=7.0, **left)
        assert gang(early, first)[1] == why
    stopped = replace(first, stop=m.StopReason.PEER, reason=m.ExitReason.OUT_OF_MEMORY)
    assert gang(stopped, late)[1].startswith("rank 0 on n1: exit 1: RuntimeError")
    assert gang(replace(early, code=0, signal=0), replace(first, detail="rank 3"))[1] == (
        "rank 3 on n2: exit 7"
    )


def test_the_first_node_alone_decides_on_a_batch_job() -> None:
    end = "exit 0 / TERM, signal 9"
    assert judged("peer", end, mode=m.LaunchMode.BATCH)[0] is Cause.COMPLETED


def test_an_end_before_the_stop_is_recorded_without_the_stop() -> None:
    """The job has crashed, and the stop arrives while its last processes are being ended."""
    desired = m.DesiredRun(
        key=KEY, want=m.Want.RUNNING, epoch=m.Epoch(1), boot_id=m.BootId("b"), gpus=(), layout=()
    )
    state = keeper.KeeperState(node=m.NodeName("n1"), desired=desired, stage=keeper.Stage.RUNNING)
    state, _ = keeper.step(state, keeper.OrderArrived(1.0, m.Stop(reason=m.StopReason.PREEMPT)))
    asked, _ = keeper.step(state, keeper.JobExited(2.0, code=1, term_s=0.5))
    unasked, _ = keeper.step(state, keeper.JobExited(2.0, code=1, unasked=True))
    assert asked.exit is not None
    assert unasked.exit is not None
    assert (asked.exit.stop, asked.exit.term_s) == (m.StopReason.PREEMPT, 0.5)
    assert unasked.exit.stop is None


def test_the_record_of_a_job_has_what_all_nodes_used() -> None:
    run, job = ended("-", "exit 0 / exit 0")
    members = {
        name: replace(
            member, exit=replace(member.exit, cpu_s=1.5 * place, peak_memory_bytes=100 * place)
        )
        for place, (name, member) in enumerate(run.members.items(), 1)
        if member.exit is not None
    }
    _, _, found = ledger.judge(replace(run, members=members), job)
    assert found is not None
    assert (found.cpu_s, found.peak_memory_bytes) == (4.5, 200)


@pytest.mark.parametrize("reason", [m.ExitReason.NOT_STARTED, m.ExitReason.EXITED])
@pytest.mark.parametrize("fault", m.StartFault)
def test_a_run_that_a_node_could_not_start_is_queued_again_unless_a_part_has_executed(
    reason: m.ExitReason, fault: m.StartFault
) -> None:
    run, job = ended("-", "exit 126")
    [member] = run.members.values()
    assert member.exit is not None
    end = replace(member.exit, reason=reason, start_fault=fault, detail="no space")
    run = replace(run, members={member.node: replace(member, exit=end)})
    cause, why, _ = ledger.judge(run, job)
    assert (cause, "no space" in why) == (Cause.REQUEUED, True)
    never_again = replace(job, request=replace(job.request, requeue=False))
    cause, why, _ = ledger.judge(run, never_again)
    executed = reason is m.ExitReason.EXITED
    assert cause is (Cause.LOST if executed else Cause.REQUEUED)
    assert why.startswith("NodeFail") is executed
