"""A job from its submission to its end, through a real agent and a real keeper."""

from __future__ import annotations

from typing import Any

from scripted_leader import Work

from dlsched.protocol.ledger import JobStatus


def test_a_job_starts_runs_and_is_recorded(cluster: Any) -> None:
    leader = cluster.up("n1")
    output = cluster.folder / "out"
    job = leader.submit(
        Work(script=b"#!/bin/sh\necho hello from $DLSCHED_JOB_ID\n", output=str(output))
    )
    leader.place(job, ("n1",))
    assert leader.wait(job).status is JobStatus.COMPLETED
    assert output.read_text() == f"hello from {job}\n"
