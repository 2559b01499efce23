"""Replicas that have to stop under load: what they work on is answered, and nothing is lost."""

from __future__ import annotations

import re
import sys
import threading
import urllib.request
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import count
from pathlib import Path

import pytest

from dlsched.client.job_records import Job
from dlsched.torture.local_cluster import LocalCluster, eventually

pytestmark = pytest.mark.slow

PROGRAM = Path(__file__).with_name("counting_program.py")
TERMS = "within=5,share=0.9,most=2,least=2,slots=2,setup=2,window=1"
REQUESTS = 2000
USERS = 8
WORK_S, LONG_S = 0.05, 3.0
STOPS = ("cancel", "requeue", "preempt", "time limit", "drain") * 2


class Service:
    """A service of two replicas on two nodes of one GPU, and its users."""

    def __init__(self, cluster: LocalCluster, terms: str = TERMS) -> None:
        self.cluster, self.log = cluster, cluster.folder / "requests"
        more = ("-q", "serving") if terms == TERMS else ()
        told = cluster.cli(
            "submit", "--service", terms, "--gpus", "1", "--name", "ask", *more,
            "--output", f"{cluster.out}/%j.out", "--",
            sys.executable, str(PROGRAM), str(self.log),
        )  # fmt: skip
        self.job = int("".join(filter(str.isdigit, told)))
        self.url = str(
            eventually(
                "the leader takes requests",
                lambda: "".join(re.findall(r"requests at (\S+)", cluster.output(self.job))),
            )
        )
        self.answered = 0
        self._lock = threading.Lock()

    def ask(self, number: int, work_s: float = WORK_S) -> int:
        """Send one request, once; returns the number in its answer."""
        request = urllib.request.Request(self.url, data=f"{number} {work_s}".encode())
        with urllib.request.urlopen(request, timeout=300) as answer:
            found = int(answer.read().split()[0])
        with self._lock:
            self.answered += 1
        return found

    def replicas(self) -> list[Job]:
        """Those that run."""
        with self.cluster.client() as client:
            found = client.queue().jobs
        names = f"ask-{self.job}-"
        return [job for job in found if job.name.startswith(names) and job.state == "RUNNING"]

    def taken(self) -> int:
        """How often a replica has begun to take requests."""
        return len(re.findall(r"replica \d takes requests", self.cluster.output(self.job)))

    def stop_one(self, how: str) -> None:
        """Have a replica stopped, and wait until there are two again."""
        taken = self.taken()
        one = self.replicas()[0]
        cli = self.cluster.cli
        match how:
            case "preempt":
                words = ("--gpus", "1", "-q", "urgent", "--output", "/dev/null", "--parsable")
                urgent = int(cli("submit", *words, "--", "sleep", "1"))
                self.cluster.until(urgent, "COMPLETED")
            case "drain":
                leaders = self.cluster.job(self.job).nodes  # it would leave, too
                (node,) = (
                    each for job in self.replicas() for each in job.nodes if each not in leaders
                )
                cli("drain", node, "--now", "--reason", "a test")
                eventually(
                    "the replica has left the node",
                    lambda: all(node not in job.nodes for job in self.replicas()),
                )
                cli("resume-node", node)
            case "time limit":
                cli("update", str(one.job_id), "--time", "1s")
            case "requeue":
                cli("requeue", str(one.job_id))
            case _:
                cli("cancel", "-y", str(one.job_id))
        eventually(f"{how}: two replicas again", lambda: self.taken() > taken)


@pytest.fixture(scope="module")
def service() -> Iterator[Service]:
    """The service, whose replicas both take requests."""
    classes = [
        {"name": "urgent", "priority": 20, "preempts": ["serving"]},
        {"name": "serving", "priority": 10},
    ]
    policy = {"policy": "multifactor"}
    with LocalCluster(nodes=2, gpus="1:v100", round=policy, tables={"classes": classes}) as cluster:
        found = Service(cluster)
        eventually("both replicas take requests", lambda: found.taken() == 2)
        yield found


def test_no_request_is_lost_over_ten_stops_and_none_is_cut_off(service: Service) -> None:
    stopped, lock, numbers = threading.Event(), threading.Lock(), count()

    def user() -> list[int]:
        """Ask until all stops are over and enough was asked; returns what had its answer."""
        had = []
        while not (stopped.is_set() and service.answered >= REQUESTS):
            with lock:
                number = next(numbers)
            assert service.ask(number) == number
            had.append(number)
        return had

    with ThreadPoolExecutor(USERS) as pool:
        users = [pool.submit(user) for _ in range(USERS)]
        try:
            for how in STOPS:
                service.stop_one(how)
        finally:
            stopped.set()
        answered = [number for each in users for number in each.result()]
    lines = service.log.read_text().splitlines()
    assert len(answered) >= REQUESTS
    begun = Counter(line for line in lines if line.startswith("begins"))
    assert begun == Counter(f"begins {number}" for number in answered)  # each once
    assert [line for line in lines if line.startswith("term")] == ["term 0"] * len(STOPS)


def test_no_request_is_lost_when_a_replica_that_is_not_needed_leaves() -> None:
    """Requests come as it leaves: quiet times last about as long as it waits for one."""
    terms = "within=1,share=0.9,most=2,least=1,slots=1,setup=1,window=1,idle=1"
    with LocalCluster(nodes=2, gpus="1:v100") as cluster:
        found = Service(cluster, terms)
        numbers, answered = count(), 0
        with ThreadPoolExecutor(USERS) as users:

            def ends() -> int:
                return found.log.read_text().count("term ") if found.log.exists() else 0

            def wave() -> bool:
                nonlocal answered
                asked = [next(numbers) for _ in range(4 * USERS)]
                assert list(users.map(found.ask, asked)) == asked
                answered += len(asked)
                quiet = threading.Event()
                for tenth in range(8, 13):  # one request after each pause
                    quiet.wait(tenth / 10)
                    number = next(numbers)
                    assert found.ask(number) == number
                    answered += 1
                return ends() > 0

            eventually("a replica has left", wave)
        lines = found.log.read_text().splitlines()
        assert Counter(line for line in lines if line.startswith("begins")) == Counter(
            f"begins {number}" for number in range(answered)
        )
        assert {line for line in lines if line.startswith("term")} == {"term 0"}
        cluster.cli("cancel", "-y", str(found.job))


def test_a_leader_that_is_cancelled_answers_what_it_has(service: Service) -> None:
    numbers = range(10**6, 10**6 + 4)  # as many as the replicas take at once
    with ThreadPoolExecutor(len(numbers)) as users:
        asked = [users.submit(service.ask, number, LONG_S) for number in numbers]
        eventually(
            "all are worked on",
            lambda: all(f"begins {number}\n" in service.log.read_text() for number in numbers),
        )
        service.cluster.cli("cancel", "-y", str(service.job))
        assert [each.result() for each in asked] == list(numbers)
    service.cluster.until(service.job, "CANCELLED")
    eventually("the replicas end", lambda: not service.replicas())
    terms = [line for line in service.log.read_text().splitlines() if line.startswith("term")]
    assert set(terms) == {"term 0"}
