"""Checkpoints that fail are seen where users and operators look, with real disks and limits."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from dlsched.torture.local_cluster import LocalCluster, eventually

pytestmark = pytest.mark.slow

PROGRAM = Path(__file__).with_name("failing_saves_program.py")
COMMAND = """#!/bin/bash
cat >>{folder}/notices
"""


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    """One node of four GPUs, whose site has a command that takes notices."""
    folder = tmp_path_factory.mktemp("site")
    command = folder / "command"
    command.write_text(COMMAND.format(folder=folder))
    command.chmod(0o755)
    tables = {"notifications": {"command": [str(command)]}}
    with LocalCluster(nodes=1, tables=tables) as running:
        (running.folder / "notices").symlink_to(folder / "notices")
        yield running


def started(cluster: LocalCluster, *program: object, options: tuple[str, ...] = ()) -> int:
    """Submit the program in a folder of its own, as a user types it; returns the id."""
    words = ("submit", "--parsable", "-o", f"{cluster.out}/%j.out", *options, "--")
    return int(cluster.cli(*words, sys.executable, str(PROGRAM), *map(str, program)))


def told(cluster: LocalCluster, job: int, pattern: str) -> str:
    """Wait until `show` and `checkpoints` say it in the same words; returns the line of `show`."""
    line = re.compile(rf"not saved +(checkpoint at step \d+: {pattern}.*)")

    def said() -> str:
        """What `show` says."""
        text = " ".join(cluster.cli("show", str(job)).split())
        found = line.search(text)
        return found[1] if found else ""

    shown = eventually(f"show says {pattern}", said)
    listed = cluster.cli("checkpoints", str(job))
    assert re.search(rf"^{job}: checkpoint at step \d+: {pattern}", listed, re.MULTILINE), listed
    return shown


def metric(cluster: LocalCluster, name: str) -> float:
    """A metric of the daemon."""
    port = re.findall(r"event=listening .*metrics=(\d+)", cluster.log("daemon", 100_000))[-1]
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=60) as answer:
        text = answer.read().decode()
    return float(re.findall(rf"^{name} (\S+)$", text, re.MULTILINE)[0])


def test_saves_that_fail_again_and_again_are_told_until_one_succeeds(cluster: LocalCluster) -> None:
    folder = cluster.folder / "limited"
    folder.mkdir()
    options = ("-D", str(folder), "--notify", "checkpoint")
    job = started(cluster, 100_000, 0.1, 200_000, 100_000, options=options)
    said = told(cluster, job, r"a file in \S+ may not be as large as it has to be")
    assert re.search(r"the newest one is of step 2, \d+ s old", said), said
    entry = eventually(
        "two have failed",
        lambda: (
            (found := json.loads(cluster.cli("checkpoints", str(job), "--json"))["unsaved"])
            and found[0]["in_a_row"] > 1
            and found[0]
        ),
    )
    assert (entry["job_id"], entry["newest_step"]) == (job, 2)
    assert entry["step"] == 2 + entry["in_a_row"]
    assert "checkpoint-failed" in cluster.cli("show", str(job))
    eventually("the metrics", lambda: metric(cluster, "dlsched_jobs_unsaved") == 1)
    assert metric(cluster, "dlsched_checkpoints_failed_total") >= 2
    notices = cluster.folder / "notices"
    eventually("a notice", lambda: notices.exists() and notices.read_text().endswith("\n"))
    notice = json.loads(notices.read_text().splitlines()[0])
    assert (notice["job"], notice["event"]) == (job, "checkpoint")
    assert "cannot save its checkpoints" in notice["text"]
    assert "2 in a row have failed; the newest one is of step 2" in notice["reason"]
    (folder / "mended").touch()
    eventually("it has saved", lambda: "not saved" not in cluster.cli("show", str(job)))
    assert json.loads(cluster.cli("checkpoints", str(job), "--json"))["unsaved"] == []
    eventually("the metric falls", lambda: metric(cluster, "dlsched_jobs_unsaved") == 0)
    assert len(notices.read_text().splitlines()) == 1
    cluster.cli("cancel", "-y", str(job))
    cluster.until(job, "CANCELLED")


@pytest.fixture
def disk(cluster: LocalCluster) -> Iterator[Path]:
    """A disk of 400 KiB."""
    path = cluster.folder / "disk"
    path.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=400k,mode=1777", "small", str(path)]
    mounted = subprocess.run(mount, capture_output=True, text=True, check=False)
    if mounted.returncode:
        pytest.skip(f"no small disk can be mounted here: {mounted.stderr.strip()}")
    yield path
    subprocess.run(["umount", "-l", str(path)], check=True)


def test_a_full_disk_is_named(cluster: LocalCluster, disk: Path) -> None:
    options = ("-D", str(disk))
    job = started(cluster, 100_000, 0.1, 500_000, options=options)
    said = told(cluster, job, rf"no space left on {disk}\S+")
    assert "there is none before it" in said
    cluster.cli("cancel", "-y", str(job))
    ended = cluster.until(job, "CANCELLED")
    assert ended.state == "CANCELLED"
    assert "no space left on" in cluster.cli("checkpoints", str(job))


def test_the_rank_that_could_not_save_is_named(cluster: LocalCluster) -> None:
    folder = cluster.folder / "broken"
    folder.mkdir()
    options = ("-D", str(folder), "--gpus", "2", "--launch", "gpu")
    job = started(cluster, 100_000, 0.1, 1000, "broken", 1, options=options)
    said = told(cluster, job, "rank 1: RuntimeError: a state of its own cannot be written")
    assert "the newest one is of step 2" in said
    (folder / "mended").touch()
    eventually("it has saved", lambda: "not saved" not in cluster.cli("show", str(job)))
    cluster.cli("cancel", "-y", str(job))
    cluster.until(job, "CANCELLED")


def test_of_a_job_that_never_saves_no_checkpoint_is_missed(cluster: LocalCluster) -> None:
    folder = cluster.folder / "never"
    folder.mkdir()
    job = started(cluster, 100_000, 0.1, 1, "never", options=("-D", str(folder), "--grace", "1s"))
    eventually("steps", lambda: (cluster.job(job).progress or 0) > 1)
    cluster.cli("requeue", str(job))
    eventually("it runs again", lambda: "\n  2: " in cluster.cli("show", str(job)))
    shown = cluster.cli("show", str(job))
    assert "not saved" not in shown
    assert "checkpoint-failed" not in shown
    assert "has registered no state" in shown
    cluster.cli("cancel", "-y", str(job))
    cluster.until(job, "CANCELLED")


LARGE = 512 << 20  # bytes; takes seconds to write, and more than the grace of 1 s


def test_a_first_save_that_is_too_large_for_the_grace_has_a_longer_one(
    cluster: LocalCluster,
) -> None:
    job = started(cluster, 100_000, 0.05, LARGE, "large", options=("--grace", "1s"))
    said = eventually(
        "it is foreseen", lambda: re.findall(r"grace 1 s -> (\S+) s", cluster.cli("show", str(job)))
    )
    assert float(said[0]) > 5
    cluster.cli("requeue", str(job))
    begins = re.compile(r"^begins at (\d+)$", re.MULTILINE)
    eventually("it continues", lambda: len(begins.findall(cluster.output(job))) == 2)
    first, second = map(int, begins.findall(cluster.output(job)))
    assert first == 0 < second  # the large save was whole
    assert "not saved" not in cluster.cli("show", str(job))
    cluster.cli("cancel", "-y", str(job))
    cluster.until(job, "CANCELLED")


def test_a_first_save_that_fits_in_no_grace_is_told_beforehand_and_after() -> None:
    with LocalCluster(nodes=1, tables={"limits": {"grace_s": 2}}) as cluster:
        job = started(cluster, 100_000, 0.05, LARGE, "large", options=("--grace", "1s"))
        foreseen = r"a checkpoint of 0\.5 GiB will take about .* the longest grace here is 2 s"
        eventually(
            "it is foreseen", lambda: re.search(foreseen, cluster.cli("show", str(job)), re.DOTALL)
        )
        assert "stop may come too early" in cluster.output(job) + cluster.cli("show", str(job))
        cluster.cli("cancel", "-y", str(job))
        cluster.until(job, "CANCELLED")


def test_a_save_that_the_grace_cuts_off_is_told(cluster: LocalCluster) -> None:
    folder = cluster.folder / "slow"
    folder.mkdir()
    job = started(
        cluster, 100_000, 0.1, 1000, "slow", 600, options=("-D", str(folder), "--grace", "2s")
    )
    eventually("steps", lambda: (cluster.job(job).progress or 0) > 1)
    cluster.cli("requeue", str(job))
    said = told(cluster, job, "it was cut off on n1 after the grace of 2 s")
    step = re.search(r"checkpoint at step (\d+)", said)
    assert step is not None
    assert int(step[1]) > 1
    cluster.cli("cancel", "-y", str(job))
    cluster.until(job, "CANCELLED")
