"""What a training reports is seen where users look: show, queue, top, JSON, curves, Prometheus."""

from __future__ import annotations

import json
import os
import pwd
import re
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from dlsched.torture.local_cluster import LocalCluster, eventually

pytestmark = pytest.mark.slow

PROGRAM = Path(__file__).with_name("reporting_program.py")


@pytest.fixture(scope="module")
def cluster() -> Iterator[LocalCluster]:
    """One daemon and one node."""
    with LocalCluster(nodes=1) as running:
        yield running


def started(cluster: LocalCluster, *words: object) -> int:
    """The id of a submitted training, typed as a user types it."""
    program = " ".join(map(str, (sys.executable, PROGRAM, *words)))
    out = cluster.cli("submit", "--parsable", "-o", f"{cluster.out}/%j.out", "--", *program.split())
    return int(out)


def shown(cluster: LocalCluster, job: int) -> dict[str, object]:
    """What `show --json` says of a job."""
    found: dict[str, object] = json.loads(cluster.cli("show", str(job), "--json"))["jobs"][0]
    return found


def test_a_running_training_is_seen(cluster: LocalCluster) -> None:
    job = started(cluster, 10_000, 0.01)

    def reported() -> dict[str, object] | None:
        found = shown(cluster, job)
        return found if (found["progress"] or 0) > 150 else None  # type: ignore[operator]

    found = eventually("two reports", reported)
    assert 0 < found["loss"] < 0.1  # type: ignore[operator]
    assert 0 < found["steps_s"] <= 100  # type: ignore[operator]
    assert found["samples_s"] == pytest.approx(64 * found["steps_s"], rel=1e-4)  # type: ignore[operator]
    assert found["report_age_s"] is not None
    metrics = found["metrics"]
    assert isinstance(metrics, dict)
    assert 0 < metrics["accuracy"] < 1
    assert len(metrics) <= 24
    text = cluster.cli("show", str(job))
    assert "steps/s" in text
    assert "accuracy 0." in text
    assert "m0 0" in text
    header, line, *_ = cluster.cli("queue", "-j", str(job), "-o", "id,loss,steps_s").splitlines()
    assert header.split() == ["ID", "LOSS", "STEPS/S"]
    assert len(line.split()) == 3
    assert "-" not in line.split()
    assert "LOSS" in cluster.cli("top", "--once")
    curves = cluster.cli("metrics", str(job))
    assert [line.split()[0] for line in curves.splitlines()][:3] == ["METRIC", "accuracy", "loss"]
    assert all(len(line) <= 80 for line in curves.splitlines())
    assert not cluster.run("queue", "--json").stderr
    cluster.cli("cancel", "-y", str(job))
    cluster.until(job, "CANCELLED")

    def exported() -> tuple[dict[str, Any], list[str]] | None:
        """The curves in both forms, of the same moment: a last report may come after the end."""
        before = json.loads(cluster.cli("metrics", str(job), "--json"))
        cluster.cli("metrics", str(job), "--export", "seen.csv")
        after = json.loads(cluster.cli("metrics", str(job), "--json"))
        rows = (cluster.folder / "seen.csv").read_text().splitlines()
        return (after, rows) if before["metrics"] == after["metrics"] else None

    after, rows = eventually("no report comes any more", exported)
    assert rows[0] == "metric,time,step,value"
    assert len(rows) == 1 + sum(len(each["points"]) for each in after["metrics"])
    names = [each["name"] for each in after["metrics"]]
    assert {"loss", "accuracy", "steps_s", "samples_s"} <= set(names)
    losses = next(each["points"] for each in after["metrics"] if each["name"] == "loss")
    assert [point["step"] for point in losses] == sorted(point["step"] for point in losses)


def fetched(cluster: LocalCluster, path: str) -> str:
    """What the daemon's HTTP port answers."""
    port = re.findall(r"event=listening .*metrics=(\d+)", cluster.log("daemon", 100_000))[-1]
    with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=60) as answer:
        found: bytes = answer.read()
    return found.decode()


