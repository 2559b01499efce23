"""Runs of a database that has gone back: they keep their GPUs, are shown, and can be ended."""

from __future__ import annotations

import json
from typing import Any

import pytest

from dlsched.torture.local_cluster import LocalCluster, eventually

pytestmark = pytest.mark.slow


def orphans(cluster: LocalCluster) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(cluster.cli("admin", "orphans", "--json"))["orphans"]
    return found


def test_an_orphan_of_a_restored_database_is_shown_and_ended(small: LocalCluster) -> None:
    database, older = small.folder / "dlsched.db", small.folder / "older.db"
    config = str(small.folder / "dlsched.toml")
    assert small.cli("admin", "backup", str(older), "--config", config) == f"copied to {older}\n"
    again = small.run("admin", "backup", str(older), "--config", config)
    assert (again.returncode, again.stderr) == (2, f"dlsched: {older} exists already\n")
    job = small.submit("echo began; sleep 600", nodelist="n1", gpus="4")
    eventually("it began", lambda: small.output(job))
    assert orphans(small) == []
    early = small.run("admin", "restored", "--config", config)
    assert (early.returncode, early.stderr) == (
        *(1, "dlsched: a daemon leads with this database: stop it before the copy is put back\n"),
    )
    small.kill("daemon")
    for path in small.folder.glob("dlsched.db*"):
        path.unlink()
    older.rename(database)
    said = small.cli("admin", "restored", "--config", config, "--jump", "50")
    assert said == "the next job is 51\n"
    small.start_daemon()
    small.wait_until_up()
    [orphan] = eventually("it is an orphan", lambda: orphans(small))
    assert (orphan["node"], orphan["job"], orphan["run"]) == ("n1", job, 1)
    assert (orphan["state"], len(orphan["gpus"])) == ("running", 4)
    assert orphan["run_id"] in small.cli("admin", "orphans")
    assert "1 unknown run alive" in small.cli("admin", "status")
    waits = small.submit("true", nodelist="n1", gpus="1")
    assert small.job(waits).state == "PENDING"

    wrong = small.run("admin", "orphans", "--end", "no-such-run")
    assert wrong.returncode == 1
    assert wrong.stderr == "dlsched: run no-such-run: it is no orphan\n"
    assert len(orphans(small)) == 1
    small.cli("admin", "orphans", "--end", orphan["run_id"])
    eventually("it is gone", lambda: not orphans(small))
    small.until(waits, "COMPLETED")
    assert small.output(job) == "began\n"
