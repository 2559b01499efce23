"""Records of messages: nothing is lost, and what a message does not say costs nothing."""

from __future__ import annotations

from dlsched.client.job_reading import job_of, queue_of, queue_page_of
from dlsched.client.job_records import Job, Step, Summary
from dlsched.rpc.v1 import control_pb2 as c
from dlsched.rpc.v1 import run_pb2
from tests.counting import python_calls

WAITING = c.JobView(
    job=7, name="train", user="ann", state="PENDING", reason="Resources", gpus=2, gang=[1, 1],
    gpu_types=["a100"], submitted_at=5.0, position=3,
)  # fmt: skip


def test_what_is_not_said_is_the_default() -> None:
    assert job_of(c.JobView()) == Job(job_id=0)
    assert job_of(WAITING) == Job(
        job_id=7, name="train", user="ann", state="PENDING", reason="Resources", gpus=2,
        gang=(1, 1), gpu_types=("a100",), submitted_at=5.0, position=3,
    )  # fmt: skip


def test_zero_is_said_where_a_message_can_say_it() -> None:
    job = job_of(c.JobView(run_s=0.0, code=0, array_job=5, array_task=0))
    assert (job.run_s, job.exit_code, job.array_job_id, job.array_task_id) == (0.0, 0, 5, 0)
    assert (job.progress, job.exit_signal) == (None, None)


def test_parts_of_a_job_are_read() -> None:
    view = c.JobView(
        nodes=["n1", "n2"],
        where=[c.GpusOnNode(node="n1", gpus=[0, 3])],
        dependencies=[c.Dependency(kind="afterok", job=5)],
        steps=[run_pb2.StepRecord(number=1, tasks=2)],
        training=c.TrainingNow(loss=0.5, metrics={"b": 2.0, "a": 1.0}, not_finite=["c"]),
        gpu_share=0.5,
        asked=c.JobRequest(memory_bytes=1024),
    )
    job = job_of(view)
    assert (job.nodes, job.gpu_indices) == (("n1", "n2"), {"n1": (0, 3)})
    assert (job.dependencies, job.steps) == (("afterok:5",), (Step(number=1, tasks=2),))
    assert (job.loss, list(job.metrics), job.not_finite) == (0.5, ["a", "b"], ("c",))
    assert (job.asked["gpu_share"], job.asked["memory_bytes"]) == (0.5, 1024)


def test_a_record_of_a_list_has_what_its_message_says_and_no_more() -> None:
    """A list has ten thousand of them: no call and no value for the 60 other fields."""
    assert len(vars(job_of(WAITING))) <= len(WAITING.ListFields()) + 3
    page = c.QueuePage(jobs=[WAITING] * 1000)
    assert python_calls(lambda: queue_page_of(page)) < 5 * 1000


def test_pages_make_one_queue() -> None:
    folded = c.FoldedView(first=WAITING, tasks="1-3", count=3)
    pages = [
        c.QueuePage(jobs=[WAITING]),
        c.QueuePage(jobs=[c.JobView(job=8)], folded=[folded], summary=c.QueueSummary(pending=5)),
    ]
    found = queue_of([queue_page_of(page) for page in pages])
    assert [job.job_id for job in found.jobs] == [7, 8]
    assert [(line.first.job_id, line.tasks, line.count) for line in found.folded] == [(7, "1-3", 3)]
    assert found.summary.pending == 5
    assert queue_of([]).summary == Summary()
