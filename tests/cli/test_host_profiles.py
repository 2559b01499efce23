"""Profiles of processors and memory on the command line of a replay."""

from __future__ import annotations

import csv
from pathlib import Path
from typing import Any

import pytest

DEMANDS = (
    "cluster_cpu_per_gpu,model,ideal_cpu_per_gpu,ideal_mem_gb_per_gpu,iteration_s_at_fair_share,"
    "speedup_at_ideal\n3,a,6,62.5,1,1.4\n"
)
NODES = "[[nodes]]\ncount = 1\ngpus = 8\ncpus = 24\nmemory_gb = 500\n"
TRACE = "job_id,model,submit_time,total_iterations,num_gpus\n"


@pytest.fixture
def file(tmp_path: Path) -> Any:
    def write(text: str, name: str) -> str:
        (tmp_path / name).write_text(text)
        return str(tmp_path / name)

    return write


@pytest.mark.parametrize(
    ("job", "nodes", "says"),
    [
        ("0,other,0,10,1\n", NODES, "job 0 has the model other; --profiles know a"),
        ("0,a,0,10,1\n", NODES.replace("cpus = 24\n", ""), "which the cluster's nodes do not say"),
    ],
)
def test_what_profiles_cannot_serve_is_one_line(
    dlsched: Any, file: Any, job: str, nodes: str, says: str
) -> None:
    called = dlsched(
        "replay", file(TRACE + job, "trace.csv"), "--cluster", file(nodes, "c.toml"),
        "--profiles", file(DEMANDS, "host.csv"), "--policy", "synergy",
    )  # fmt: skip
    assert called.code == 2
    assert says in called.err
    assert called.err.count("\n") == 1


def test_a_job_that_asks_for_more_processors_than_a_node_has_is_refused(
    dlsched: Any, file: Any, tmp_path: Path
) -> None:
    rows = "job_id,submit_time,num_gpus,duration,model,num_cpus\n0,0,1,10,a,48\n1,0,1,10,a,\n"
    out = tmp_path / "out.csv"
    called = dlsched(
        "replay", file(rows, "trace.csv"), "--cluster", file(NODES, "c.toml"),
        "--profiles", file(DEMANDS, "host.csv"), "--host", "synergy", "--jobs-out", out,
    )  # fmt: skip
    assert called.code == 0, called.err
    with out.open() as table:
        jobs = list(csv.DictReader(table))
    assert [job["status"] for job in jobs] == ["refused", "completed"]
    assert float(jobs[1]["jct"]) == pytest.approx(10 / 1.4)
    assert "host synergy" in called.out
