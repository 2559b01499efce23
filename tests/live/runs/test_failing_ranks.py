"""A rank that fails or hangs: show names it, its error and its node; the others are stopped."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

import pytest

from dlsched.torture.local_cluster import LocalCluster, eventually
from tests.live.conftest import SELDOM_POSTGRES, database_of

PROGRAM = Path(__file__).with_name("failing_program.py")
LEAST_S = 6.0  # without a step, until a training hangs
HANG = {"hang": {"factor": 20.0, "least_s": LEAST_S}}

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def cluster() -> Iterator[LocalCluster]:
    """Two nodes of two GPUs; a hang is found soon."""
    with LocalCluster(nodes=2, gpus="2:v100", tables=HANG) as running:
        yield running


@pytest.fixture(params=SELDOM_POSTGRES)
def one_node(request: pytest.FixtureRequest) -> Iterator[LocalCluster]:
    """One node; a hang is found soon."""
    with LocalCluster(database_of(request), nodes=1, tables=HANG) as running:
        yield running


def started(cluster: LocalCluster, what: str, rank: int, *options: str) -> int:
    """The id of a gang on two nodes with two ranks each, typed as a user types it."""
    program = [sys.executable, str(PROGRAM), what, str(rank), "30"]
    gang = ["--launch", "gpu", "-N", "2", "--gpus-per-node", "2", "--grace", "60"]
    out = ["-o", f"{cluster.out}/%j.%t.out"]
    return int(cluster.cli("submit", "--parsable", *gang, *out, *options, "--", *program))


def nodes(cluster: LocalCluster, job: int) -> list[str]:
    """The nodes of a job's last run, in the order of its ranks."""
    return [*json.loads(cluster.cli("show", str(job), "--json"))["jobs"][0]["runs"][-1]["nodes"]]


def told(cluster: LocalCluster, job: int, word: str) -> str:
    """What `show` prints once it has a word."""

    def shown() -> str:
        text = cluster.cli("show", str(job))
        return text if word in text else ""

    try:
        return eventually(f"show has {word}", shown)
    except AssertionError as error:
        raise AssertionError(f"{error}\n{cluster.story(job)}") from None


@pytest.mark.parametrize("what", ["fail", *(["ddp"] if find_spec("torch") else [])])
def test_the_first_rank_that_fails_is_named_and_the_others_end_soon(
    cluster: LocalCluster, what: str
) -> None:
    job = started(cluster, what, 3)
    cluster.until(job, "FAILED", within=200)
    [shown] = json.loads(cluster.cli("history", "-j", str(job), "--json"))["jobs"]
    text = told(cluster, job, "\n  failed ")
    line = next(line for line in text.splitlines() if line.strip().startswith("failed "))
    node = nodes(cluster, job)[1]
    assert f"rank 3 on {node}: ValueError: shard 17 is truncated (failing_program.py:" in line
    if what == "fail":  # no other rank can fail before it
        words = f"rank 3 on {node}: exit 1: ValueError: shard 17 is truncated"
        assert shown["reason"].startswith(words)
        assert f"FAILED ({words}" in text
        run = next(line for line in text.splitlines() if line.startswith("  1: "))
        assert f", failed: {words}" in run
        assert not run.endswith(" 1:0")  # which it says already
    assert not cluster.remaining(str(PROGRAM))


def test_an_exit_without_words_is_told_with_its_code(cluster: LocalCluster) -> None:
    job = started(cluster, "exit", 1)
    cluster.until(job, "FAILED", within=200)
    assert f"rank 1 on {nodes(cluster, job)[0]}: exit 7" in told(cluster, job, "\n  failed ")


def test_a_plain_script_is_explained_by_its_output(cluster: LocalCluster) -> None:
    job = cluster.submit(f"{sys.executable} -c 'import json; json.loads(\"no\")'\nexit 3")
    cluster.until(job, "FAILED")
    text = told(cluster, job, "\n  failed ")
    assert ": exit 3: json.decoder.JSONDecodeError: Expecting value" in text


def test_a_hang_is_told_with_all_stacks_and_goes_on_from_its_checkpoint(
    cluster: LocalCluster,
) -> None:
    job = started(cluster, "hang", 2, "--on-hang", "requeue", "--grace", "3")
    text = told(cluster, job, "hang by daemon")
    assert "no step for" in text
    text = told(cluster, job, "read_batch")
    for rank in range(4):
        text = told(cluster, job, f"rank {rank}\n")
    assert "failing_program.py" in text
    ended = cluster.until(job, "COMPLETED", within=200)
    assert (ended.starts, ended.failures) == (2, 0)


def test_an_evaluation_that_is_announced_is_no_hang(cluster: LocalCluster) -> None:
    job = started(cluster, "evaluate", 0, "--on-hang", "fail")
    cluster.until(job, "COMPLETED", within=200)
    assert "hang by daemon" not in cluster.cli("show", str(job))


def test_a_hang_fails_a_job_that_wants_it(cluster: LocalCluster) -> None:
    job = started(cluster, "hang", 1, "--on-hang", "fail", "--hang-factor", "10")
    cluster.until(job, "FAILED", within=200)
    assert "hangs: no step for" in told(cluster, job, "\n  failed ")


def test_a_suspension_is_no_hang_but_a_later_hang_is_told(one_node: LocalCluster) -> None:
    program = [sys.executable, str(PROGRAM), "hang", "0", "200"]
    job = int(one_node.cli("submit", "--parsable", "--gpus", "1", "--grace", "1", "--", *program))

    def has_passed(step: int) -> bool:
        [shown] = json.loads(one_node.cli("show", str(job), "--json"))["jobs"]
        return bool(shown["progress"] is not None and shown["progress"] > step)

    eventually("some reports", lambda: has_passed(30))
    one_node.cli("suspend", str(job))
    one_node.until(job, "SUSPENDED")
    time.sleep(1.5 * LEAST_S)
    one_node.cli("resume", str(job))
    told(one_node, job, "hang by daemon")
    text = told(one_node, job, "read_batch")
    assert text.count("hang by daemon") == text.count("s after step 200; ") == 1
    one_node.cli("cancel", "-y", str(job))
    one_node.until(job, "CANCELLED")
    one_node.kill("daemon")
    one_node.start_daemon()
    one_node.wait_until_up()
    [curve, *_] = json.loads(one_node.cli("metrics", str(job), "--json"))["metrics"]
    assert (curve["name"], curve["points"][-1]["value"]) == ("loss", 1.0)
