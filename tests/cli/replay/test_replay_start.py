"""What it costs to start: the help of everything, and a small replay. In counts, not seconds."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

MOST_CALLS_OF_A_SMALL_REPLAY = 245  # for each of its jobs

# Nothing of these is needed to print a help text, and each costs tens of milliseconds.
HEAVY = {
    *("numpy", "scipy", "highspy", "matplotlib", "polars", "distributed"),
    *("grpc", "google", "cryptography", "sqlalchemy", "alembic", "pydantic", "psycopg"),
    *("asyncio", "ssl", "multiprocessing"),
}

# Runs the words that it is given as a command line; prints what that took.
RUN_AND_COUNT = """
import json, sys
calls = 0
def count(frame, event, argument):
    global calls
    calls += event == "call"
out, sys.stdout = sys.stdout, open("/dev/null", "w")
sys.argv = ["dlsched", *sys.argv[1:]]
from dlsched.cli.main import run
sys.setprofile(count)
try:
    run()
except SystemExit as ending:
    assert not ending.code, ending.code
sys.setprofile(None)
print(json.dumps({"calls": calls, "modules": sorted(sys.modules)}), file=out)
"""


def cost_of(*words):
    """Python calls and imported modules of one command line, in a process of its own."""
    done = subprocess.run(
        [sys.executable, "-c", RUN_AND_COUNT, *words], check=True, capture_output=True, text=True
    )
    return json.loads(done.stdout)


def modules_of_typer():
    """What an application of typer with one command loads to print its help."""
    code = (
        "import sys, json, typer\n"
        "app = typer.Typer()\n"
        "@app.command()\n"
        "def one(): pass\n"
        "out, sys.stdout = sys.stdout, open('/dev/null', 'w')\n"
        "try:\n    app(['--help'])\nexcept SystemExit: pass\n"
        "print(json.dumps(sorted(sys.modules)), file=out)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    return set(json.loads(done.stdout))


@pytest.mark.parametrize("words", [["--help"], ["--version"], ["replay", "--help"]], ids=" ".join)
def test_help_loads_little_more_than_typer(words):
    loaded = set(cost_of(*words)["modules"])
    assert {name.partition(".")[0] for name in loaded} & HEAVY == set()
    ours = [name for name in loaded if name.partition(".")[0] in {"dlsched", "simulate"}]
    assert len(ours) <= 20, sorted(ours)
    assert len(loaded - modules_of_typer() - set(ours)) <= 10


def test_a_small_replay_takes_few_calls_for_each_job(tmp_path):
    def calls(jobs):
        trace = tmp_path / f"{jobs}.csv"
        rows = (f"{job},{job * 60},{1 + job % 4},{100 + 37 * job % 1000}\n" for job in range(jobs))
        trace.write_text("job_id,submit_time,num_gpus,duration\n" + "".join(rows))
        return cost_of("replay", str(trace), "--cluster", "4x4")["calls"]

    assert (calls(500) - calls(100)) / 400 < MOST_CALLS_OF_A_SMALL_REPLAY
