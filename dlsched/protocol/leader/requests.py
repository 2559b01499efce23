"""Requests of clients and of the round: jobs, placements, stops and suspensions."""

from __future__ import annotations

from dlsched.protocol import messages as m
from dlsched.protocol.leader.interface import (
    Answer,
    BatchAsked,
    PlaceAsked,
    PlacementRefused,
    ReadyToFollow,
    RequeueAsked,
    SuspendAsked,
)
from dlsched.protocol.leader.placing import misfit, recovering, unplaceable, why_not_beside
from dlsched.protocol.leader.state import Turn
from dlsched.protocol.ledger import Job, JobStatus, Request, Run, with_job
from dlsched.protocol.ledger import writes as change
from dlsched.protocol.table import having


class RequestsTurn(Turn):
    """What a leader does with requests."""

    def submit(self, token: int, request: Request) -> None:
        """Accept a job; a repeated request gets the same answer again."""
        reserved = self.state.reserved
        job = reserved.requests.get((request.user, request.request_id))
        if job is None:
            job = reserved.next_job
            self.write(change.Submit(request=request, job=job))
        elif reserved.jobs[job].request != request:
            self.emit(Answer(token, refused="Conflict: the request id stands for another job"))
            return
        self.answer_after_commit(Answer(token, job=job))

    def submit_all(self, event: BatchAsked) -> None:
        """Accept several jobs: all ids must be new, or all known with equal content."""
        reserved = self.state.reserved
        known = [reserved.requests.get((r.user, r.request_id)) for r in event.requests]
        first = reserved.next_job
        if all(job is None for job in known):
            if event.first is not None and event.first != first:
                self.emit(Answer(event.token, unknown=True))
                return
            made = event.made or change.submissions(event.requests, first)
            self.write(*made, *map(change.Attach, event.rows))
            self.answer_after_commit(Answer(event.token, job=first))
            return
        same = all(
            job is not None and reserved.jobs[job].request == request
            for job, request in zip(known, event.requests, strict=True)
        )
        if not same:
            self.emit(Answer(event.token, refused="Conflict: the request id stands for other jobs"))
            return
        self.answer_after_commit(Answer(event.token, job=known[0]))

    def answer_after_commit(self, answer: Answer) -> None:
        """Answer with a later commit, because the facts of the answer may still be in flight."""
        self.change(queue_answers=(*self.state.queue_answers, answer))

    def cancel(self, token: int, job: m.JobId, why: str) -> None:
        """Cancel a job in any state."""
        row = self.state.reserved.jobs.get(job)
        if row is None:
            self.emit(Answer(token, refused="NotFound"))
            return
        if row.status is JobStatus.PENDING:
            self.write(change.CancelJob(job, why))
        elif row.status.is_terminal:
            pass  # its next run may still be ending, after a late record of the one before
        elif (run := self.state.reserved.live_run(job)) and run.stop is not m.StopReason.CANCEL:
            self.write(change.StopRun(run.key.run_id, m.StopReason.CANCEL, why=why))
        self.answer_after_commit(Answer(token, job=job))

    def requeue(self, event: RequeueAsked) -> None:
        """Stop a run so that its job starts again, or let an ended job start again."""
        token, job = event.token, event.job
        row = self.state.reserved.jobs.get(job)
        if row is None and event.recalled is not None:
            row, run = event.recalled
            self.change(
                reserved=with_job(self.state.reserved, row, run),
                committed=with_job(self.state.committed, row, run),
            )
        if row is None:
            self.emit(Answer(token, refused="NotFound"))
            return
        if not row.status.is_terminal:
            self.stop(job, m.StopReason.REQUEUE, None)
        elif event.recalled is None or self.state.reserved.live_run(job) is not None:
            self.emit(Answer(token, job=job, refused=f"it is {row.status.value}"))
            return
        else:
            self.write(change.Restart(job))
        self.answer_after_commit(Answer(token, job=job))

    def place(self, event: PlaceAsked) -> None:
        """Assign a run to GPUs, or report why that is not possible."""
        if self.recovery is None:
            self.recovery = recovering(self.state, event.now)
        ledger, live = self.state.reserved, None
        if event.beside:
            live = ledger.live_run(event.job)
            reason = self.recovery or why_not_beside(ledger, event.job)
        else:
            reason = self.recovery or unplaceable(ledger, event.job)
        follows = None if live is None else live.key.run_id
        reason = reason or misfit(
            self.state, event.now, event.shares, event.job, instead_of=follows
        )
        if reason:
            self.emit(PlacementRefused(event.job, reason))
            return
        row: Job = self.state.reserved.jobs[event.job]
        key = m.RunKey(event.job, m.RunNumber(row.runs + 1), event.run_id)
        self.write(change.Assign(key=key, shares=event.shares, follows=follows))
        if len(event.shares) > 1:
            self.change(preparing_from=having(self.state.preparing_from, event.run_id, event.now))

    def stop(self, job: m.JobId, reason: m.StopReason, at: int | None, why: str = "") -> None:
        """Stop the live run of a job."""
        run = self.state.reserved.live_run(job)
        if run is not None and run.stop is None:
            self.write(change.StopRun(run.key.run_id, reason, at, why))
        else:
            self.take_gpus(run)

    def hand_over(self, event: ReadyToFollow) -> None:
        """Stop a run whose next one is ready: its ranks give the state to those of that one."""
        ledger = self.state.reserved
        run = ledger.runs.get(event.run_id)
        before = None if run is None or run.follows is None else ledger.runs.get(run.follows)
        if run is None or before is None or run.stop is not None or before.stop is not None:
            return
        same = ledger.gpus_of(run) == ledger.gpus_of(before)
        reason = m.StopReason.MIGRATE if same else m.StopReason.RESIZE
        self.write(change.StopRun(before.key.run_id, reason, hand_over=event.where))

    def give_up(self, run_id: m.RunId) -> None:
        """End a run that follows another one, unless that one is leaving already."""
        ledger = self.state.reserved
        run = ledger.runs.get(run_id)
        if run is None or run.is_over or run.follows is None or run.stop is not None:
            return
        if ledger.runs[run.follows].stop is None:
            self.write(change.StopRun(run_id, m.StopReason.ABORT))

    def take_gpus(self, run: Run | None) -> None:
        """Note that a gang that is failing was to leave its GPUs: it is not repeated in place."""
        if run is not None and run.stop is m.StopReason.PEER:
            self.change(taken=self.state.taken | {run.key.run_id})

    def suspend(self, event: SuspendAsked) -> None:
        """Suspend or resume a run."""
        ledger, job = self.state.reserved, event.job
        row, run = ledger.jobs.get(job), ledger.live_run(job)
        wanted = JobStatus.RUNNING if event.suspended else JobStatus.SUSPENDED
        if row is None or row.status is not wanted or run is None:
            if event.suspended:
                self.take_gpus(run)
            return
        if not event.suspended and run.gives_way:
            if why := recovering(self.state, event.now):  # an unknown run may have its GPUs
                self.emit(PlacementRefused(job, why))
                return
            for name, member in run.members.items():
                full = ledger.busy(name, run.key.run_id, share=ledger.share_of(run))
                if not member.is_over and set(member.gpus) & full:
                    self.emit(PlacementRefused(job, f"its GPUs of {name} are not free"))
                    return
        self.write(change.SuspendRun(run.key.run_id, event.suspended, event.gives_way))
