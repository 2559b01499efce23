"""A user lets other jobs go first, and never improves the place of an own job."""

from __future__ import annotations

import csv
import getpass
import subprocess
import sys
from itertools import pairwise
from pathlib import Path

import pytest

from dlsched.torture.local_cluster import LocalCluster, eventually

pytestmark = pytest.mark.slow

ME = getpass.getuser()
CLAIM = "import os; os.getuid = lambda: 1; from dlsched.cli.main import run; run()"
REFUSED = "only an operator may raise a priority above 0; a lower one lets other jobs go first"


def as_user(cluster: LocalCluster, *words: str) -> tuple[int, str, str]:
    """A command of a user that is no operator: code, output, errors."""
    done = subprocess.run(
        [sys.executable, "-c", CLAIM, *words],
        env=cluster.environment,
        cwd=cluster.folder,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    return done.returncode, done.stdout, done.stderr


def held_job(cluster: LocalCluster, *words: str) -> int:
    """A user's new job, which does not start."""
    code, out, _ = as_user(cluster, "submit", "--hold", "--parsable", *words, "--", "true")
    assert code == 0
    return int(out)


def test_a_priority_above_the_default_is_refused_however_it_is_asked_for(
    shared: LocalCluster,
) -> None:
    script = shared.folder / "first.sh"
    script.write_text("#!/bin/sh\n#DLSCHED --priority 1\ntrue\n")
    nice = shared.folder / "nice.sh"
    nice.write_text("#!/bin/sh\n#SBATCH --nice=-7\ntrue\n")
    rows = shared.folder / "jobs.csv"
    rows.write_text("command,priority\ntrue,0\ntrue,2\n")
    for words, line in (
        (["--priority", "0.5", "--", "true"], "priority 0.5: "),
        (["--nice=-3", "--array", "0-3", "--", "true"], "priority 3: "),
        ([str(script)], "priority 1: "),
        ([str(nice)], "priority 7: "),
        (["--from", str(rows)], "job 2 of 2: priority 2: "),
    ):
        code, out, error = as_user(shared, "submit", "--hold", *words)
        assert (code, out, error) == (1, "", f"dlsched: {line}{REFUSED}\n")
    code, out, _ = as_user(shared, "queue", "--json")
    assert code == 0
    assert '"priority": 2' not in out


def test_an_update_lowers_what_an_operator_gave_and_never_raises(shared: LocalCluster) -> None:
    job = held_job(shared, "--nice", "5")
    code, out, _ = as_user(shared, "update", str(job), "--priority", "-9")
    assert code == 0
    assert "priority -5 -> -9" in out
    for higher, shown in (("-8.5", "-8.5"), ("0", "0"), ("", "0"), ("1", "1")):
        code, _, error = as_user(shared, "update", str(job), "--priority", higher)
        assert code == 1
        assert f"priority {shown}: {REFUSED.replace('above 0', 'above -9')}" in error
    assert "priority -9 -> 6" in shared.cli("update", str(job), "--priority", "6")  # an operator
    assert as_user(shared, "update", str(job), "--priority", "7")[0] == 1
    assert as_user(shared, "update", str(job), "--priority", "4")[0] == 0
    assert shared.run("cancel", str(job)).returncode == 0


def test_a_weight_is_lowered_by_users_and_raised_by_operators_only(shared: LocalCluster) -> None:
    refused = REFUSED.replace("priority", "weight").replace("above 0", "above {}")
    for words in ([], ["--test-only"]):
        code, _, error = as_user(shared, "submit", *words, "--weight", "1.5", "--", "true")
        assert (code, error) == (1, f"dlsched: weight 1.5: {refused.format(1)}\n")
    job = held_job(shared, "--weight", "0.5")
    for higher, shown in (("0.6", "0.6"), ("1", "1"), ("", "1")):
        code, _, error = as_user(shared, "update", str(job), "--weight", higher)
        assert code == 1
        assert f"weight {shown}: {refused.format(0.5)}" in error
    assert as_user(shared, "update", str(job), "--weight", "0.25")[0] == 0
    assert "weight 0.25 -> 2" in shared.cli("update", str(job), "--weight", "2")
    assert shared.run("cancel", str(job)).returncode == 0


@pytest.mark.parametrize("words", [["--priority", "3"], ["--nice=-3"]])
def test_an_operator_may_submit_with_a_higher_priority(
    shared: LocalCluster, words: list[str]
) -> None:
    done = shared.run("submit", "--hold", "--parsable", *words, "--", "true")
    assert done.returncode == 0, done.stderr
    number = int(done.stdout)
    assert shared.job(number).priority == 3
    shared.cli("cancel", str(number))


CLASSES = """[[classes]]
name = "urgent"
gpus = 2
gpus_per_user = 1
max_time_s = 3600
"""
NODES = """[[nodes]]
name = "n1"
gpus = 4
"""


def starts(file: Path, of_policy: str = "") -> list[float]:
    """When jobs of a replay start, in seconds."""
    rows = csv.DictReader(file.read_text().splitlines())
    kept = [row for row in rows if row.get("name", "") == of_policy]
    texts = [row["start_in" if of_policy else "first_start_time"] for row in kept]
    return sorted(float(text) for text in texts if text)


def test_limits_of_classes_hold_in_life_and_in_replays_of_it(tmp_path: Path) -> None:
    with LocalCluster(nodes=1, gpus="4:v100") as cluster:
        path = cluster.folder / "dlsched.toml"
        path.write_text(path.read_text() + CLASSES)
        cluster.cli("admin", "reload")
        options = {"priority_class": "urgent", "expected": "100s", "time": "30m"}
        running = cluster.submit("sleep 600", **options)
        cluster.until(running, "RUNNING")
        waiting = [cluster.submit("sleep 600", **options) for _ in range(2)]
        plain = cluster.submit("sleep 600")
        cluster.until(plain, "RUNNING")
        for job in waiting:
            assert cluster.job(job).reason.startswith("QOSMaxGRESPerUser: user ")
        saved, told = str(tmp_path / "saved"), tmp_path / "told.csv"
        cluster.cli("admin", "snapshot", "-o", saved)
        words = ("--policy", "las", "--jobs-out", str(told))
        assert "never start" not in cluster.cli("replay", "--snapshot", saved, *words)
        first, second = starts(told, "las")
        assert 50 < first <= 100
        assert second == pytest.approx(first + 100, abs=1)
        cluster.cli("cancel", *map(str, (running, *waiting, plain)))
        short = [cluster.submit("sleep 0.5", **options) for _ in range(3)]
        for job in short:
            cluster.until(job, "COMPLETED")
        trace, ids = tmp_path / "week.csv", ",".join(map(str, short))
        cluster.cli("history", "-a", "--job", ids, "--export", str(trace))
        names = (tmp_path / "limited.toml", tmp_path / "free.toml")
        for name, text in zip(names, (NODES + CLASSES, NODES), strict=True):
            name.write_text(text)
        words = ("--policy", "fifo", "--jobs-out", str(told))
        said = cluster.cli("replay", str(trace), "--cluster", str(names[0]), *words)
        assert "only those on GPUs hold (not max_time_s)" in said
        assert min(b - a for a, b in pairwise(starts(told))) >= 0.5
        said = cluster.cli("replay", str(trace), "--cluster", str(names[1]), *words)
        assert "no limit of a priority class holds" in said
        assert min(b - a for a, b in pairwise(starts(told))) < 0.5
        said = cluster.cli("replay", "--from-db", cluster.database, "--policy", "fifo")
        assert "only those on GPUs hold (not max_time_s)" in said


def test_an_elastic_job_that_asks_for_more_than_its_limit_is_refused_in_both_worlds(
    tmp_path: Path,
) -> None:
    said = "QOSGrpGRES: needs 3 GPUs, and class urgent may have 2"
    classes = CLASSES.replace("gpus_per_user = 1\n", "")
    with LocalCluster(nodes=1, gpus="4:v100") as cluster:
        path = cluster.folder / "dlsched.toml"
        path.write_text(path.read_text() + classes)
        cluster.cli("admin", "reload")
        words = ("submit", "--parsable", "-q", "urgent", "--min-gpus", "1", "--max-gpus", "4")
        refused = cluster.run(*words, "--gpus", "3", "--", "true")
        assert (refused.returncode, refused.stdout) == (1, "")
        assert refused.stderr == f"dlsched: {said} (--gpus 2 would do)\n"
        job = int(cluster.cli(*words, "--gpus", "2", "--", "sleep", "600"))
        assert cluster.until(job, "RUNNING").gpus == 2
        cluster.cli("cancel", str(job))
        held = int(cluster.cli(*words, "--hold", "--gpus", "2", "--", "true"))
        again = cluster.run("update", str(held), "--gpus", "3")
        assert again.returncode == 1
        assert f"{said} (--gpus 2 would do)" in again.stderr
        names = "job_id,submit_time,num_gpus,duration,min_gpus,max_gpus,class"
        trace, limited, told = (tmp_path / name for name in ("week.csv", "c.toml", "told.csv"))
        trace.write_text(f"{names}\n1,0,3,60,1,4,urgent\n2,0,2,60,1,4,urgent\n")
        limited.write_text(NODES + classes)
        more = ("--policy", "fifo", "--jobs-out", str(told))
        shown = cluster.cli("replay", str(trace), "--cluster", str(limited), *more)
        assert f"note: job 1 refused: {said}\n" in shown
        rows = list(csv.DictReader(told.read_text().splitlines()))
        assert [row["status"] for row in rows] == ["refused", "completed"]


@pytest.mark.parametrize("kind", ["user", "class"])
def test_a_limit_that_is_lowered_below_a_waiting_job_is_told_in_queue(
    kind: str, small: LocalCluster
) -> None:
    path = small.folder / "dlsched.toml"
    plain = path.read_text()

    def limit(gpus: int) -> None:
        """Have a user, or a class, at most so many GPUs."""
        if kind == "class":
            path.write_text(f'{plain}[[classes]]\nname = "urgent"\ngpus = {gpus}\n')
            small.cli("admin", "reload")
        elif small.run("admin", "quota", "set", "user", ME, "--gpus", str(gpus)).returncode:
            small.cli("admin", "quota", "add", "user", ME, "--gpus", str(gpus))

    limit(4)
    options = {"priority_class": "urgent"} if kind == "class" else {}
    first, second = (small.submit("sleep 600", gpus="3", **options) for _ in range(2))
    small.until(first, "RUNNING")
    limit(2)
    holder = "class urgent" if kind == "class" else f"user {ME}"
    why = f"needs 3 GPUs, and {holder} may have 2"
    eventually("queue says it", lambda: why in small.cli("queue", "-j", str(second)))
    small.cli("cancel", str(first))
    small.until(first, "CANCELLED")
    assert why in small.cli("queue", "-j", str(second))
    limit(3)
    small.until(second, "RUNNING")
