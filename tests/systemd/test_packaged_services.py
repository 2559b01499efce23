"""The packaged services as an administrator and a user meet them: real units, real systemd."""

from __future__ import annotations

from typing import Any

import pytest
from installed_cluster import AGENT, DAEMON, USER, unit_of, until
from machine import PROGRAM

CONFIG = "/etc/dlsched/dlsched.toml"
RUNS_ON = "while test ! -e ~/go.$DLSCHED_JOB_ID; do sleep 0.05; done; exit 7"


def go(cluster: Any, job: int) -> None:
    """Let a job end."""
    cluster.as_user("touch", f"go.{job}")


@pytest.mark.parametrize("unit", [DAEMON, AGENT])
def test_a_unit_is_up_when_it_has_notified_systemd(cluster: Any, unit: str) -> None:
    show = cluster.machine.show
    assert show(unit, "Type") == "notify"
    assert (show(unit, "ActiveState"), show(unit, "SubState")) == ("active", "running")
    assert show(unit, "WatchdogUSec") not in ("0", "infinity")
    assert show(unit, "NRestarts") == "0"


def test_the_daemon_reports_its_state_in_one_line(cluster: Any) -> None:
    cluster.machine.eventually("systemctl", "show", "-P", "StatusText", DAEMON, says="lead")


def test_a_users_job_runs_as_that_user_and_reports_how_it_ended(cluster: Any) -> None:
    job = cluster.submit("id -un; pwd; cat /proc/self/cgroup; echo on error >&2; exit 7")
    assert cluster.wait(job) == 7
    output = cluster.output(job)
    assert output.splitlines()[:2] == [USER, f"/home/{USER}"]
    assert f"/dlsched.slice/{unit_of(job)}/job" in output
    assert "on error" in output
    owner = cluster.machine.run("stat", "-c", "%U %a", cluster.output_path(job)).stdout
    assert owner.split() == [USER, "644"]
    assert "on error" in cluster.as_user("/opt/dlsched/bin/dlsched", "logs", str(job))


def test_every_user_reaches_the_login_socket_and_none_the_state(cluster: Any) -> None:
    cluster.as_user("/opt/dlsched/bin/dlsched", "queue")
    for path in ("/var/lib/dlsched/daemon", "/var/lib/dlsched/agent/jobs", "/etc/dlsched/ca"):
        with pytest.raises(AssertionError, match="Permission denied"):
            cluster.as_user("ls", path)
    with pytest.raises(AssertionError, match="Permission denied"):
        cluster.as_user("cat", "/etc/dlsched/tls/daemon.key")


def test_a_reload_takes_a_good_file_and_refuses_a_bad_one(cluster: Any) -> None:
    machine = cluster.machine
    before = machine.run("cat", CONFIG).stdout
    pid = cluster.main_pid(DAEMON)
    journal = ("journalctl", "-u", DAEMON, "-o", "cat")
    machine.write(CONFIG, before.replace("interval_s = 60", "interval_s = 61"))
    machine.run("systemctl", "reload", DAEMON)
    machine.eventually(*journal, says="round.interval_s: 60.0 -> 61.0")
    machine.write(CONFIG, before.replace('policy = "fifo"', 'policy = "fifo"\nno_such_key = 1'))
    with pytest.raises(AssertionError, match=r"Job for dlsched-daemon\.service failed"):
        machine.run("systemctl", "reload", DAEMON)
    machine.eventually(*journal, says="round.no_such_key: unknown key")
    assert cluster.main_pid(DAEMON) == pid
    job = cluster.submit("true")
    assert cluster.wait(job) == 0
    machine.write(CONFIG, before)
    machine.run("systemctl", "reload", DAEMON)
    machine.eventually(*journal, says="round.interval_s: 61.0 -> 60.0")


def test_a_mistake_in_the_file_is_said_once_and_not_again_each_second(cluster: Any) -> None:
    machine = cluster.machine
    before = machine.run("cat", CONFIG).stdout
    machine.write(CONFIG, before.replace('policy = "fifo"', 'policy = "fifo"\nno_such_key = 1'))
    machine.run("systemctl", "restart", DAEMON, check=False)
    until(lambda: machine.show(DAEMON, "ActiveState") == "failed")
    assert (machine.show(DAEMON, "NRestarts"), machine.show(DAEMON, "ExecMainStatus")) == ("0", "2")
    machine.write(CONFIG, before)
    machine.run("systemctl", "start", DAEMON)
    machine.eventually(PROGRAM, "nodes", says="0/2")


