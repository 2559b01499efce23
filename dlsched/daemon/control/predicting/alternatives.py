"""`WhatIf` on the wire: which alternatives a user asks for, and how the answers are told."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import product

import numpy as np

from dlsched.core.arrays import Floats
from dlsched.core.errors import BadInput, not_known
from dlsched.core.scenarios import (
    INTERVAL,
    SCENARIOS,
    chance_by,
    verdict_of,
    weighted_quantile,
)
from dlsched.daemon.capacity import Capacity
from dlsched.daemon.cluster import Cluster
from dlsched.daemon.control.bounds import check_text
from dlsched.daemon.control.job_filters import chosen_ids, names_jobs, no_such, stored_names
from dlsched.daemon.control.predicting.predicted import put_moment
from dlsched.daemon.control.submission.elastic import check_sizes
from dlsched.daemon.control.submission.fitting import check_fits
from dlsched.daemon.control.submission.gpu_types import changed_gpu_types, one_type_of
from dlsched.daemon.control.submission.job_validation import (
    check_place,
    place_of,
    validate,
)
from dlsched.daemon.control.submission.partitions import tenants_of
from dlsched.daemon.control.submission.quotas import refuse_beyond_quota
from dlsched.daemon.control.submission.slas import curve_text
from dlsched.daemon.control.views import word
from dlsched.daemon.live.live_state import LiveState
from dlsched.daemon.round.forecasts.alternatives import Outcome
from dlsched.daemon.round.parts import RoundSettings
from dlsched.daemon.rpc_errors import NotPossible, TooMuch
from dlsched.daemon.supposing.what_if import Answer, Wanted, WhatIf
from dlsched.daemon.turns import in_turns
from dlsched.db.records import JobBody, JobSpec
from dlsched.protocol.ledger import Job
from dlsched.rpc.identity import Identity
from dlsched.rpc.v1 import control_pb2
from dlsched.system.clock import wall


@dataclass(frozen=True, slots=True, kw_only=True)
class _Row:
    """One alternative: what the job would ask for, and the policy by name (empty: the present)."""

    body: JobBody | None
    policy: str = ""
    why_not: str = ""  # it could never run


@dataclass(eq=False, slots=True)
class Alternatives:
    """Answers `WhatIf`."""

    cluster: Cluster
    what_if: WhatIf

    async def answer(
        self, request: control_pb2.WhatIfRequest, caller: Identity
    ) -> control_pb2.WhatIfReply:
        """What would become of a job, or of all jobs, in some alternatives.

        Raises:
            DlschedError: one line that says why there is no answer.
        """
        cluster = self.cluster
        job = await self._job(request)
        mine = await self._spec(request, job, caller)
        lists = (request.gpus, request.gpu_types, request.policies)
        count = math.prod(max(len(set(each)), 1) for each in lists)
        most = cluster.settings.what_if.alternatives
        if count > most:
            raise TooMuch(f"what-if: {count} alternatives in one question, at most {most}")
        rows = self._rows(request, mine, job)
        policies = self._policies(request, caller)
        specs: dict[int, JobSpec] = {}  # by the identity of their bodies
        wanted: list[Wanted] = []
        for row in rows:
            if row.why_not:
                continue
            spec, is_other = None, mine is not None and row.body is not mine.body
            if mine is not None and row.body is not None and (job is None or is_other):
                spec = specs.setdefault(id(row.body), replace(mine, body=row.body))
            gang = _gpus(mine.body) if mine is not None and is_other else 0
            wanted.append(Wanted(spec=spec, gang=gang, settings=policies[row.policy]))
        found = await self.what_if.ask(
            caller.name,
            wanted,
            job=job.job if job is not None else None,
            lists_jobs=mine is None or request.schedule,
            schedule=request.schedule,
        )
        return await self._reply(rows, found, job, mine)

    # -- what is asked -----------------------------------------------------------------------------

    async def _job(self, request: control_pb2.WhatIfRequest) -> Job | None:
        """The live job that the request names; None: it names none."""
        if not names_jobs(request.filter):
            return None
        if request.HasField("described"):
            raise BadInput("what-if: a job that exists, or one that is described, not both")
        found = chosen_ids(self.cluster, request.filter)
        rows = [row for row in found.rows.values() if not row.status.is_terminal]
        if len(rows) > 1:
            raise BadInput("what-if: name one job; of an array one element, such as 12_3")
        if rows:
            return rows[0]
        names = [name for name, _ in found.missing] or [str(row.job) for row in found.rows.values()]
        if found.missing and not any((await stored_names(self.cluster, found.missing)).values()):
            raise no_such(names[0])
        raise NotPossible(f"job {names[0]} has ended")

    async def _spec(
        self, request: control_pb2.WhatIfRequest, job: Job | None, caller: Identity
    ) -> JobSpec | None:
        cluster = self.cluster
        if job is not None:
            return cluster.live.requests.specs[job.job]
        if not request.HasField("described"):
            if request.gpus or request.gpu_types:
                raise BadInput("what-if: other GPUs are those of a job: name or describe one")
            return None
        now = wall()
        whose = await tenants_of(cluster, caller)
        described = request.described
        if described.array or described.dependencies or described.held:
            raise BadInput("what-if: one job that could start now, without array and dependencies")
        valid = validate(described, {}, cluster.settings, cluster.capacity(), now, whose)
        check_place(place_of(valid.body), {}, caller)
        uid = caller.uid if caller.uid is not None else -1
        return JobSpec(body=valid.body, user=caller.name, uid=uid, submitted_at=now)

    def _rows(
        self, request: control_pb2.WhatIfRequest, mine: JobSpec | None, job: Job | None
    ) -> list[_Row]:
        """The job as it is under the present policy, and each combination of what is asked."""
        if mine is None:
            return [_Row(body=None), *(_Row(body=None, policy=name) for name in request.policies)]
        capacity = self.cluster.capacity()
        mixed = {kind: kind for host in capacity.hosts.values() for kind in host.gpu_types}
        types = mixed | capacity.types
        for name in request.gpu_types:
            if name.lower() not in types:
                raise not_known("GPU type", name, sorted(types.values()))
        rows = [_Row(body=mine.body) if job is not None else self._row(mine, mine.body, "")]
        bodies: dict[tuple[int | None, str], JobBody] = {}
        for gpus, kind, policy in product(
            dict.fromkeys(request.gpus) or [None],
            dict.fromkeys(request.gpu_types) or [""],
            dict.fromkeys(request.policies) or [""],
        ):
            other = _other(mine.body, gpus, types.get(kind.lower()), capacity)
            body = bodies.setdefault((gpus, kind), other)
            if policy or body is not mine.body:
                rows.append(self._row(mine, body, policy))
        return rows

    def _row(self, mine: JobSpec, body: JobBody, policy: str) -> _Row:
        """An alternative; one that no state of the cluster could hold says so."""
        try:
            check_sizes(body.gpus, body.min_gpus, body.max_gpus)
            check_fits(body, self.cluster.capacity())
            refuse_beyond_quota(self.cluster, mine.user, body)
        except BadInput as error:
            return _Row(body=body, policy=policy, why_not=str(error))
        return _Row(body=body, policy=policy)

    def _policies(
        self, request: control_pb2.WhatIfRequest, caller: Identity
    ) -> dict[str, RoundSettings | None]:
        """The settings of each policy that is asked for; none for the present one.

        The options of a user may name no file: it would be read with the daemon's rights.
        """
        present = self.cluster.round_state.settings
        found: dict[str, RoundSettings | None] = {"": None}
        if request.options and not request.policies:
            raise BadInput("what-if: options are those of a policy: name one")
        for text in (*request.policies, *request.options):
            check_text("policy", text, 1000)
        for name in request.policies:
            settings = present.changed({"scheduling": name}, request.options)
            own = settings.options != present.options or name != present.policy
            found[name] = replace(settings, reads_files=caller.is_operator or not own)
        return found

    # -- what is told ------------------------------------------------------------------------------

    async def _reply(
        self, rows: Sequence[_Row], found: Answer, job: Job | None, mine: JobSpec | None
    ) -> control_pb2.WhatIfReply:
        cluster = self.cluster
        origin, present = cluster.live.origin, cluster.round_state.settings.policy
        reply = control_pb2.WhatIfReply(at=found.at + origin, policy=present)
        if job is not None:
            reply.job = job.job
            reply.state = word(job, cluster.driver.committed.live_run(job.job))
        deadline = mine.body.deadline_at if mine is not None else None
        if deadline is not None:
            reply.deadline_at = deadline
        if mine is not None:
            reply.sla, reply.submitted_at = curve_text(mine), mine.submitted_at
        answers = iter(zip(found.outcomes, found.why, strict=True))
        for row in rows:
            told = reply.outcomes.add(policy=row.policy or present, why=row.why_not)
            if row.body is not None:
                told.gpus = _gpus(row.body)
                told.gpu_types.extend(_types(row.body))
            if row.why_not:
                continue
            outcome, why = next(answers)
            if row.body is not None:
                _put_moments(told, outcome, origin, deadline, why)
            put_figures(told, outcome)
            await put_jobs(told, outcome, cluster.live, mine)
            if outcome.block_job.size:
                specs = cluster.live.requests.specs
                told.blocks.job.extend(n if n in specs else 0 for n in outcome.block_job.tolist())
                told.blocks.node.extend(outcome.block_node.tolist())
                told.blocks.gpus.extend(outcome.block_gpus.tolist())
                told.blocks.start.extend((outcome.block_start + origin).tolist())
                told.blocks.end.extend((outcome.block_end + origin).tolist())
                if not reply.nodes:
                    for node in cluster.live.nodes.all():
                        reply.nodes.add(name=node.name, gpus=len(node.gpus), gpu_type=node.gpu_type)
        return reply


async def put_jobs(
    told: control_pb2.WhatIfOutcome,
    outcome: Outcome,
    live: LiveState,
    supposed: JobSpec | None = None,
) -> None:
    """Put in what becomes of each job.

    Args:
        told: to put it in.
        outcome: what came of an alternative.
        live: which knows the jobs.
        supposed: the spec of a job that is not submitted; it gets the number 0.
    """
    specs = live.requests.specs
    moments = (
        *(outcome.start, outcome.start_p10, outcome.start_p90),
        *(outcome.end, outcome.end_p10, outcome.end_p90),
    )
    async for place, number in in_turns(enumerate(outcome.job.tolist())):
        spec = specs.get(number, supposed)
        if spec is None:
            continue
        each = told.all.add(
            job=number if number in specs else 0,
            name=spec.name,
            user=spec.user,
            gpus=int(outcome.gpus[place]),
            waits=bool(outcome.waits[place]),
            submitted_at=spec.submitted_at,
        )
        start, end = moments[:3], moments[3:]
        put_moment(each.start, *(float(column[place]) + live.origin for column in start))
        put_moment(each.end, *(float(column[place]) + live.origin for column in end))


def _gpus(body: JobBody) -> int:
    return body.gpus if body.gang is None else sum(body.gang)


def _types(body: JobBody) -> tuple[str, ...]:
    """The GPU types of a job as they are told; those by type in their one spelling."""
    by_type = body.gpus_by_type
    return (one_type_of(by_type) or by_type,) if by_type else body.gpu_types


def _other(body: JobBody, gpus: int | None, kind: str | None, capacity: Capacity) -> JobBody:
    """A job's request with other GPUs; the same object where they are not other.

    Raises:
        BadInput: the job could not ask for them.
    """
    if gpus is not None and gpus < 1:
        raise BadInput(f"gpus: {gpus} is not at least 1")
    of_type = kind is not None and (kind,) != _types(body)
    of_number = gpus is not None and gpus != _gpus(body)
    if not (of_type or of_number):
        return body
    kept = one_type_of(body.gpus_by_type)
    if body.gpus_by_type and not (kept or of_type):
        raise BadInput(f"gpus: the job has {body.gpus_by_type} on each node, so no other number")
    found = replace(body, gpus_by_type="")
    if of_type or kept:
        found = replace(found, gpu_types=(kind if kind is not None else kept,))
    if of_number and gpus is not None:
        nodes = len(body.gang or ()) if kept else 0  # of mixed nodes, each gives the same number
        gang = (gpus // nodes,) * nodes if nodes and gpus % nodes == 0 else None
        found = replace(found, gpus=gpus, gang=gang)
    return replace(found, **changed_gpu_types(found, {}, capacity))


def _put_moments(
    told: control_pb2.WhatIfOutcome,
    outcome: Outcome,
    origin: float,
    deadline: float | None,
    why: str,
) -> None:
    """Put in when the job of interest starts and ends, or why that is not predicted.

    Args:
        told: to put it in.
        outcome: what came of the alternative.
        origin: of the policy's clock, seconds since the epoch.
        deadline: of the job; None: it has none.
        why: it may not start now.
    """
    starts, ends = outcome.starts + origin, outcome.ends + origin
    put_moment(told.start, *_spread(starts))
    put_moment(told.end, *_spread(ends))
    if not told.end.HasField("at"):
        beyond = "there was no time for it" if outcome.was_cut else "none within 30 days"
        told.why = f"while it waits: {why}" if why else beyond
        return
    if math.isfinite(outcome.gpu_s):
        told.gpu_s = outcome.gpu_s
    told.must_move.extend(outcome.must_move.tolist())
    if math.isfinite(outcome.reward):
        told.reward = outcome.reward
    if math.isfinite(outcome.latest_submit):
        told.latest_submit_at = outcome.latest_submit + origin
    if deadline is not None and len(ends) == len(SCENARIOS):
        told.on_time = float(chance_by(ends[:, None], np.array([deadline]))[0])
        told.verdict = verdict_of(told.on_time)


def _spread(values: Floats) -> tuple[float, ...]:
    """The value of the likeliest scenario, and the bounds of the interval; NaN for unknown."""
    at = float(values[0]) if values.size else math.nan
    if len(values) < len(SCENARIOS):
        return at, math.nan, math.nan
    return at, *(float(weighted_quantile(values[:, None], q)[0]) for q in INTERVAL)


def put_figures(told: control_pb2.WhatIfOutcome, outcome: Outcome) -> None:
    """Put in what an alternative means for all jobs."""
    told.basis = outcome.basis
    told.jobs, told.never, told.was_cut = outcome.total, outcome.never, outcome.was_cut
    for name, value in (
        ("others_later_s", outcome.others_later_s),
        ("others_reward", outcome.others_reward),
        ("mean_jct_s", outcome.mean_jct_s),
        ("p95_jct_s", outcome.p95_jct_s),
        ("all_done_s", outcome.all_done_s),
    ):
        if math.isfinite(value):
            setattr(told, name, value)
