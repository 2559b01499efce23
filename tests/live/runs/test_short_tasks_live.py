"""Short tasks from the command line to the node and back: each once, lost ones again."""

from __future__ import annotations

import csv
import json
import shutil
import sqlite3
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from dlsched.torture.local_cluster import LocalCluster, eventually

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def pair() -> Iterator[LocalCluster]:
    """One daemon, two nodes of two GPUs."""
    with LocalCluster(nodes=2, gpus="2:v100") as running:
        yield running


def submit_tasks(cluster: LocalCluster, lines: list[str], tokens: int, *flags: str) -> int:
    """Submit lines for the shell; the output goes to one file for each token."""
    file = cluster.folder / "tasks.sh"
    file.write_text("# what is to be done\n\n" + "\n".join(lines) + "\n")
    words = ("--tokens", str(tokens), "--gpus", "1", "-o", f"{cluster.out}/%A-%a.out", *flags)
    return int(cluster.cli("submit", "--parsable", "--tasks", str(file), *words))


def counts(cluster: LocalCluster, job: int) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(cluster.cli("tasks", str(job), "--json"))
    return found


def bundles(cluster: LocalCluster, job: int) -> int:
    """How many answers have brought tasks; each is at most one transaction."""
    query = "SELECT COUNT(*) FROM (SELECT DISTINCT run_id, given_at FROM task_runs WHERE job = ?)"
    with closing(sqlite3.connect(cluster.folder / "dlsched.db")) as database:
        found: int = database.execute(query, (job,)).fetchone()[0]
    return found


def test_tasks_run_once_and_their_ends_are_known(pair: LocalCluster) -> None:
    total, marks = 400, pair.folder / "marks"
    lines = [f"echo $DLSCHED_TASK {number} >> {marks}" for number in range(1, total + 1)]
    lines[6] += "; exit 3"
    lines[8] += "; kill -KILL $$"
    job = submit_tasks(pair, lines, 4)
    ended = pair.run("wait", str(job))
    assert ended.returncode == 1  # two tasks have failed
    assert bundles(pair, job) < total / 4
    assert Counter(marks.read_text().splitlines()) == Counter(
        f"{number} {number}" for number in range(1, total + 1)
    )
    found = counts(pair, job)
    known = {name: found[name] for name in ("total", "done", "failed", "running", "waiting")}
    assert known == {"total": total, "done": total - 2, "failed": 2, "running": 0, "waiting": 0}
    assert [(t["number"], t["code"], t["signal"]) for t in found["tasks"]] == [(7, 3, 0), (9, 0, 9)]
    rows = list(csv.DictReader(pair.cli("tasks", f"{job}_1", "--csv").splitlines()))
    assert [int(row["task"]) for row in rows] == list(range(1, total + 1))
    assert {row["node"] for row in rows} <= {"n1", "n2"}
    assert {row["state"] for row in rows} == {"done", "failed"}
    shown = pair.cli("tasks", str(job))
    assert f"{total} tasks: {total - 2} done, 2 failed, 0 running, 0 waiting" in shown
    said = "".join(path.read_text() for path in pair.out.glob(f"{job}-*.out"))
    assert "dlsched: task 7: exit 3" in said
    assert "dlsched: task 9: signal 9" in said


def test_a_cancel_ends_all_tasks_and_a_requeue_takes_them_up(pair: LocalCluster) -> None:
    marks, gate = pair.folder / "begun", pair.folder / "gate"
    line = f"echo begun >> {marks}; [ -e {gate} ] || exec sleep 600.25"
    job = submit_tasks(pair, [line] * 50, 2)

    def running() -> int:
        return len(pair.remaining("600.25"))

    eventually("two tasks run", lambda: running() == 2)
    pair.cli("cancel", str(job))
    for element in (job, job + 1):
        pair.until(element, "CANCELLED")
    eventually("no process is left", lambda: running() == 0)
    found = counts(pair, job)
    assert (found["done"], found["failed"], found["running"], found["waiting"]) == (0, 0, 0, 50)
    assert marks.read_text().split() == ["begun"] * 2
    gate.touch()
    pair.cli("requeue", f"{job}_1")
    pair.until(job + 1, "COMPLETED")
    assert counts(pair, job)["done"] == 50
    assert len(marks.read_text().split()) == 52


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (
            ("--tokens", "2", "--", "true"),
            "give a script, a command after --, --wrap, --from, --dag",
        ),
        (("--tokens", "0"), "--tokens"),
        ((), "--tasks: needs --tokens N"),
        (("--tokens", "2", "--array", "1-2"), "--array: not together with --tasks"),
        (("--tokens", "2", "--container", "x.sif"), "--tasks: not together with --container"),
        (("--tokens", "2", "--nodes", "2", "--gpus-per-node", "1"), "a token is on one node"),
    ],
)
def test_what_is_wrong_with_a_submission_is_one_line(
    pair: LocalCluster, flags: tuple[str, ...], message: str
) -> None:
    file = pair.folder / "one.sh"
    file.write_text("true\n")
    refused = pair.run("submit", "--tasks", str(file), *flags)
    assert (refused.returncode, refused.stderr.count("\n")) == (
        1 if "token is" in message else 2,
        1,
    )
    assert message in refused.stderr