def test_prometheus_and_the_page_have_a_running_training(cluster: LocalCluster) -> None:
    job = started(cluster, 10_000, 0.01)

    def scraped() -> str:
        found = fetched(cluster, "/metrics")
        return found if f'dlsched_job_loss{{job="{job}"}}' in found else ""

    found = eventually("the job's metrics", scraped)
    for name in ("steps_per_second", "samples_per_second", "report_age_seconds"):
        assert f'dlsched_job_{name}{{job="{job}"}}' in found
    assert "accuracy" not in found  # names that users choose are no labels
    page = eventually("a curve", lambda: (p := fetched(cluster, "/")) * ("<polyline" in p))
    assert f"<td>{job}<td" in page
    assert "<script" not in page
    cluster.cli("cancel", "-y", str(job))
    cluster.until(job, "CANCELLED")
    eventually("its metrics are gone", lambda: f'job="{job}"' not in fetched(cluster, "/metrics"))


def test_a_loss_that_is_no_number_is_told(cluster: LocalCluster) -> None:
    job = started(cluster, 10_000, 0.01, 5)
    eventually("the event", lambda: "not-finite" in cluster.cli("show", str(job)))
    text = cluster.cli("show", str(job))
    assert "loss is not a finite number at step" in text
    assert "loss nan" in text
    found = shown(cluster, job)
    assert found["not_finite"] == ["loss"]
    line = cluster.cli("queue", "-j", str(job), "-o", "loss", "--noheader")
    assert line.split() == ["nan"]
    cluster.cli("cancel", "-y", str(job))
    assert text.count("not-finite") == 1
    cluster.until(job, "CANCELLED")
    assert "the values of a step" not in cluster.output(job)
    assert "not reported: m" in cluster.output(job)


def test_the_last_report_outlives_daemon_and_job(cluster: LocalCluster) -> None:
    job = started(cluster, 40, 0.05)
    cluster.until(job, "COMPLETED")
    eventually("the last step", lambda: f"step {40}" in cluster.cli("show", str(job)))
    cluster.kill("daemon")
    cluster.start_daemon()
    cluster.wait_until_up()
    found = json.loads(cluster.cli("metrics", str(job), "--json"))
    assert next(e for e in found["metrics"] if e["name"] == "loss")["points"]
    assert "loss" in cluster.cli("history", "-j", str(job), "-o", "id,loss").lower()
    stored = cluster.cli("history", "-j", str(job), "-o", "loss", "--noheader").split()
    assert stored != ["-"]


def test_other_users_see_no_curves_and_no_logs(cluster: LocalCluster) -> None:
    job = started(cluster, 10_000, 0.01)
    eventually("it reports", lambda: shown(cluster, job)["metrics"])
    owner = pwd.getpwuid(os.getuid()).pw_name
    for command in ("metrics", "logs"):
        done = as_bob(cluster, command, str(job))
        line = f"dlsched: job {job} belongs to {owner}, not to bob\n"
        assert (done.returncode, done.stdout, done.stderr) == (1, "", line)
    (seen,) = json.loads(as_bob(cluster, "show", str(job), "--json").stdout)["jobs"]
    assert not seen["metrics"]
    assert not seen["command"]
    assert as_bob(cluster, "cancel", "-y", str(job)).returncode == 1
    cluster.cli("cancel", "-y", str(job))
    cluster.until(job, "CANCELLED")
    assert as_bob(cluster, "metrics", str(job)).returncode == 1  # nor after its end


def as_bob(cluster: LocalCluster, *words: str) -> subprocess.CompletedProcess[str]:
    """A command as another user types it: on loopback the client claims its process's user."""
    program = (
        "import os, pwd, types\n"
        "os.getuid = lambda: 4242\n"
        "pwd.getpwuid = lambda uid: types.SimpleNamespace(pw_name='bob')\n"
        "from dlsched.cli.main import run; run()"
    )
    return subprocess.run(
        [sys.executable, "-c", program, *words],
        env=cluster.environment,
        capture_output=True,
        text=True,
        cwd=cluster.folder,
        timeout=60,
        check=False,
    )


def test_unknown_jobs_and_wrong_names_of_files_are_named(cluster: LocalCluster) -> None:
    done = cluster.run("metrics", "99999")
    assert done.returncode == 1
    assert "99999" in done.stderr
    assert cluster.run("metrics", "7_[2-3]").returncode == 2
    assert cluster.run("metrics", "7", "--export", "m.json").returncode == 2
