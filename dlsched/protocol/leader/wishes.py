"""What clients and the round want: jobs, places, stops and suspensions."""

from __future__ import annotations

from dlsched.protocol.leader.commands import (
    Answer,
    Refused,
)
from dlsched.protocol.leader.events import (
    BatchAsked,
    PlaceAsked,
    SuspendAsked,
)
from dlsched.protocol.leader.placeable import recovering, unplaceable
from dlsched.protocol.leader.turn import Turn
from dlsched.protocol.ledger import (
    Assign,
    Attach,
    CancelJob,
    Job,
    JobStatus,
    NodeStatus,
    Request,
    StopRun,
    Submit,
    SuspendRun,
    having,
)
from dlsched.protocol.messages import (
    JobId,
    RunKey,
    RunNumber,
    StopReason,
)

__all__ = ["WishesTurn"]


class WishesTurn(Turn):
    """What becomes of a wish."""

    def submit(self, token: int, request: Request) -> None:
        """A job, or what the same request was answered before."""
        reserved = self.state.reserved
        job = reserved.requests.get((request.user, request.request_id))
        if job is None:
            job = reserved.next_job
            self.write(Submit(request=request, job=job))
        elif reserved.jobs[job].request != request:
            self.say(Answer(token, refused="Conflict: the request id stands for another job"))
            return
        self.answer_after_commit(Answer(token, job=job))

    def submit_all(self, event: BatchAsked) -> None:
        """Several jobs under request ids that are all new, or all known with the same content."""
        reserved = self.state.reserved
        known = [reserved.requests.get((r.user, r.request_id)) for r in event.requests]
        first = reserved.next_job
        if all(job is None for job in known):
            if event.first is not None and event.first != first:
                self.say(Answer(event.token, unknown=True))
                return
            made = [
                Submit(request=request, job=JobId(first + k))
                for k, request in enumerate(event.requests)
            ]
            self.write(*made, *map(Attach, event.rows))
            self.answer_after_commit(Answer(event.token, job=first))
            return
        same = all(
            job is not None and reserved.jobs[job].request == request
            for job, request in zip(known, event.requests, strict=True)
        )
        if not same:
            self.say(Answer(event.token, refused="Conflict: the request id stands for other jobs"))
            return
        self.answer_after_commit(Answer(event.token, job=known[0]))

    def answer_after_commit(self, answer: Answer) -> None:
        """Whatever an answer rests on may still be in flight, so it waits for a later commit."""
        self.change(queue_answers=(*self.state.queue_answers, answer))

    def cancel(self, token: int, job: JobId, why: str) -> None:
        """End a job, wherever it is."""
        row = self.state.reserved.jobs.get(job)
        if row is None:
            self.say(Answer(token, refused="NotFound"))
            return
        if row.status is JobStatus.PENDING:
            self.write(CancelJob(job, why))
        elif (run := self.state.reserved.live_run(job)) and run.stop is not StopReason.CANCEL:
            self.write(StopRun(run.key.run_id, StopReason.CANCEL, why=why))
        self.answer_after_commit(Answer(token, job=job))

    def requeue(self, token: int, job: JobId) -> None:
        """Stop a run so that its job starts again."""
        row = self.state.reserved.jobs.get(job)
        if row is None:
            self.say(Answer(token, refused="NotFound"))
            return
        if row.status.is_terminal:
            self.say(Answer(token, job=job, refused=f"it is {row.status.value}"))
            return
        self.stop(job, StopReason.REQUEUE, None)
        self.answer_after_commit(Answer(token, job=job))

    def place(self, event: PlaceAsked) -> None:
        """Assign a run to GPUs, or say why not."""
        if self.recovery is None:
            self.recovery = recovering(self.state, event.now)
        reason = self.recovery or unplaceable(self.state.reserved, event.job) or self.misfit(event)
        if reason:
            self.say(Refused(event.job, reason))
            return
        row: Job = self.state.reserved.jobs[event.job]
        key = RunKey(event.job, RunNumber(row.runs + 1), event.run_id)
        self.write(Assign(key=key, shares=event.shares))
        if len(event.shares) > 1:
            self.change(preparing_from=having(self.state.preparing_from, event.run_id, event.now))

    def misfit(self, event: PlaceAsked) -> str:
        """Verify a plan against fresh state."""
        ledger, timing = self.state.reserved, self.state.timing
        needed = ledger.jobs[event.job].request.gpu_share
        for share in event.shares:
            node = ledger.nodes.get(share.node)
            hearing = self.state.hearings.get(share.node)
            if node is None or node.status is not NodeStatus.UP or hearing is None:
                return f"{share.node} is not up"
            if event.now - hearing.at > timing.witness_beats * timing.beat_s:
                return f"{share.node} is late"
            if not set(share.gpus) <= set(node.gpus):
                return f"{share.node} has no such GPU"
            if set(share.gpus) & ledger.busy(share.node, share=needed):
                return f"{share.node} is busy"
        return ""

    def stop(self, job: JobId, reason: StopReason, at: int | None) -> None:
        """Stop the live run of a job."""
        run = self.state.reserved.live_run(job)
        if run is not None and run.stop is None:
            self.write(StopRun(run.key.run_id, reason, at))

    def suspend(self, event: SuspendAsked) -> None:
        """Suspend a run or let it go on."""
        ledger, job = self.state.reserved, event.job
        row, run = ledger.jobs.get(job), ledger.live_run(job)
        wanted = JobStatus.RUNNING if event.suspended else JobStatus.SUSPENDED
        if row is None or row.status is not wanted or run is None:
            return
        if not event.suspended and run.gives_way:
            for name, member in run.members.items():
                full = ledger.busy(name, run.key.run_id, share=ledger.share_of(run))
                if not member.is_over and set(member.gpus) & full:
                    self.say(Refused(job, f"its GPUs of {name} are not free"))
                    return
        self.write(SuspendRun(run.key.run_id, event.suspended, event.gives_way))
