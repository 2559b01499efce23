"""A graph of jobs in one file: `--dag jobs.toml`, or JSON.

    [[jobs]]
    name = "prepare"
    command = "python prepare.py"

    [[jobs]]
    name = "train"
    script = "train.sh"
    gpus = 4
    after = ["prepare"]

A job has the fields of a row of `--from`. `after` names jobs of the file that must have ended well;
`afterany:NAME` and the other kinds of `--dependency` say otherwise. An error names the file and
the job.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from dlsched.client.submission.bulk import Row, row_of
from dlsched.client.submission.dependencies import KINDS
from dlsched.core.documents import parse_document
from dlsched.core.errors import BadInput, not_known, shorten
from dlsched.core.graphs import in_order

MOST_JOBS = 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class DagJob:
    """One job of a graph.

    Attributes:
        name: unique in the file.
        row: what it runs, and its options.
        after: kinds of dependencies, and the places of the jobs that they name, from 1.
    """

    name: str
    row: Row
    after: tuple[tuple[str, int], ...]


def read_dag(name: str, data: bytes) -> list[DagJob]:
    """Read a graph; each job comes after those that it waits for.

    Args:
        name: of the file.
        data: its content.

    Raises:
        BadInput: one line with the file and the place in it.
    """
    document = parse_document(name, data)
    listed = document.get("jobs") if isinstance(document, dict) else None
    if not isinstance(listed, list) or not listed:
        raise BadInput(f"{name}: holds no jobs; each is a table [[jobs]]")
    for key in document:
        if key != "jobs":
            raise not_known(f"{name}:", key, ["jobs"])
    if len(listed) > MOST_JOBS:
        raise BadInput(f"{name}: {len(listed)} jobs; a graph has at most {MOST_JOBS}")
    jobs: dict[str, dict[str, Any]] = {}
    places: dict[str, str] = {}
    for number, fields in enumerate(listed, 1):
        called = fields.get("name") if isinstance(fields, dict) else None
        if not isinstance(called, str) or not called:
            raise BadInput(f"{name}: job {number}: needs a name")
        if called in jobs:
            raise BadInput(f"{name}: job {number}: the name {shorten(called)!r} is there twice")
        jobs[called], places[called] = fields, f"{name}: job {shorten(called)}"
    awaited = {called: _after(places[called], fields, jobs) for called, fields in jobs.items()}
    order = in_order(
        name, "job", {called: [other for _, other in awaited[called]] for called in jobs}
    )
    place_of = {called: place for place, called in enumerate(order, 1)}
    return [
        DagJob(
            name=called,
            row=row_of(
                places[called],
                {key: value for key, value in jobs[called].items() if key != "after"},
            ),
            after=tuple((kind, place_of[other]) for kind, other in awaited[called]),
        )
        for called in order
    ]


def _after(place: str, fields: Mapping[str, Any], jobs: Mapping[str, Any]) -> list[tuple[str, str]]:
    said = fields.get("after", [])
    said = [said] if isinstance(said, str) else said
    if not isinstance(said, list) or not all(isinstance(each, str) for each in said):
        raise BadInput(f"{place}: after must be a list of names")
    found: dict[tuple[str, str], None] = {}
    for text in said:
        kind, colon, other = text.partition(":")
        if text in jobs or not colon:
            kind, other = "afterok", text
        elif kind not in KINDS:
            raise not_known(f"{place}: after:", kind, KINDS)
        if other not in jobs:
            raise not_known(f"{place}: after:", other, jobs)
        found[kind, other] = None
    return list(found)
