"""Which jobs are asked for, as a condition in SQL."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from sqlalchemy import Column, ColumnElement, and_, exists, or_, select

from dlsched.db import schema
from dlsched.protocol.messages import JobId, NodeName

__all__ = ["ArrayElements", "Filter", "conditions"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ArrayElements:
    """Some elements of an array; without tasks, all."""

    array_job: JobId
    tasks: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Filter:
    """Jobs that are one of each of these; empty says nothing. `jobs` and `elements` add up."""

    jobs: tuple[JobId, ...] = ()
    elements: tuple[ArrayElements, ...] = ()
    users: tuple[str, ...] = ()
    partitions: tuple[str, ...] = ()
    vcs: tuple[str, ...] = ()  # or accounts
    states: tuple[str, ...] = ()  # the words that users see
    nodes: tuple[NodeName, ...] = ()  # where any run of the job was
    names: tuple[str, ...] = ()  # `*` stands for anything


def conditions(wanted: Filter) -> Iterator[ColumnElement[bool]]:
    """The conditions of a filter, to be joined by "and"."""
    jobs = schema.jobs.c
    if wanted.jobs or wanted.elements:
        yield or_(
            *([jobs.job.in_(wanted.jobs)] if wanted.jobs else []),
            *(_elements(some) for some in wanted.elements),
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
    mine = jobs.array_job == some.array_job
    return and_(mine, jobs.array_task.in_(some.tasks)) if some.tasks else mine


def _matches(column: Column[str], name: str) -> ColumnElement[bool]:
    if "*" not in name:
        return column == name
    escaped = name.replace("\\", "\\\\").replace("%", "\\%").replace("_", "\\_")
    return column.like(escaped.replace("*", "%"), escape="\\")