def test_tasks_of_a_lost_node_run_again_and_a_killed_daemon_gives_none_twice() -> None:
    """Two nodes have a token each; one of them loses its power, then the daemon is killed."""
    with LocalCluster(nodes=2, gpus="1:v100") as cluster:
        marks, gate = cluster.folder / "marks", cluster.folder / "gate"
        line = f"while [ ! -e {gate} ]; do sleep 0.05; done; echo $DLSCHED_TASK >> {marks}"
        quick = [f"echo $DLSCHED_TASK >> {marks}"] * 40
        job = submit_tasks(cluster, [*quick, *[line] * 40], 2)
        eventually("both tokens are in the second half", lambda: counts(cluster, job)["done"] >= 38)
        eventually("both run", lambda: counts(cluster, job)["running"] >= 2)
        cluster.kill("daemon")
        gate.touch()
        eventually("tasks end meanwhile", lambda: len(marks.read_text().split()) > 40)
        gate.unlink()
        cluster.start_daemon()
        eventually(
            "every end is stored",
            lambda: counts(cluster, job)["done"] == len(marks.read_text().split()),
        )
        lost = cluster.job(job + 1).nodes[0]
        cluster.power_off(lost)
        eventually("it is late", lambda: cluster.node(lost).state.startswith("late"))
        assert counts(cluster, job)["running"] >= 2  # not given anew while nothing is known
        cluster.confirm_down(lost)
        gate.touch()
        cluster.until(job, "COMPLETED")
        cluster.until(job + 1, "COMPLETED", "PENDING", "RUNNING")
        eventually("all are done", lambda: counts(cluster, job)["done"] == 80)
        times = Counter(marks.read_text().split())
        # those that were lost had not yet written
        assert times == Counter(str(number) for number in range(1, 81))


def test_no_task_is_lost_when_the_database_is_an_older_one() -> None:
    """The copy is from before most tasks were given; tokens run on meanwhile, and one has ended."""
    with LocalCluster(nodes=1, gpus="2:v100") as cluster:
        marks, first, last = (cluster.folder / name for name in ("marks", "first", "last"))
        lines = [f"echo $DLSCHED_TASK >> {marks}"] * 60
        for number, gate in ((3, first), (41, first), (58, last)):
            lines[number] = f"while [ ! -e {gate} ]; do sleep 0.05; done; {lines[number]}"
        job = submit_tasks(cluster, lines, 2)
        eventually("some have ended", lambda: counts(cluster, job)["done"] >= 10)
        copy, file = cluster.folder / "older.db", cluster.folder / "dlsched.db"
        config = str(cluster.folder / "dlsched.toml")
        cluster.cli("admin", "backup", str(copy), "--config", config)
        first.touch()
        eventually("more have ended", lambda: counts(cluster, job)["done"] >= 50)
        both = (job, job + 1)
        eventually("a token ends", lambda: "COMPLETED" in [cluster.job(k).state for k in both])
        cluster.kill("daemon")
        for part in ("", "-wal", "-shm"):
            Path(f"{file}{part}").unlink(missing_ok=True)
        shutil.copy2(copy, file)
        cluster.start_daemon()
        last.touch()
        for element in both:
            cluster.until(element, "COMPLETED")
        assert counts(cluster, job)["done"] == 60
        assert set(marks.read_text().split()) == {str(number) for number in range(1, 61)}


# one task that asks in the name of its token, again and again
ASKS = """
import json, os, socket, time
for number in (2**70, -1, 1):
    told = {"ended": [number], "codes": [number], "signals": [0], "ran_s": [1.0]}
    packet = json.dumps({"type": "want_tasks", "held": [number] * 1500, **told}).encode()
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as line:
        line.connect(os.environ["DLSCHED_CTL_SOCK"])
        line.settimeout(1.0)
        try:
            for _ in range(300):
                line.send(packet)
        except OSError as error:  # it is refused, or held back as it reads no answer
            print(error, flush=True)
print("asked", flush=True)
time.sleep(600)
"""


def test_no_message_of_a_token_takes_its_node_away(pair: LocalCluster) -> None:
    program = pair.folder / "asks.py"
    program.write_text(ASKS)
    job = submit_tasks(pair, [f"exec {sys.executable} {program}", "true"], 1)
    output = pair.out / f"{job}-0.out"
    eventually("it has asked", lambda: output.exists() and "asked" in output.read_text())
    node = pair.job(job).nodes[0]
    heard = eventually("it is heard", lambda: pair.node(node).heard_ago_s)
    assert heard < 5
    assert pair.processes[node].poll() is None
    assert pair.until(pair.submit("exit 5", nodelist=node), "FAILED").exit_code == 5
    pair.cli("cancel", str(job))
    pair.until(job, "CANCELLED")
