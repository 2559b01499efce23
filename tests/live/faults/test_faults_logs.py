"""Output of a job can be read after its node dropped the run, and after restarts."""

from __future__ import annotations

import pytest

from dlsched.torture.local_cluster import LocalCluster, eventually

pytestmark = pytest.mark.slow


def test_logs_of_an_ended_job_and_right_after_a_restart(small: LocalCluster) -> None:
    ended = small.submit("echo out; echo err >&2", error=f"{small.out}/%j.err")
    small.until(ended, "COMPLETED")
    gang = small.submit(
        "echo rank $NODE_RANK",
        nodes="2",
        gpus_per_node="1",
        launch="node",
        output=f"{small.out}/%j.%n.100%%.out",
    )
    small.until(gang, "COMPLETED")
    running = small.submit("echo still here; sleep 600")
    eventually("it wrote", lambda: small.output(running))

    def dropped() -> bool:
        return len(list(small.folder.glob("n*/state/jobs/*"))) == 1

    eventually("the nodes have dropped what has ended", dropped)
    for _ in range(2):  # the second time: a daemon that has just begun
        assert small.cli("logs", str(ended)) == "out\n"
        assert small.cli("logs", "--stderr", str(ended)) == "err\n"
        assert small.cli("logs", "--rank", "1", str(gang)) == "rank 1\n"
        assert small.cli("logs", str(running)) == "still here\n"
        small.kill("daemon")
        small.start_daemon()
        small.cli("queue")  # waits for it
