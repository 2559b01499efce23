"""Short ways to writes."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from dlsched.core.service_clock import Received
from dlsched.db.contents import ContentGiven, JobContent
from dlsched.db.records import ArrayShape, JobBody, JobSpec
from dlsched.db.served import RunServed
from dlsched.protocol.ledger import (
    Assign,
    Attach,
    MemberOver,
    RegisterNode,
    Request,
    Submit,
)
from dlsched.protocol.messages import (
    BootId,
    ExitReason,
    ExitRecord,
    GpuId,
    Incarnation,
    Inventory,
    JobId,
    NodeName,
    RequestId,
    RunId,
    RunKey,
    RunNumber,
    Share,
    StopReason,
)


def request(name: str, *, gang: tuple[int, ...] = (1,), user: str = "ann", **body: Any) -> Request:
    """What a client asks for."""
    spec = JobSpec(
        body=JobBody(name=name, **body),
        user=user,
        uid=1000,
        submitted_at=10.0,
    )
    return Request(request_id=RequestId(f"r-{name}"), user=user, gang=gang, spec=spec)


def submit(job: int, *, gang: tuple[int, ...] = (1,), user: str = "ann", **body: Any) -> Submit:
    """One job of a user."""
    body.setdefault("name", f"job{job}")
    name = body.pop("name")
    made = replace(request(name, gang=gang, user=user, **body), request_id=RequestId(f"r{job}"))
    return Submit(request=made, job=JobId(job))


def content_of(job: int, **content: Any) -> Attach:
    """What the jobs of one body execute, of which a job is the first."""
    return Attach(ContentGiven(job=JobId(job), content=JobContent(**content)))


def submit_array(first: int, tasks: int, **body: Any) -> list[Submit]:
    """An array whose elements share one body and one shape."""
    shape = ArrayShape(tasks=tuple(range(tasks)))
    content = JobBody(name="array", **body)
    return [
        Submit(
            request=Request(
                request_id=RequestId(f"a{first}/{k}"),
                user="ann",
                spec=JobSpec(
                    body=content, user="ann", uid=1000, submitted_at=10.0, array=shape, index=k
                ),
            ),
            job=JobId(first + k),
        )
        for k in range(tasks)
    ]


def node(name: str, gpus: int = 4, *, boot: str = "boot1") -> RegisterNode:
    """A node with some GPUs."""
    return RegisterNode(
        node=NodeName(name),
        boot_id=BootId(boot),
        incarnation=Incarnation(1),
        inventory=Inventory(
            gpus=tuple(GpuId(f"{name}-g{k}") for k in range(gpus)), gpu_type="v100"
        ),
    )


def key(job: int, run: int = 1) -> RunKey:
    """The name of a run."""
    return RunKey(JobId(job), RunNumber(run), RunId(f"run-{job}-{run}"))


def assign(job: int, *places: tuple[str, tuple[int, ...]], run: int = 1) -> Assign:
    """A run on some nodes' GPUs by index."""
    shares = tuple(
        Share(node=NodeName(name), gpus=tuple(GpuId(f"{name}-g{k}") for k in gpus))
        for name, gpus in places
    )
    return Assign(key=key(job, run), shares=shares)


def ended(
    job: int,
    name: str,
    *,
    run: int = 1,
    code: int = 0,
    ran_s: float = 60.0,
    reason: ExitReason = ExitReason.EXITED,
    stop: StopReason | None = None,
    at: float | None = None,
) -> MemberOver:
    """A node tells how its part of a run ended."""
    record = ExitRecord(
        key=key(job, run),
        node=NodeName(name),
        reason=reason,
        code=code,
        stop=stop,
        ran_s=ran_s,
        at=at,
    )
    return MemberOver(key(job, run).run_id, NodeName(name), exit=record)


def received(job: int, *, run: int = 1, held_s: float, gpus: int = 1) -> Attach:
    """What the daemon says that a run of a job has received."""
    all_of_it = Received(held_s=held_s, worked_s=held_s, attained=held_s * gpus)
    return Attach(RunServed(run_id=key(job, run).run_id, received=all_of_it))
