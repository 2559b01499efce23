"""Which checkpoints of ended jobs the site's rule keeps."""

from __future__ import annotations

from typing import Any

import pytest

from dlsched.daemon.settings import CheckpointsSection
from dlsched.daemon.training.pruning import beyond_rule, marked
from dlsched.db.checkpoints import DELETED, DOOMED, RegisteredCheckpoint
from dlsched.protocol.messages import JobId, NodeName, RunId, RunNumber


def row(number: int, job: int, user: str, ended_at: float, source: int | None = None) -> Any:
    return RegisteredCheckpoint(
        id=number,
        job=JobId(job),
        array_job=None,
        array_task=None,
        user=user,
        uid=1001,
        source=None if source is None else JobId(source),
        run_id=RunId("r"),
        run=RunNumber(1),
        node=NodeName("n1"),
        at=0.0,
        path=f"/c/{number}",
        step=number,
        size_bytes=100,
        loss=None,
        state="kept",
        ended_at=ended_at,
    )


ROWS = [  # latest first
    row(7, 3, "bob", 90.0),
    row(6, 2, "ann", 80.0, source=1),
    row(5, 2, "ann", 80.0),
    row(4, 2, "ann", 80.0),
    row(3, 1, "ann", 10.0),
    row(2, 1, "ann", 10.0),
]


@pytest.mark.parametrize(
    ("rule", "gone"),
    [
        ({}, []),
        ({"keep": 1}, [5, 4]),
        ({"keep": 0}, [7, 6, 5, 4, 2]),
        ({"max_age_s": 50.0}, [2]),
        ({"max_bytes": 200}, [2]),
        ({"max_bytes": 199}, [4, 2]),
        ({"max_bytes": 0, "max_age_s": 15.0}, [7, 6, 5, 4, 2]),
    ],
)
def test_what_is_beyond_the_rule(rule: dict[str, Any], gone: list[int]) -> None:
    section = CheckpointsSection(**rule)
    found = beyond_rule(ROWS, section, 100.0, lambda job, path: (job, path) == (1, "/c/3"))
    assert [each.id for each in found] == gone


def test_files_of_another_job_are_let_go_and_not_deleted() -> None:
    marks = list(marked(ROWS[:3]))
    assert [(mark.job, mark.ids, mark.state) for mark in marks] == [
        (3, (7,), DOOMED),
        (2, (5,), DOOMED),
        (2, (6,), DELETED),
    ]
