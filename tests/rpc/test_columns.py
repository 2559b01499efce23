"""Jobs by column: what goes in comes out, for every field and every mixture of values."""

from __future__ import annotations

import random
from typing import Any

import pytest

from dlsched.rpc import messages
from dlsched.rpc.columns import (
    Column,
    by_field,
    column_of,
    combined,
    joined,
    pack,
    spread,
    unpacked,
)
from dlsched.rpc.v1 import control_pb2 as c
from dlsched.rpc.v1 import run_pb2
from tests.counting import python_calls

VALUES: dict[str, list[Any]] = {
    "string": ["", "a", "ü\n", "\0%"],
    "bool": [False, True],
    "double": [0.0, 1.5, -2.0],
    "int32": [0, 1, -7],
    "int64": [0, 1, 2**62],
}
PARTS: dict[str, list[Any]] = {
    "gang": [[1], [2, 2], []],
    "gpu_types": [["a100"], ["a100", "v100"]],
    "nodes": [["n1"], ["n1", "n2"]],
    "where": [[c.GpusOnNode(node="n1", gpus=[0, 3])]],
    "dependencies": [[c.Dependency(kind="afterok", job=5)]],
    "asked": [c.JobRequest(), c.JobRequest(comment="x")],
    "training": [c.TrainingNow(loss=0.5), c.TrainingNow(metrics={"a": 1.0})],
    "steps": [[run_pb2.StepRecord(number=1)]],
}
FIELDS = messages.message_class("JobView").fields_by_name


def some_jobs(by: random.Random) -> list[dict[str, Any]]:
    """Jobs that say some fields each, of which values are often alike."""
    names = by.sample(sorted(FIELDS), 20)
    kinds = {name: PARTS.get(name) or VALUES[FIELDS[name].kind] for name in names}
    usual = {name: by.choice([None, *of]) for name, of in kinds.items()}
    return [
        {name: usual[name] if by.random() < 0.7 else by.choice(of) for name, of in kinds.items()}
        for _ in range(by.randint(1, 30))
    ]


def views_of(columns: dict[str, Column], count: int) -> list[c.JobView]:
    """The messages that columns stand for; parts are of a client's messages or of protobuf's."""
    each = {name: column.each(count) for name, column in columns.items()}
    return [view_of({name: values[k] for name, values in each.items()}) for k in range(count)]


def view_of(fields: dict[str, Any]) -> c.JobView:
    view = messages.message_class("JobView")(**fields)
    return c.JobView.FromString(view.SerializeToString())


@pytest.mark.parametrize("made", [c.JobColumns, messages.message_class("JobColumns")])
@pytest.mark.parametrize("seed", range(60))
def test_jobs_are_the_same_after_the_way(seed: int, made: Any) -> None:
    jobs = some_jobs(random.Random(seed))
    sent = made()
    pack(len(jobs), by_field(jobs), sent)
    raw = sent.SerializeToString()
    for kind in (c.JobColumns, messages.message_class("JobColumns")):
        got = kind.FromString(raw)  # type: ignore[attr-defined]
        assert views_of(unpacked(got), got.count) == [c.JobView(**job) for job in jobs]


@pytest.mark.parametrize("seed", range(40))
def test_pages_are_joined_and_some_jobs_are_taken(seed: int) -> None:
    by = random.Random(seed)
    pages = [some_jobs(by) for _ in range(by.randint(1, 4))]
    jobs = [job for page in pages for job in page]
    columns, counts = [spread(by_field(page)) for page in pages], list(map(len, pages))
    names = {name for page in columns for name in page}
    whole = {n: joined([page.get(n) for page in columns], counts) for n in names}
    assert views_of(whole, len(jobs)) == [c.JobView(**job) for job in jobs]
    some = by.choices(range(len(jobs)), k=7)
    taken = {name: column.of(some) for name, column in whole.items()}
    assert views_of(taken, 7) == [c.JobView(**jobs[k]) for k in some]


@pytest.mark.parametrize("seed", range(40))
def test_what_is_made_of_several_columns_is_made_of_each_job(seed: int) -> None:
    by = random.Random(seed)
    count = by.randint(1, 30)
    rows = [["a", *(by.choice([None, "a", "b"]) for _ in range(count - 1))] for _ in range(2)]
    rows += [[7] * count, list(range(count))][: by.randint(0, 2)]
    columns = [column_of(row)._replace(unsaid="none") for row in rows]
    made = combined(columns, count, lambda *values: values).each(count)
    told = [["none" if value is None else value for value in row] for row in rows]
    assert made == list(zip(*told, strict=True))


def test_equal_values_are_sent_once_and_cost_no_call_a_job() -> None:
    jobs = [
        {"job": k, "name": f"job{k}", "user": "ann", "reason": ("one", "two")[k % 2], "gang": (1,)}
        for k in range(1000)
    ]
    sent = c.JobColumns()
    pack(len(jobs), by_field(jobs), sent)
    counts = {
        each.field: (len(each.ends), len(each.views), len(each.places)) for each in sent.columns
    }
    number = {name: field.number for name, field in FIELDS.items()}
    assert counts[number["user"]] == (1, 0, 0)
    assert counts[number["reason"]] == (2, 0, 1000)
    assert counts[number["gang"]] == (0, 1, 0)
    raw = sent.SerializeToString()
    client = messages.message_class("JobColumns")
    assert python_calls(lambda: unpacked(client.FromString(raw))) < 500
    both = [column_of([job["reason"] for job in jobs]), Column(["x"])]
    made: list[str] = []
    combined(both, 1000, lambda *values: made.append("".join(values)))
    assert sorted(made) == ["onex", "twox"]
