"""Filters of jobs as conditions in SQL."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from sqlalchemy import Column, ColumnElement, and_, bindparam, exists, or_, select

from dlsched.db import schema
from dlsched.protocol.messages import JobId, NodeName


@dataclass(frozen=True, slots=True, kw_only=True)
class ArrayElements:
    """Some elements of an array; without tasks, all elements."""

    array_job: JobId
    tasks: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Filter:
    """Jobs that match every field that is not empty; `jobs` and `elements` count as one field."""

    jobs: tuple[JobId, ...] = ()
    elements: tuple[ArrayElements, ...] = ()
    users: tuple[str, ...] = ()
    partitions: tuple[str, ...] = ()
    vcs: tuple[str, ...] = ()  # or accounts
    states: tuple[str, ...] = ()  # as users see them
    nodes: tuple[NodeName, ...] = ()  # of any run of the job
    names: tuple[str, ...] = ()  # `*` matches any text


def conditions(wanted: Filter) -> Iterator[ColumnElement[bool]]:
    """The conditions of a filter, to be joined by "and"."""
    jobs = schema.jobs.c
    if wanted.jobs or wanted.elements:
        whole = [some.array_job for some in wanted.elements if not some.tasks]
        yield or_(
            *([_is_one_of(jobs.job, wanted.jobs)] if wanted.jobs else []),
            *([_is_one_of(jobs.array_job, whole)] if whole else []),
            *(_elements(some) for some in wanted.elements if some.tasks),
        )
    for column, values in (
        (jobs.user_name, wanted.users),
        (jobs.partition_name, wanted.partitions),
        (jobs.state, wanted.states),
    ):
        if values:
            yield column.in_(values)
    if wanted.vcs:
        yield or_(jobs.vc.in_(wanted.vcs), jobs.account.in_(wanted.vcs))
    if wanted.names:
        yield or_(*(_matches(jobs.name, name) for name in wanted.names))
    if wanted.nodes:
        runs, members = schema.runs.c, schema.run_members.c
        yield exists(
            select(1)
            .join_from(schema.runs, schema.run_members, members.run_id == runs.run_id)
            .where(runs.job == jobs.job, members.node.in_(wanted.nodes))
        )


def _elements(some: ArrayElements) -> ColumnElement[bool]:
    jobs = schema.jobs.c
    return and_(jobs.array_job == some.array_job, _is_one_of(jobs.array_task, some.tasks))


def _is_one_of(column: Column[int], numbers: Iterable[int]) -> ColumnElement[bool]:
    """Numbers stand in the statement itself: a database takes only some thousand parameters."""
    values = list(dict.fromkeys(map(int, numbers)))
    return column.in_(bindparam(None, values, expanding=True, literal_execute=True))


def _matches(column: Column[str], name: str) -> ColumnElement[bool]:
    if "*" not in name:
        return column == name
    escaped = name.replace("\\", "\\\\").replace("%", "\\%").replace("_", "\\_")
    return column.like(escaped.replace("*", "%"), escape="\\")
