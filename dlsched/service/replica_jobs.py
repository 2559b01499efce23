"""The jobs of a service's replicas: submitted, watched and cancelled as their user would."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from dlsched.client.daemon_client import Client, filter_of, here
from dlsched.client.submission.request import Command, compose
from dlsched.client.submission.services import Terms


@dataclass(slots=True, kw_only=True)
class ReplicaJobs:
    """The jobs of one service.

    All methods ask the daemon and wait for its answer; they run off the loop.

    Attributes:
        service: the leader's job id.
        terms: of the service.
        options: of each job, by key.
        command: the user's server.
        folder: where replicas find the leader.
        of: live jobs by the number of their replica.
    """

    service: int
    terms: Terms
    options: Mapping[str, str]
    command: Sequence[str]
    folder: Path
    of: dict[int, int] = field(default_factory=dict)

    def name(self, number: int) -> str:
        """The name of a replica's job: `ranker-12-3` is the third one of the service 12."""
        return f"{self.options.get('name', 'service')}-{self.service}-{number}"

    def adopt(self) -> None:
        """Find the jobs that an earlier run of the leader has submitted."""
        names = {self.name(number): number for number in range(1, self.terms.most + 1)}
        with Client() as client:
            queue = client.queue(filter_of(called=names))
        self.of = {names[str(job.name)]: job.job_id for job in queue.jobs}

    def start(self, number: int) -> None:
        """Submit the job of a replica.

        Raises:
            DlschedError: the daemon refuses it, or does not answer.
        """
        words = [sys.executable, "-m", "dlsched.service", "replica", str(number)]
        words += ["--terms", str(self.terms), "--folder", str(self.folder), "--", *self.command]
        command = Command(argv=tuple(words), name="replica")
        options = {**self.options, "name": self.name(number)}
        with Client() as client:
            reply = client.submit_all([compose(options, command, here())])
        self.of[number] = int(reply.jobs[0].job)

    def look(self) -> list[int]:
        """Forget jobs that have ended; returns the numbers of their replicas.

        Raises:
            DlschedError: the daemon does not answer.
        """
        if not self.of:
            return []
        with Client() as client:
            queue = client.queue(filter_of([str(job) for job in self.of.values()]))
        live = {job.job_id for job in queue.jobs if job.ended_at is None}
        ended = [number for number, job in self.of.items() if job not in live]
        for number in ended:
            del self.of[number]
        return ended

    def cancel(self) -> None:
        """Cancel all of them.

        Raises:
            DlschedError: the daemon does not answer.
        """
        if self.of:
            with Client() as client:
                chosen = filter_of([str(job) for job in self.of.values()])
                client.act("cancel", chosen, reason=f"service {self.service} has ended")
