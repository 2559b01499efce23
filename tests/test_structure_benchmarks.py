"""The benchmarks compare like with like: the plain simulator decides as dlsched does."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from benchmarks.against import checkout_of, compare
from benchmarks.cases import Case
from benchmarks.measure import ROOT, calls_per_decision, dlsched
from simulate.replay import replay
from simulate.settings import RunSettings

pytestmark = pytest.mark.slow

SCRIPT = Path(__file__).parent.parent / "benchmarks" / "reference_las.py"


@pytest.fixture(scope="module")
def reference() -> ModuleType:
    spec = importlib.util.spec_from_file_location("reference_las", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_plain_simulator_and_dlsched_agree_about_every_job(
    reference: ModuleType, lab: Any, tmp_path: Path
) -> None:
    gangs = (1, 2, 4, 8, 3, 1, 16, 1)
    jobs = [
        (37.0 * k, gangs[k * k % len(gangs)], 90.0 + 613 * (k * 7 % 11) + k) for k in range(120)
    ]
    file = tmp_path / "trace.csv"
    lines = [f"{k},{submit},{gpus},{length}" for k, (submit, gpus, length) in enumerate(jobs)]
    file.write_text("\n".join(["job_id,submit_time,num_gpus,duration", *lines]) + "\n")

    plain = reference.simulate(reference.read_jobs(str(file)), nodes=3, gpus_per_node=8, round_s=60)
    ours = replay(
        lab.trace(jobs, names=[str(k) for k in range(len(jobs))]),
        lab.cluster("3x8"),
        RunSettings(
            policy="las",
            placement="first-free",
            clock="rounds",
            round_s=60,
            options=("semantics=blox", "misfit=skip", "guard_s=inf"),
        ),
    ).jobs

    assert ours.finish_time.tolist() == [job["finish"] for job in plain]
    assert ours.preemptions.tolist() == [job["preemptions"] for job in plain]
    assert ours.preemptions.sum() > 100  # it is contended, so there is something to agree about


def test_python_calls_of_a_replay_are_counted_by_decision(tmp_path: Path) -> None:
    trace = tmp_path / "trace.csv"
    trace.write_text("job_id,submit_time,num_gpus,duration\na,0,1,100\nb,60,1,100\n")
    command = dlsched("replay", str(trace), "--cluster", "1x4", "--summary-out", "-")
    assert calls_per_decision(command) > 1000  # two jobs: nearly all of them are of the imports


@pytest.mark.skipif(not (ROOT / ".git").exists(), reason="needs the history of the project")
def test_a_case_runs_in_another_commit_with_the_modules_of_that_commit() -> None:
    with checkout_of("HEAD") as other:
        assert (other / "dlsched" / "__init__.py").exists()
    program = "import dlsched, json; print(json.dumps({'jobs': dlsched.__file__}))"
    (row,) = compare([Case(name="x/where", command=[sys.executable, "-c", program])], "HEAD", 1)
    assert not row["same_results"]  # each printed its own folder
    with pytest.raises(ValueError, match="no-such-commit"):
        compare([], "no-such-commit", 1)
