"""Lines of a list are made by column: they are those of its jobs one by one, and cost less."""

from __future__ import annotations

import random
from typing import Any

import pytest

from dlsched.cli.jobs.job_columns import COLUMNS, QUEUE, STATE_CODES, OfFields, lines_of, rows_of
from dlsched.cli.output.listing import chosen_columns, lines, listing
from dlsched.cli.output.terminal import Terminal
from dlsched.cli.slurm import formats
from dlsched.cli.slurm.formats import Part
from dlsched.cli.slurm.queue_cells import NAMES as NAMES_OF_SQUEUE
from dlsched.client.job_reading import queue_of, queue_page_of
from dlsched.client.job_records import Queue
from dlsched.rpc.columns import by_field, pack
from dlsched.rpc.v1 import control_pb2 as c
from tests.counting import python_calls

NAMES = (
    "train",
    "ünï",
    "日本語",
    "a%sb%",
    "x\ny",
    "\x1b[31m",
    "",
    "  two  ",
    "long-" * 12,
    "\u202e",
)
ODD: dict[str, Any] = {
    "array_job": 4,
    "array_task": 3,
    "gang": [4, 2],
    "gpu_types": ["a100", "v100"],
    "nodes": ["n1", "n2", "m10"],
    "where": [c.GpusOnNode(node="n1", gpus=[0, 1, 3])],
    "dependencies": [c.Dependency(kind="afterok", job=5, delay_s=60, or_next=True)],
    "training": c.TrainingNow(loss=0.123456, gpu_idle_s=99.0, not_finite=["loss"]),
    "started_at": 1.7e9,
    "ended_at": 1.7e9 + 50,
    "run_s": 90_000.0,
    "code": 3,
    "signal": 9,
    "time_limit_s": 600.0,
    "predicted_start_at": 1.8e9,
    "predicted_start_p10_at": 1.8e9 - 60,
    "predicted_start_p90_at": 1.8e9 + 60,
    "predicted_basis": "time limits",
    "cancelled_by": "bob",
    "comment": "50%",
    "asked": c.JobRequest(memory_bytes=2**30, cpus=3, constraint="nvlink", only_nodes=["n1"]),
}
TERMINALS = (
    Terminal(),
    Terminal(colour=True),
    Terminal(is_tty=True, colour=True, width=80, unicode=True),
)


def a_job(by: random.Random, number: int) -> dict[str, Any]:
    usual = {
        "job": number,
        "name": by.choice(NAMES),
        "user": by.choice(("ann", "bob")),
        "state": by.choice((*STATE_CODES, "PENDING", "NEWER")),
        "reason": by.choice(("", "JobHeldUser", "Resources: 90% of 8")),
        "submitted_at": 1.7e9 + number % 3,
        "gpus": by.choice((0, 1, 8)),
    }
    return usual | {name: value for name, value in ODD.items() if by.random() < 0.2}


def listed(pages: list[list[dict[str, Any]]], *, folded: bool = False) -> Queue:
    """What a client has of some pages."""
    read = []
    for number, jobs in enumerate(pages, 1):
        page = c.QueuePage()
        pack(len(jobs), by_field(jobs), page.columns)
        if folded and number == len(pages):
            page.folded.add(first=c.JobView(job=9, state="PENDING"), tasks="2-9%2", count=8)
        read.append(queue_page_of(page))
    return queue_of(read)


@pytest.mark.parametrize("seed", range(20))
def test_lines_by_column_are_those_of_the_jobs(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    now = 1.75e9
    monkeypatch.setattr("time.time", lambda: now)
    by = random.Random(seed)
    sizes = [by.choice((1, 2, 30)) for _ in range(by.randint(1, 3))] if seed else []
    found = listed(
        [[a_job(by, 10 * k + page + 1) for k in range(size)] for page, size in enumerate(sizes)],
        folded=bool(seed % 2),
    )
    for out in TERMINALS:
        for names in (QUEUE, ",".join(COLUMNS)):
            chosen = chosen_columns(COLUMNS, names)
            one_by_one = rows_of(found.rows(), now, predicted=bool(seed % 3))
            of_rows = lines_of(found, predicted=bool(seed % 3))
            by_column = list(lines(chosen, of_rows, found.lines.count, out))
            assert by_column == list(listing(chosen, one_by_one, out))


@pytest.mark.parametrize("seed", range(8))
def test_lines_of_squeue_by_column_are_those_of_the_jobs(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("time.time", lambda: 1.75e9)
    by = random.Random(seed)
    pages = [[a_job(by, 30 * page + k + 1) for k in range(30)] for page in range(2)]
    found = listed(pages, folded=bool(seed % 2))
    rows = list(rows_of(found.rows(), predicted=False))
    of_rows = lines_of(found, predicted=False)
    cells = [cell for cell in NAMES_OF_SQUEUE.values() if isinstance(cell.text, OfFields)]
    assert len(cells) > 30
    for between in (" ", "%"):
        parts = [part for cell in cells for part in (Part(cell=cell), Part(between=between))]
        by_column = list(formats.lines(parts, of_rows, found.lines.count, padded=between == " "))
        assert by_column == list(
            formats.lines(parts, *formats.of_each(rows), padded=between == " ")
        )


def test_a_line_costs_few_calls_and_equal_cells_none() -> None:
    count = 1000
    jobs = [
        {"job": k, "name": f"job{k}", "user": "ann", "state": "PENDING", "reason": "JobHeldUser"}
        for k in range(1, count + 1)
    ]
    found = listed([jobs[: count // 2], jobs[count // 2 :]])
    chosen, out = chosen_columns(COLUMNS, QUEUE), Terminal()

    def made() -> list[str]:
        return list(lines(chosen, lines_of(found, predicted=False), count, out))

    # of its id two, of its name one, and the line itself
    assert python_calls(made) < 4 * count + 500