def test_commands_wait_for_a_daemon_that_is_away_and_speak_of_no_token(cluster: Any) -> None:
    machine = cluster.machine
    machine.run("systemctl", "stop", DAEMON)
    at_once = f"{PROGRAM} queue --daemon-wait 0 2>&1 || true"
    said = cluster.as_user("sh", "-c", at_once)
    assert "cannot reach the daemon at unix:/run/dlsched/daemon.sock" in said
    assert "token" not in said
    cluster.as_user(
        "sh",
        "-c",
        f"({PROGRAM} queue -a --daemon-wait 3m; echo ended $? >code) >out 2>&1 </dev/null &",
    )
    machine.eventually("cat", f"/home/{USER}/out", says="waiting for up to 180 s")
    machine.run("systemctl", "start", DAEMON)
    machine.eventually("cat", f"/home/{USER}/code", says="ended 0")


def test_root_restores_a_copy_that_the_daemon_can_use(cluster: Any) -> None:
    machine, state = cluster.machine, "/var/lib/dlsched/daemon"
    machine.run(PROGRAM, "admin", "backup", "/srv/copy.db")
    machine.run("systemctl", "stop", DAEMON)
    machine.run("sh", "-c", f"rm {state}/*; cp /srv/copy.db {state}/dlsched.db")
    machine.run(PROGRAM, "admin", "restored")
    machine.run("systemctl", "start", DAEMON)
    machine.eventually(PROGRAM, "nodes", says="0/2")
    owners = machine.run("sh", "-c", f"stat -c %U:%a {state}/*").stdout.split()
    assert set(owners) == {"dlsched:600"}
    assert cluster.wait(cluster.submit("exit 7")) == 7


@pytest.mark.parametrize("how", ["restart", "kill"])
@pytest.mark.parametrize("unit", [DAEMON, AGENT])
def test_a_job_runs_on_while_a_service_begins_anew(cluster: Any, unit: str, how: str) -> None:
    machine = cluster.machine
    job = cluster.begun(RUNS_ON)
    before, process = cluster.main_pid(unit), cluster.main_pid(unit_of(job))
    if how == "restart":
        machine.run("systemctl", "restart", unit)
    else:
        machine.run("kill", "-KILL", str(before))
    until(lambda: machine.show(unit, "SubState") == "running" and cluster.main_pid(unit) != before)
    machine.eventually("/opt/dlsched/bin/dlsched", "nodes", says="1/2")
    assert cluster.main_pid(unit_of(job)) == process
    go(cluster, job)
    assert cluster.wait(job) == 7
    assert cluster.show(job)["starts"] == 1


def test_a_job_that_ends_while_both_are_away_has_its_own_code(cluster: Any) -> None:
    job = cluster.begun(RUNS_ON)
    cluster.machine.run("systemctl", "stop", AGENT, DAEMON)
    assert cluster.machine.show(unit_of(job), "SubState") == "running"
    go(cluster, job)
    job_leaf = cluster.leaf(job, "job/cgroup.procs")
    until(lambda: not cluster.machine.run("cat", job_leaf, check=False).stdout)
    cluster.machine.run("systemctl", "start", DAEMON, AGENT)
    assert cluster.wait(job) == 7


@pytest.mark.parametrize("unit", [DAEMON, AGENT])
def test_the_watchdog_is_fed_and_bites(cluster: Any, unit: str) -> None:
    machine = cluster.machine
    job = cluster.begun(RUNS_ON)
    name = f"/etc/systemd/system/{unit}.d/quick.conf"
    machine.write(name, "[Service]\nWatchdogSec=2\n")
    machine.run("systemctl", "daemon-reload")
    machine.run("systemctl", "restart", unit)
    pid = cluster.main_pid(unit)
    seen: set[str] = set()

    def fed() -> bool:
        seen.add(machine.show(unit, "WatchdogTimestampMonotonic"))
        return len(seen) > 4  # one a second: longer than it allows

    until(fed)
    assert cluster.main_pid(unit) == pid
    machine.run("kill", "-STOP", str(pid))
    until(lambda: machine.show(unit, "SubState") == "running" and cluster.main_pid(unit) != pid)
    machine.eventually("journalctl", "-u", unit, "-o", "cat", says="Watchdog timeout")
    machine.run("rm", name)
    machine.run("systemctl", "daemon-reload")
    machine.run("systemctl", "restart", unit)
    go(cluster, job)
    assert cluster.wait(job) == 7
