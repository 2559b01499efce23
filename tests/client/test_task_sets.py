"""Array grammar and job ids."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dlsched.client.job_ids import JobName, job_name, job_names
from dlsched.client.submission.texts import task_set
from dlsched.core.errors import BadInput
from dlsched.jobs.task_sets import fold_tasks


@pytest.mark.parametrize(
    ("text", "tasks", "limit", "again"),
    [
        ("0-9%2", range(10), 2, "0-9%2"),
        ("1,3,7", (1, 3, 7), 0, "1,3,7"),
        ("0-15:4", (0, 4, 8, 12), 0, "0-12:4"),
        ("7,1-3,2", (1, 2, 3, 7), 0, "1-3,7"),
        ("5", (5,), 0, "5"),
        ("2,4%1", (2, 4), 1, "2,4%1"),
    ],
)
def test_sets(text: str, tasks: tuple[int, ...], limit: int, again: str) -> None:
    found = task_set("-a", text)
    assert (found.tasks, found.limit, str(found)) == (tuple(tasks), limit, again)


@pytest.mark.parametrize(
    "text",
    [
        *("", "-1", "1-", "a", "1,,2", "5-1", "0-9%0", "0-9%", "0-9%x", "0-9:0", "1:2", "1 2"),
        *("0-2147483647", "99999999999", "0-1000000", "1%2%3", "١", "0-9%-1"),
    ],
)
def test_malformed_sets_are_refused(text: str) -> None:
    with pytest.raises(BadInput, match=r"^-a"):
        task_set("-a", text)


@given(st.sets(st.integers(0, 500), min_size=1, max_size=60))
def test_folding_is_the_way_back(tasks: set[int]) -> None:
    for steps in (False, True):
        assert set(task_set("-a", fold_tasks(tasks, steps=steps)).tasks) == tasks


def test_tasks_are_folded() -> None:
    assert fold_tasks([2, 3, 4, 9], 2) == "2-4,9%2"
    assert fold_tasks([0, 4, 8]) == "0,4,8"
    assert fold_tasks([0, 4, 8], steps=True) == "0-8:4"


@given(st.text(alphabet="0123456789-,:%[]_ x", max_size=20))
def test_any_text_is_read_or_refused(text: str) -> None:
    for read in (lambda: task_set("-a", text), lambda: job_name(text)):
        said = "read"
        try:
            assert read()
        except BadInput as error:
            said = str(error)
        assert "\n" not in said


def test_ids() -> None:
    assert job_name("11160") == JobName(job=11160)
    assert job_name("11160_3") == JobName(job=11160, tasks=(3,))
    assert job_name("11160_[2-4%1]").tasks == (2, 3, 4)
    assert [each.job for each in job_names(["1,2_[3,4]", "5"])] == [1, 2, 5]


@pytest.mark.parametrize("text", ["", "0", "-1", "x", "1_", "1_[", "1_[]", "1_x", "1.5", "1" * 30])
def test_texts_that_are_no_job_ids_are_refused(text: str) -> None:
    with pytest.raises(BadInput):
        job_name(text)
