"""What live jobs ask for: their specs, updates included, and the columns that are made of them."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from dataclasses import fields as dataclass_fields
from itertools import chain, groupby
from types import MappingProxyType
from typing import Any

import numpy as np

from dlsched.daemon.live.job_columns import ENDED, JobColumns, PackedRow
from dlsched.daemon.live.placement_constraints import PlacementConstraints, Wishes, wishes_of
from dlsched.db.records import JobBody, JobSpec
from dlsched.jobs.fields import COLUMNS
from dlsched.jobs.typed_forms import uses_leftovers
from dlsched.protocol.gpu_shares import part_of
from dlsched.protocol.ledger import Job
from dlsched.protocol.messages import JobId, SuspendLevel

NOT_MOVED: Mapping[JobId, float] = MappingProxyType({})
ANY_NUMBER = 1_000_000  # of GPUs: more than a cluster has


@dataclass(frozen=True, slots=True)
class Described:
    """What is known of jobs with one spec before they have ids: a row of columns, and wishes."""

    body: JobBody
    row: PackedRow
    wishes: Wishes


class JobRequests:
    """The specs of live jobs.

    Attributes:
        expected: the jobs that the next submissions may bring, described before, by their bodies'
            identities: describing twenty thousand jobs takes longer than one turn of the loop.
        specs: by job, updates included.
        cooperative: jobs that give way by saving a checkpoint and ending their run.
        highest: the highest job number that there ever was.
        origin: when the policy's clock shows 0, in seconds since the epoch, by the wall clock as it
            is set now.
    """

    def __init__(
        self, jobs: JobColumns, constraints: PlacementConstraints, *, origin: float
    ) -> None:
        """Begin without any job; the policy's clock starts at `origin` (epoch seconds)."""
        self.expected: Mapping[int, Described] = {}
        self.specs: dict[int, JobSpec] = {}
        self.cooperative: set[int] = set()
        self.highest = 0
        self._jobs = jobs
        self._constraints = constraints
        self.origin = origin
        self._codes: dict[str, dict[str, int]] = {
            "user": {}, "account": {}, "vc": {}, "priority_class": {}, "reservation": {},
            "partition": {},
        }  # fmt: skip

    def submit(
        self, jobs: Iterable[Job], now: float, moved_s: Mapping[JobId, float] = NOT_MOVED
    ) -> dict[int, JobSpec]:
        """Enter new jobs.

        Args:
            jobs: in the order of their ids.
            now: seconds of the policy's clock.
            moved_s: by how much the wall clock was set since some of them were submitted.

        Returns:
            their specs.
        """
        specs: dict[int, JobSpec] = {}
        for job in jobs:
            spec = specs[job.job] = self._spec_of(job, now)
            if moved := moved_s.get(job.job, 0.0):
                specs[job.job] = replace(spec, submitted_at=spec.submitted_at + moved)
        self.highest = max(self.highest, *specs)
        self.append(specs, now)
        self.expected = {}
        return specs

    def _spec_of(self, job: Job, now: float) -> JobSpec:
        if job.request.suspend_level is SuspendLevel.COOPERATIVE:
            self.cooperative.add(job.job)
        spec = job.request.spec
        if not isinstance(spec, JobSpec):
            spec = JobSpec(
                body=JobBody(name=str(job.job), gang=job.request.gang),
                user=job.request.user,
                uid=-1,
                submitted_at=now + self.origin,
            )
        return spec

    def append(self, specs: Mapping[int, JobSpec], now: float) -> None:
        """Add the rows of jobs; the elements of an array, which ask for the same, in one go."""
        self.specs.update(specs)
        rows, pools, counts, since = [], [], [], []
        for _, alike in groupby(specs.items(), key=_what_is_asked):
            jobs = dict(alike)
            spec = next(iter(jobs.values()))
            known = self.expected.get(id(spec.body)) or self.described(spec)
            rows.append(known.row)
            pools.append(self._constraints.enter(jobs, known.wishes))
            counts.append(len(jobs))
            since.append(spec.submitted_at - self.origin)
        waits = {"pool": np.repeat(pools, counts), "since": np.repeat(since, counts)}
        self._jobs.append(list(specs), rows, counts, **waits)

    def update(self, job: int, fields: Mapping[str, object]) -> JobSpec:
        """Change fields of a job's body; returns its spec. A run goes on as it started."""
        spec = self.specs[job]
        known = {each.name for each in dataclass_fields(spec.body)}
        changed: dict[str, Any] = {n: value for n, value in fields.items() if n in known}
        array, limit = spec.array, fields.get("array_limit")
        if array is not None and isinstance(limit, int):
            array = replace(array, limit=limit)
        spec = replace(spec, body=replace(spec.body, **changed), array=array)
        self.specs[job] = spec
        self._constraints.forget(job)
        row = self._jobs.row_of[job]
        asked = self.described(spec, self._jobs.get("submit_time", row))
        pool = self._constraints.enter([job], asked.wishes)
        self._jobs.set(row, **asked.row.unpacked(), pool=pool)
        return spec

    def allow_spares(self, job: int, may: bool) -> None:
        """Let a job use spare nodes, as it has lost a node or a GPU, or no longer."""
        if self._constraints.may_use_spares(job, may):
            self.update(job, {})

    def avoid(self, job: int, nodes: frozenset[str]) -> None:
        """Keep a job from nodes where its start has failed, and from no other ones."""
        if self._constraints.avoid(job, nodes):
            self.update(job, {})

    def end(self, job: int) -> None:
        """Note that a job has ended; its spec stays until its row is dropped."""
        self.cooperative.discard(job)
        self._constraints.end(job)

    def live_jobs(self) -> dict[tuple[str, str, str, str], int]:
        """How many jobs are live, by user, account, VC and priority class ("" for none)."""
        live = self._jobs["phase"] != ENDED
        code = np.zeros(np.count_nonzero(live), np.int64)
        kinds = ("user", "account", "vc", "priority_class")
        names = {kind: ("", *self._codes[kind]) for kind in kinds}
        for kind, known in names.items():
            code = code * len(known) + self._jobs[kind][live] + 1
        found, counts = np.unique(code, return_counts=True)
        places = np.unravel_index(found, [len(known) for known in names.values()])
        owners = zip(
            *(
                map(known.__getitem__, place.tolist())
                for known, place in zip(names.values(), places, strict=True)
            ),
            strict=True,
        )
        return dict(zip(owners, counts.tolist(), strict=True))

    def live_bytes(self, user: str | None = None) -> int:
        """How many bytes scripts, arguments and environments of live jobs have; of one user's."""
        live = self._jobs["phase"] != ENDED
        if user is not None:
            live &= self._jobs["user"] == self._codes["user"].get(user, -2)
        return int(self._jobs["bytes"][live].sum())

    def live_columns(self, user: str) -> Counter[str]:
        """The names of a user's further columns in live jobs, and how many values each has."""
        mine = self._jobs["user"] == self._codes["user"].get(user, -2)
        jobs = self._jobs["job"][mine & (self._jobs["phase"] != ENDED)].tolist()
        return Counter(chain.from_iterable(self.specs[job].body.extra for job in jobs))

    def live_job_in(self, kind: str, name: str) -> int | None:
        """A live job of a user, account, vc, priority_class or reservation; None: none is."""
        mine = self._jobs[kind] == self._codes[kind].get(name, -2)
        found = self._jobs["job"][mine & (self._jobs["phase"] != ENDED)]
        return int(found[0]) if len(found) else None

    def names(self) -> dict[str, tuple[str, ...]]:
        """The names that the codes of users, accounts, VCs and priority classes stand for."""
        return {kind: tuple(codes) for kind, codes in self._codes.items() if kind != "partition"}

    def partitions(self) -> tuple[str, ...]:
        """The names that the codes of partitions stand for, which no policy sees."""
        return tuple(self._codes["partition"])

    def described(self, spec: JobSpec, submitted: float | None = None) -> Described:
        """What jobs with a spec ask for; it holds as long as this object.

        Args:
            spec: of the jobs.
            submitted: when, by the policy's clock; None: now, by the wall clock as it is set.
        """
        body = spec.body
        if submitted is None:
            submitted = spec.submitted_at - self.origin
        gang = body.gpus if body.gang is None else sum(body.gang)
        nodes = 1 if body.gang is None else len(body.gang)
        asked: dict[str, Any] = {
            name: column.value(getattr(body, field.name), spec.submitted_at, nodes)
            for name, (field, column) in COLUMNS.items()
        }
        asked |= {
            "max_gpus": _most_gpus(body),
            "gpu_share": 0.0 if uses_leftovers(body) else part_of(body.gpu_share),
            "submit_time": submitted,
            "gang": gang,  # 0: policies do not see it
            "expected": math.nan if body.expected_s is None else body.expected_s,
            "user": self._code("user", spec.user),
            "account": self._code("account", body.account),
            "vc": self._code("vc", body.vc),
            "owner": self._jobs.usage.number((spec.user, body.account, body.vc), submitted),
            "priority_class": self._code("priority_class", body.priority_class),
            "reservation": self._code("reservation", body.reservation),
            "partition": self._code("partition", body.partition),
            "begin_at": -math.inf if body.begin_at is None else body.begin_at - self.origin,
            "bytes": spec.content_bytes,
        }
        return Described(body, PackedRow.of(asked), wishes_of(body))

    def _code(self, kind: str, name: str) -> int:
        codes = self._codes[kind]
        return codes.setdefault(name, len(codes)) if name else -1


def _what_is_asked(entry: tuple[int, JobSpec]) -> tuple[int, str, float]:
    """What is the same for jobs whose columns are the same; bodies are shared, not equal."""
    spec = entry[1]
    return id(spec.body), spec.user, spec.submitted_at


def _most_gpus(body: JobBody) -> int:
    """The most GPUs that a job may have; −1: as many as it asks for."""
    if body.max_gpus is not None:
        return body.max_gpus
    return ANY_NUMBER if body.adaptive or body.fixed_batch else -1
