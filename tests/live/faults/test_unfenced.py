"""A keeper is lost on a node that cannot end all of its processes: no job runs beside itself."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator

import psutil
import pytest

from dlsched.torture.local_cluster import LocalCluster, eventually
from tests.live.conftest import SELDOM_POSTGRES, database_of

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        os.geteuid() != 0 or shutil.which("setpriv") is None,
        reason="needs root and setpriv: agents without CAP_SYS_ADMIN",
    ),
]
NO_NAMESPACES = ("setpriv", "--bounding-set=-sys_admin", "--inh-caps=-sys_admin")


@pytest.fixture(params=SELDOM_POSTGRES)
def unfenced(request: pytest.FixtureRequest) -> Iterator[LocalCluster]:
    """One node, whose agent cannot have namespaces."""
    with LocalCluster(database_of(request), nodes=1, agents_under=NO_NAMESPACES) as running:
        yield running


def test_a_run_without_its_keeper_is_over_when_an_operator_says_so(
    unfenced: LocalCluster,
) -> None:
    """A process escapes: another session, no environment, and its parent is gone."""
    cluster = unfenced
    assert "fence" not in cluster.log("n1").partition("can=")[2].splitlines()[0]
    escaped, runs = cluster.folder / "escaped", cluster.folder / "runs"
    loop = f"while :; do echo $$ >{escaped}; sleep 0.1; done"
    escape = f"( setsid env -i /bin/sh -c '{loop}' </dev/null >/dev/null 2>&1 & )"
    script = f"echo $DLSCHED_RUN >>{runs}; [ $DLSCHED_RUN = 1 ] || exit 0; {escape}; sleep 600"
    job = cluster.submit(script, gpus="4", retries="1")
    eventually("a process has escaped", escaped.exists)
    waits = cluster.submit("true", gpus="1")

    (record,) = (cluster.folder / "n1" / "state").glob("jobs/*/run.json")
    psutil.Process(json.loads(record.read_text())["keeper"]["pid"]).kill()
    doubt = "KeeperLost(n1: processes may be alive)"
    eventually("the doubt is told", lambda: doubt in cluster.cli("show", str(job)))
    cluster.kill("n1")  # the next agent does not know better
    cluster.start_agent("n1")
    cluster.kill("daemon")  # nor does the next daemon
    cluster.start_daemon()
    problem = f"job {job} lost its keeper on n1, where its processes may be alive"
    eventually("so", lambda: problem in cluster.run("admin", "status").stdout)
    assert (cluster.job(job).state, cluster.job(waits).state) == ("RUNNING", "PENDING")
    assert runs.read_text() == "1\n"

    pid = int(eventually("it writes", escaped.read_text))
    assert psutil.pid_exists(pid)
    refused = cluster.run("admin", "run-over", str(job))
    assert refused.returncode == 2
    assert "--confirmed is needed" in refused.stderr
    wrong = cluster.run("admin", "run-over", str(waits), "--confirmed")
    assert wrong.returncode == 1
    assert f"job {waits}: no node is in doubt about its run" in wrong.stderr
    psutil.Process(pid).kill()
    told = cluster.cli("admin", "run-over", str(job), "--confirmed")
    assert f"job {job}: its run is over on n1, as" in told
    cluster.until(job, "COMPLETED")
    cluster.until(waits, "COMPLETED")
    assert runs.read_text() == "1\n2\n"
    eventually("its files are gone", lambda: not [*(cluster.folder / "n1/state/jobs").iterdir()])
