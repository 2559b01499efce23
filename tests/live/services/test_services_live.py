"""A service from the command line to HTTP answers and back: out, in, killed and cancelled."""

from __future__ import annotations

import contextlib
import json
import re
import signal
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import psutil
import pytest

from dlsched.client.job_records import Job
from dlsched.torture.local_cluster import LocalCluster, eventually

pytestmark = pytest.mark.slow

PROGRAM = Path(__file__).parent / "answering_program.py"
TERMS = "within=5,share=0.9,most=3,setup=2,window=1,windows=3,idle=5"
WORK_S = 0.05


def trainings(cluster: LocalCluster) -> int:
    """How many trainings hold a GPU."""
    with cluster.client() as client:
        found = client.queue().jobs
    return sum(job.name == "train" and job.state == "RUNNING" for job in found)


class Asked:
    """A service of a cluster, and its users."""

    def __init__(self, cluster: LocalCluster) -> None:
        self.cluster = cluster
        told = cluster.cli(
            "submit", "--service", TERMS, "--gpus", "1", "--name", "ask", "-q", "serving",
            "--output", f"{cluster.out}/%j.out", "--",
            sys.executable, str(PROGRAM), str(WORK_S),
        )  # fmt: skip
        self.job = int("".join(filter(str.isdigit, told)))
        self.url = self.address(1)

    def address(self, runs: int) -> str:
        """Where the leader's run with this number takes requests."""

        def found() -> list[str] | None:
            all_of_them = re.findall(r"requests at (\S+)", self.cluster.output(self.job))
            return all_of_them if len(all_of_them) >= runs else None

        found_now = eventually("the leader takes requests", found)
        assert found_now is not None
        return found_now[-1]

    def ask(self, text: str) -> dict[str, Any]:
        request = urllib.request.Request(self.url, data=text.encode())
        with urllib.request.urlopen(request, timeout=120) as answer:
            found: dict[str, Any] = json.loads(answer.read())
        assert found["sent"] == text
        return found

    def replicas(self) -> list[Job]:
        with self.cluster.client() as client:
            found = client.queue().jobs
        return [job for job in found if str(job.name).startswith(f"ask-{self.job}-")]

    def metrics(self) -> dict[str, float]:
        return dict(self.cluster.job(self.job).metrics)


@pytest.fixture(scope="module")
def asked() -> Iterator[Asked]:
    classes = [{"name": "serving", "priority": 10, "preempts": ["training"]}, {"name": "training"}]
    policy = {"policy": "multifactor"}
    with LocalCluster(nodes=2, gpus="2:v100", round=policy, tables={"classes": classes}) as cluster:
        for _ in range(4):
            words = ("--gpus", "1", "-q", "training", "--name", "train", "--output", "/dev/null")
            cluster.cli("submit", *words, "--", "sleep", "3600")
        eventually("trainings have all GPUs", lambda: trainings(cluster) == 4)
        yield Asked(cluster)


def processes(asked: Asked, script: Path | str, *words: str) -> list[psutil.Process]:
    """The processes of the cluster's jobs with such words."""
    found = []
    for each in asked.cluster.remaining():
        with contextlib.suppress(psutil.NoSuchProcess):
            line = each.cmdline()
            if str(script) in line and all(word in line for word in words):
                found.append(each)
    return found


def test_requests_are_answered_and_replicas_come_with_the_load_and_go_with_it(asked: Asked) -> None:
    assert asked.ask("first")["replica"] == 1
    assert [job.name for job in asked.replicas()] == [f"ask-{asked.job}-1"]
    assert asked.replicas()[0].gpus == 1
    assert trainings(asked.cluster) == 3  # one gave its GPU
    with ThreadPoolExecutor(12) as users:
        # 12 users at once keep one replica busy all the time: more are needed

        def loaded() -> bool:
            answers = list(users.map(asked.ask, map(str, range(60))))
            several = len({answer["replica"] for answer in answers}) > 1
            several = several and asked.metrics().get("replicas", 0) >= 2
            return several and trainings(asked.cluster) < 3

        eventually("several replicas answer", loaded)
    shown = asked.metrics()
    assert WORK_S <= shown["p50_s"] <= shown["p99_s"]
    assert shown["sla_s"] == 5
    assert 0 < shown["in_time"] <= 1
    assert re.search(r"metrics .*p99_s", asked.cluster.cli("show", str(asked.job)))
    eventually("quiet replicas end", lambda: len(asked.replicas()) == 1)
    eventually("a training has each GPU that they gave back", lambda: trainings(asked.cluster) == 3)
    assert asked.replicas()[0].name == f"ask-{asked.job}-1"
    history = asked.cluster.cli("history", "--name", f"ask-{asked.job}-2", "--json")
    assert json.loads(history)["jobs"][0]["state"] == "COMPLETED"


def test_a_killed_replica_is_replaced_and_no_request_is_lost(asked: Asked) -> None:
    before = asked.ask("before")["process"], asked.replicas()[0].job_id
    with ThreadPoolExecutor(4) as users:
        answers = [users.submit(asked.ask, f"request {number}") for number in range(40)]
        (replica,) = processes(asked, "dlsched.service", "replica", "1")
        replica.send_signal(signal.SIGKILL)
        assert {answer.result()["sent"] for answer in answers} == {
            f"request {number}" for number in range(40)
        }
    assert asked.ask("after")["replica"] == 1
    eventually(
        "the old one has left", lambda: before[1] not in [r.job_id for r in asked.replicas()]
    )


def test_a_killed_leader_comes_back_to_its_replicas(asked: Asked) -> None:
    kept = {job.name: job.job_id for job in asked.replicas()}
    (leader,) = processes(asked, "dlsched.service", "lead")
    leader.send_signal(signal.SIGKILL)
    asked.url = asked.address(2)
    asked.ask("again")
    first = f"ask-{asked.job}-1"
    found = [job.job_id for job in asked.replicas() if job.name == first]
    assert found == [kept[first]]


def test_what_is_no_request_is_declined(asked: Asked) -> None:
    for method, headers, status in (
        ("POST", {"Transfer-Encoding": "chunked"}, 411),
        ("POST", {"Content-Length": str(1 << 30)}, 413),
        ("GET", {"X": "x" * 70_000}, 431),
    ):
        request = urllib.request.Request(asked.url, headers=headers, method=method)
        with pytest.raises(urllib.error.HTTPError) as declined:
            urllib.request.urlopen(request, timeout=60)
        with declined.value as error:
            assert error.code == status


def test_a_cancel_ends_the_service_with_all_that_belongs_to_it(asked: Asked) -> None:
    assert asked.replicas()
    asked.cluster.cli("cancel", str(asked.job))
    asked.cluster.until(asked.job, "CANCELLED")
    eventually("the replicas are cancelled", lambda: not asked.replicas())
    eventually("the servers end", lambda: not processes(asked, PROGRAM))
    eventually("so do the others", lambda: not processes(asked, "dlsched.service"))
    eventually("trainings have all GPUs", lambda: trainings(asked.cluster) == 4)
    with pytest.raises(urllib.error.URLError):
        asked.ask("too late")
