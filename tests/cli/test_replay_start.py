"""What it costs to start: the help of everything, and a small replay."""

from __future__ import annotations

import resource
import subprocess
import sys

import pytest

HELP_CPU_S = 0.15
SMALL_REPLAY_S = 1.0


def cpu_of(*words):
    """CPU seconds of a call, the best of three: other work on the machine is not ours."""
    best = float("inf")
    for _ in range(3):
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        subprocess.run([sys.executable, "-m", "dlsched", *words], check=True, capture_output=True)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        best = min(best, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
    return best


@pytest.mark.parametrize("words", [["--help"], ["--version"]], ids=" ".join)
def test_help_costs_what_typer_costs(words):
    assert cpu_of(*words) <= HELP_CPU_S


def test_the_help_of_a_verb_costs_no_more_than_typers_own_checks_of_types():
    assert cpu_of("replay", "--help") <= 2 * HELP_CPU_S


def test_a_replay_of_500_jobs_takes_less_than_a_second(tmp_path):
    trace = tmp_path / "t.csv"
    rows = (f"{job},{job * 60},{1 + job % 4},{100 + 37 * job % 1000}\n" for job in range(500))
    trace.write_text("job_id,submit_time,num_gpus,duration\n" + "".join(rows))
    # one process that never waits: on a free machine its CPU time is its wall time
    assert cpu_of("replay", str(trace), "--cluster", "4x4") <= SMALL_REPLAY_S
