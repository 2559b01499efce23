"""A node loses its records under running jobs, or shares its name: no job runs beside itself."""

from __future__ import annotations

import json
import shutil
import subprocess
import time
import uuid
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest

from dlsched.torture.local_cluster import LocalCluster, eventually

pytestmark = pytest.mark.slow


def wipe(home: Path) -> None:
    """Delete the state folder."""
    shutil.rmtree(home / "state")


def wipe_sockets_too(home: Path) -> None:
    """Delete the state folder, and the sockets of the keepers."""
    shutil.rmtree(home / "state")
    shutil.rmtree(home / "run")


def wipe_runs(home: Path) -> None:
    """Delete the runs, and keep what the agent knows of itself."""
    shutil.rmtree(home / "state" / "jobs")


def wipe_agent(home: Path) -> None:
    """Delete what the agent knows of itself, and keep the runs."""
    (home / "state" / "agent.json").unlink()


def restore(home: Path) -> None:
    """Put an older copy in place."""
    shutil.rmtree(home / "state")
    shutil.copytree(home / "copy", home / "state")


LOSSES: list[Callable[[Path], None]] = [wipe, wipe_sockets_too, wipe_runs, wipe_agent, restore]


def start_and_join(cluster: LocalCluster, name: str) -> None:
    """Start an agent and wait until the daemon has taken it."""
    since = time.monotonic()
    cluster.start_agent(name)

    def is_heard() -> bool:
        asked = time.monotonic()  # the answer is of a later moment
        ago = cluster.node(name).heard_ago_s
        return ago is not None and ago < asked - since

    try:
        eventually(f"{name} has joined", is_heard)
    except AssertionError as error:
        raise AssertionError(f"{error}\n{cluster.log(name)}\n{cluster.log('daemon')}") from None


def test_a_run_goes_on_alone_after_its_node_has_lost_its_records(small: LocalCluster) -> None:
    home, gate = small.folder / "n1", small.folder / "gate"
    shutil.copytree(home / "state", home / "copy", ignore=shutil.ignore_patterns("*.new"))
    script = f"echo began; while [ ! -e {gate} ]; do sleep 0.05; done; exit 3"
    job = small.submit(script, nodelist="n1", gpus="4")
    eventually("it began", lambda: small.output(job))
    for lose in LOSSES:
        small.kill("n1")
        lose(home)
        start_and_join(small, "n1")
        assert (small.job(job).state, small.output(job)) == ("RUNNING", "began\n"), lose.__name__
    assert small.log("daemon", 1_000_000).count("lost its records: 1 run kept, 0 given") >= 3
    gate.touch()
    ended = small.until(job, "COMPLETED", "FAILED")
    assert (ended.state, ended.exit_code, ended.starts) == ("FAILED", 3, 1)
    assert small.output(job) == "began\n"
    eventually("its files are gone", lambda: not any((home / "state" / "jobs").iterdir()))


def test_a_run_that_is_lost_with_its_keeper_starts_once_more_under_its_own_number(
    small: LocalCluster,
) -> None:
    job = small.submit(f"echo $DLSCHED_RUN >>{small.folder}/runs; sleep 600", nodelist="n1")
    runs = small.folder / "runs"
    eventually("it began", runs.exists)
    [record] = (small.folder / "n1" / "state" / "jobs").glob("*/run.json")
    small.kill("n1")
    keeper = psutil.Process(json.loads(record.read_text())["keeper"]["pid"])
    keeper.kill()
    keeper.wait(10)
    wipe(small.folder / "n1")
    start_and_join(small, "n1")
    eventually("it began again", lambda: runs.read_text() == "1\n2\n")
    assert "no record of it is left" in small.cli("show", str(job))


def test_a_second_agent_of_one_name_is_refused_and_said(small: LocalCluster) -> None:
    job = small.submit("echo began; sleep 600", nodelist="n1")
    eventually("it began", lambda: small.output(job))
    first = small.processes.pop("n1")
    shutil.move(small.folder / "n1" / "agent.toml", small.folder / "first.toml")
    try:
        (small.folder / "clone").mkdir()
        config = (small.folder / "first.toml").read_text()
        for folder in ("state", "run"):
            config = config.replace(f"/n1/{folder}", f"/clone/{folder}")
        (small.folder / "clone" / "agent.toml").write_text(config)
        clone = small._start(
            "clone", "dlsched.nodeagent", "--config", str(small.folder / "clone" / "agent.toml")
        )
        eventually("the clone says so", lambda: "refuses this agent" in small.log("clone"))
        assert "an agent is refused: it lacks the records" in small.cli("nodes", "n1")
        assert "an agent is refused: it lacks the records" in small.cli("admin", "status")
        eventually("n1 works", lambda: small.node("n1").state in ("mixed", "full"))
        assert clone.poll() is None  # it asks again
        assert small.cli("logs", str(job)) == "began\n"  # of the agent that has the job
        assert (small.job(job).starts, small.output(job)) == (1, "began\n")
    finally:
        small.processes["n1"] = first


BOOT = "/proc/sys/kernel/random/boot_id"
OTHER_BOOT = ("unshare", "--mount", "sh", "-c", f'mount --bind "$0" {BOOT} && exec "$@"')


def test_a_cloned_machine_is_refused_while_the_registered_one_is_heard(small: LocalCluster) -> None:
    boot = small.folder / "boot_id"
    boot.write_text(f"{uuid.uuid4()}\n")
    if subprocess.run(
        [*OTHER_BOOT, str(boot), "true"], check=False, capture_output=True
    ).returncode:
        pytest.skip("needs the rights to give a process another boot id")
    job = small.submit(f"echo began >>{small.folder}/runs; sleep 600", nodelist="n1")
    runs = small.folder / "runs"
    eventually("it began", runs.exists)
    home = small.folder / "clone"
    shutil.copytree(small.folder / "n1" / "state", home / "state")
    config = (small.folder / "n1" / "agent.toml").read_text().replace("/n1/", "/clone/")
    (home / "agent.toml").write_text(config)
    words = ("dlsched.nodeagent", "--config", str(home / "agent.toml"))
    small._start("clone", *words, under=(*OTHER_BOOT, str(boot)))
    eventually("the clone says so", lambda: "of another boot than" in small.log("clone"))
    assert "an agent is refused: it is of another boot" in small.cli("nodes", "n1")
    assert small.cli("logs", str(job)) == ""  # it writes elsewhere; the agent of the job answers
    assert (small.job(job).state, small.job(job).starts) == ("RUNNING", 1)
    assert runs.read_text() == "began\n"
