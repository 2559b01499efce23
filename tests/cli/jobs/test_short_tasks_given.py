"""`submit --tasks` before any daemon is asked: a file as tasks, and what is wrong with it."""

from __future__ import annotations

from pathlib import Path

import pytest

from dlsched.cli.jobs.submit import one_job
from dlsched.core.errors import BadInput
from dlsched.jobs.short_tasks import COMMAND


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "tasks.sh"
    path.write_text("# scores\n\npython score.py 1\n  python score.py 2\n")
    return path


def test_lines_become_tasks_and_tokens_an_array(file: Path) -> None:
    made = one_job([], {"tasks": str(file), "tokens": "8", "gpus": "1"}).request
    assert list(made.tasks) == ["python score.py 1", "  python score.py 2"]
    assert (list(made.argv), made.name, made.array) == ([COMMAND], "tasks.sh", "0-1")
    assert one_job([], {"tasks": str(file), "tokens": "1"}).request.array == "0-0"


@pytest.mark.parametrize(
    ("text", "layer", "message"),
    [
        ("true\n", {"tokens": "x"}, "--tokens"),
        ("true\n", {}, "--tasks: needs --tokens N"),
        ("# only\n\n", {"tokens": "1"}, "has no tasks"),
        ("true\n" + "x" * 4097, {"tokens": "1"}, ":2: longer than 4096 bytes"),
        ("true\n" * 100_001, {"tokens": "1"}, ":100001: more than 100000 tasks"),
        ("#" * (4 * 1024 * 1024 + 1), {"tokens": "1"}, "more than 4194304 bytes"),
        ("true\n", {"tokens": "1", "sweep": "x.csv"}, "--sweep: "),
        ("true\n", {"tokens": "1", "tasks": "/none"}, "--tasks: /none: can't be read"),
    ],
)
def test_what_is_wrong_is_named(file: Path, text: str, layer: dict[str, str], message: str) -> None:
    file.write_text(text)
    with pytest.raises(BadInput) as refused:
        one_job([], {"tasks": str(file), **layer})
    assert message in str(refused.value)
    assert "\n" not in str(refused.value)


def test_tokens_and_tasks_stand_for_themselves(file: Path) -> None:
    for words, layer in ((["true"], {"tokens": "2"}), (["true"], {"tasks": str(file)})):
        with pytest.raises(BadInput):
            one_job(words, layer, is_command=True)
