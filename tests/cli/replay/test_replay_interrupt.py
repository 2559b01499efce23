"""Ctrl-C in the middle of a real sweep, and going on with it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time

import pytest

GATED = '''"""A policy whose third run, and what comes after, waits until a gate is open."""

import os
import time

from dlsched.policies.scheduling.fifo import FirstFit


class Gated(FirstFit):
    """First fit."""

    name = "gated"

    def rank(self, units, ctx):
        while ctx.seed >= 2 and not os.path.exists(os.environ["GATE"]):
            time.sleep(0.02)
        return super().rank(units, ctx)
'''


@pytest.fixture
def environment(tmp_path):
    """With an installed package that brings the policy."""
    site = tmp_path / "site"
    info = site / "gated-1.0.dist-info"
    info.mkdir(parents=True)
    (site / "gated.py").write_text(GATED)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: gated\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[dlsched.scheduling]\ngated = gated:Gated\n")
    return {**os.environ, "PYTHONPATH": str(site), "GATE": str(tmp_path / "gate")}


def words(trace, folder):
    # four runs, two at a time
    return [
        sys.executable, "-m", "dlsched", "replay", str(trace), "--cluster", "1x4",
        "--clock", "events", "--policy", "gated", "--seed", "0,1,2,3",
        "--executor", "processes:2", "--resume", str(folder), "--jobs-out", "jobs.csv",
    ]  # fmt: skip


def wait_for(condition, seconds=60):
    until = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < until, "it never happened"
        time.sleep(0.02)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_finished_runs_are_stored_reported_and_not_repeated(trace, tmp_path, environment, number):
    folder = tmp_path / "runs"
    started = subprocess.Popen(
        words(trace, folder), cwd=tmp_path, text=True, start_new_session=True,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment,
    )  # fmt: skip
    wait_for(lambda: folder.exists() and len(list(folder.glob("*.npz"))) == 2)
    if number == signal.SIGINT:
        os.killpg(started.pid, number)  # as a terminal does: workers get it too
    else:
        started.send_signal(number)
    out, err = started.communicate(timeout=60)
    kept = {path.name: path.stat().st_mtime_ns for path in folder.glob("*.npz")}
    assert len(kept) == 2
    assert started.returncode == 1
    assert err == (f"dlsched: interrupted: 2 of 4 runs finished; continue with --resume {folder}\n")
    assert len(out.splitlines()[4:]) >= 2
    assert (tmp_path / "jobs.csv").read_text().startswith("policy,load,seed,job_id")

    if number == signal.SIGTERM:
        return  # going on is the same whatever stopped it

    (tmp_path / "gate").touch()
    again = subprocess.run(
        words(trace, folder), cwd=tmp_path, text=True, capture_output=True, check=False,
        env=environment,
    )  # fmt: skip
    assert again.returncode == 0, again.stderr
    assert "note: 2 of 4 runs were stored before" in again.stdout
    now = {path.name: path.stat().st_mtime_ns for path in folder.glob("*.npz")}
    assert len(now) == 4
    assert kept.items() <= now.items()
