"""What `srun` on a login node prints of its job, however late the job's node knows of it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, cast

import pytest

from dlsched.cli.slurm.srun_job import _print
from dlsched.client.daemon_client import Client
from dlsched.client.errors import RequestRefused


class LateNode:
    """A daemon that refuses a job's output until the job has ended."""

    def __init__(self, output: list[bytes]) -> None:
        self.output, self.has_ended = output, False

    def follow(self, job: int, *, error: bool) -> Iterator[bytes]:
        yield from self.logs(job, error=error)

    def logs(self, job: int, *, error: bool) -> Iterator[bytes]:
        assert (job, error) == (7, False)
        if not self.has_ended or not self.output:
            raise RequestRefused("node n1 knows nothing of run 7.1")
        yield from self.output

    def wait_for(self, job: int) -> Any:
        assert job == 7
        self.has_ended = True


@pytest.mark.parametrize("output", [[b"rank 0\n", b"rank 1\n"], []])
def test_output_that_could_not_be_followed_is_printed_at_the_end(
    capsysbinary: pytest.CaptureFixture[bytes], output: list[bytes]
) -> None:
    _print(cast(Client, LateNode(output)), 7, 1)
    assert capsysbinary.readouterr().out == b"".join(output)
