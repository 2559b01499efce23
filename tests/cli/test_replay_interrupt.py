"""Ctrl-C in the middle of a real sweep, and going on with it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time

import pytest


def words(trace, folder):
    # eight runs of half a second, two at a time
    return [
        sys.executable, "-m", "dlsched", "replay", str(trace), "--cluster", "1x4",
        "--clock", "events", "--policy", "testing-slow", "-o", "cpu_s=0.05",
        "--load", "1,2,3,4,5,6,7,8",
        "--executor", "processes:2", "--resume", str(folder), "--jobs-out", "jobs.csv",
    ]  # fmt: skip


def wait_for(condition, seconds=20):
    until = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < until, "it never happened"
        time.sleep(0.02)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_finished_runs_are_kept_reported_and_not_done_again(trace, tmp_path, number):
    folder = tmp_path / "runs"
    started = subprocess.Popen(
        words(trace, folder), cwd=tmp_path, text=True, start_new_session=True,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip
    wait_for(lambda: folder.exists() and len(list(folder.glob("*.npz"))) >= 2)
    if number == signal.SIGINT:
        os.killpg(started.pid, number)  # as a terminal does: workers get it too
    else:
        started.send_signal(number)
    out, err = started.communicate(timeout=20)
    kept = {path.name: path.stat().st_mtime_ns for path in folder.glob("*.npz")}
    assert 2 <= len(kept) < 8, "the sweep was too fast for the test"
    assert started.returncode == 1
    assert err == (
        f"dlsched: interrupted: {len(kept)} of 8 runs finished; go on with --resume {folder}\n"
    )
    assert len(out.splitlines()[4:]) >= len(kept)
    assert (tmp_path / "jobs.csv").read_text().startswith("policy,load,seed,job_id")

    if number == signal.SIGTERM:
        return  # going on is the same whatever stopped it

    again = subprocess.run(
        words(trace, folder), cwd=tmp_path, text=True, capture_output=True, check=False
    )
    assert again.returncode == 0, again.stderr
    assert f"note: {len(kept)} of 8 runs were done before" in again.stdout
    now = {path.name: path.stat().st_mtime_ns for path in folder.glob("*.npz")}
    assert len(now) == 8
    assert kept.items() <= now.items()
