"""A real cluster of two GPU types measures how fast trainings run, and Gavel uses it."""

from __future__ import annotations

import json
import sys
from typing import Any

import pytest

from dlsched.torture.local_cluster import LocalCluster, eventually

pytestmark = pytest.mark.slow

TRAINING = """
import socket, sys, time
from dlsched.job import attach

seconds = dict(zip(("n1", "n2"), map(float, sys.argv[2:4])))  # a step, by node
with attach() as job:
    for step in range(job.restore(), 100_000):
        time.sleep(seconds[job.runtime.nodes])
        if not job.step(loss=1.0 / (step + 1)):
            break
"""
FAST_ON = {"cnn": "n1", "rnn": "n2"}
PACE = {"cnn": ("0.03", "0.15"), "rnn": ("0.15", "0.06")}  # fast on v100; fast on k80


def test_trainings_run_on_the_types_where_they_are_fast() -> None:
    policy = {"policy": "gavel", "interval_s": 0.5, "measure_s": 1.0}
    with LocalCluster(nodes=2, gpus=("2:v100", "2:k80"), round=policy) as cluster:
        file = cluster.folder / "train.py"
        file.write_text(TRAINING)

        def train(model: str, gpus: str = "1") -> int:
            with cluster.client() as client:
                return client.submit(
                    [sys.executable, str(file), model, *PACE[model]],
                    name=model,
                    model=model,
                    gpus=gpus,
                    output=f"{cluster.out}/%j.out",
                    chdir=cluster.folder,
                )

        def known() -> dict[tuple[str, str], float]:
            rows: list[dict[str, Any]] = json.loads(
                cluster.cli("admin", "profile", "list", "--json")
            )["speeds"]
            return {(row["model"], row["gpu_type"]): row["steps_per_s"] for row in rows}

        first = [train(model, f"{kind}:1") for model in PACE for kind in ("v100", "k80")]
        try:
            eventually("each was measured on each type", lambda: len(known()) == 4)
        except AssertionError as error:
            stories = "\n".join(cluster.story(job) for job in first)
            raise AssertionError(f"{error}: {known()}\n{stories}") from None
        found = known()
        assert found["cnn", "v100"] > 2 * found["cnn", "k80"]
        assert found["rnn", "k80"] > 1.5 * found["rnn", "v100"]
        cluster.cli("cancel", *map(str, first))
        for job in first:
            cluster.until(job, "CANCELLED")

        cluster.kill("daemon")
        cluster.start_daemon()
        cluster.wait_until_up()
        assert known().keys() == found.keys()

        jobs = {train(model): model for model in ("rnn", "cnn", "rnn", "cnn")}

        def all_well() -> bool:
            at = {job: cluster.job(job) for job in jobs}
            return all(
                view.state == "RUNNING" and view.nodes == (FAST_ON[jobs[job]],)
                for job, view in at.items()
            )

        eventually("each runs where it is fast", all_well)
