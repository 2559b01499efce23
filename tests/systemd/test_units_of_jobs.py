"""Jobs as transient services: what they may, and what becomes of all their processes."""

from __future__ import annotations

import contextlib
import json
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from installed_cluster import AGENT, PROGRAM, unit_of, until

GRANDCHILD = "(setsid sh -c 'sleep 86399 & echo $! >~/grandchild.$DLSCHED_JOB_ID' &)"


def keeper_of(lab: Any, job: int) -> str:
    """The process id of a job's keeper."""
    found = lab.machine.run("cat", lab.leaf(job, "keeper/cgroup.procs")).stdout.split()
    main = str(lab.main_pid(unit_of(job)))
    return next(pid for pid in found if pid != main)


def with_grandchild(lab: Any) -> int:
    """A job with a process that has left session and parents."""
    job = lab.begun(f"{GRANDCHILD}; sleep 86398", "--no-requeue")
    lab.machine.eventually("ls", "/home/ada", says=f"grandchild.{job}")
    until(lambda: len(sleepers(lab)) == 2)
    return job


def sleepers(lab: Any) -> list[str]:
    """The processes of such jobs."""
    found: list[str] = lab.machine.run("pgrep", "-f", "^sleep 8639", check=False).stdout.split()
    return found


@contextlib.contextmanager
def drop_in(cluster: Any, settings: str) -> Iterator[None]:
    """What a site adds to every job's unit, for a while."""
    path = "/etc/systemd/system/dls-.service.d/site.conf"
    cluster.machine.write(path, f"[Service]\n{settings}\n")
    cluster.machine.run("systemctl", "daemon-reload")
    try:
        yield
    finally:
        cluster.machine.run("rm", path)
        cluster.machine.run("systemctl", "daemon-reload")


def test_a_job_is_a_service_with_the_properties_of_its_request(lab: Any) -> None:
    wishes = ("--gpus", "1", "--mem", "1G", "--cpus", "2", "--grace", "45")
    job = lab.begun("sleep 86398", *wishes)
    expected = {
        "Slice": "dlsched.slice",
        "Type": "exec",
        "Delegate": "yes",
        "KillMode": "mixed",
        "TimeoutStopUSec": "45s",
        "OOMPolicy": "continue",
        "OOMScoreAdjust": "-900",
        "MemoryMax": str(1024**3),
        "CPUQuotaPerSecUSec": "2s",
        "LimitMEMLOCK": "infinity",
        "DevicePolicy": "closed",
        "Transient": "yes",
    }
    found = {name: lab.machine.show(unit_of(job), name) for name in expected}
    assert found == expected
    lab.dlsched("cancel", str(job))
    lab.wait(job)
    until(lambda: lab.machine.show(unit_of(job), "LoadState") == "not-found")


def test_the_capabilities_of_a_node_are_those_of_the_machine(lab: Any) -> None:
    node = json.loads(lab.dlsched("nodes", "--json"))["nodes"][0]
    assert node["launcher"] == "systemd"
    controllers = lab.machine.run("cat", "/sys/fs/cgroup/cgroup.controllers").stdout.split()
    assert ("limits" in node["capabilities"]) == ("memory" in controllers)
    assert {"devices", "freeze", "kill-tree", "fence"} <= set(node["capabilities"])


@pytest.fixture
def devices() -> None:
    """Nodes that stand in for GPUs and open."""
    drivers = Path("/proc/misc").read_text().split()
    if not {"fuse", "tun"} <= set(drivers):
        pytest.skip("no drivers here behind the nodes that stand in for GPUs: fuse, tun")


LOOK = "for k in 0 1; do (exec 3</dev/gpu$k) && echo opens $k; done 2>&1; "


@pytest.mark.usefixtures("devices")
def test_a_job_opens_the_gpus_it_was_given_and_no_other(lab: Any) -> None:
    script = LOOK + "echo looked; while test ! -e ~/looked.enough; do sleep 0.05; done"
    jobs = [lab.begun(script, "--gpus", "1") for _ in range(2)]
    outputs = [lab.machine.eventually("cat", lab.output_path(j), says="looked") for j in jobs]
    opened = [[gpu for gpu in "01" if f"opens {gpu}" in output] for output in outputs]
    assert sorted(opened) == [["0"], ["1"]]
    for (own,), output in zip(opened, outputs, strict=True):
        other = "10"[int(own)]
        assert f"cannot open /dev/gpu{other}: Operation not permitted" in output
    lab.as_user("touch", "looked.enough")
    assert [lab.wait(job) for job in jobs] == [0, 0]


@pytest.mark.usefixtures("devices")
def test_device_rules_outlive_a_reload_of_systemd(lab: Any) -> None:
    script = "while test ! -e ~/reloaded; do sleep 0.05; done; " + LOOK
    job = lab.begun(script, "--gpus", "1")
    lab.machine.run("systemctl", "daemon-reload")
    lab.as_user("touch", "reloaded")
    lab.wait(job)
    assert lab.output(job).count("opens") == 1
    assert lab.output(job).count("Operation not permitted") == 1


def test_a_suspended_job_is_frozen_and_its_keeper_is_not(lab: Any) -> None:
    machine = lab.machine
    job = lab.begun("while test ! -e ~/thawed; do sleep 0.05; done; exit 3")
    lab.dlsched("suspend", str(job))
    machine.eventually("cat", lab.leaf(job, "job/cgroup.events"), says="frozen 1")
    assert "frozen 0" in machine.run("cat", lab.leaf(job, "keeper/cgroup.events")).stdout
    lab.as_user("touch", "thawed")
    assert lab.show(job)["state"] == "SUSPENDED"
    lab.dlsched("resume", str(job))
    assert lab.wait(job) == 3


def test_a_shell_in_a_job_is_in_its_unit_on_a_terminal_of_its_own(lab: Any) -> None:
    job = lab.begun("sleep 86398", "--gpus", "1")
    attach = f"{PROGRAM} attach {job} --"
    group = lab.as_user("sh", "-c", f"{attach} cat /proc/self/cgroup </dev/null")
    assert f"{unit_of(job)}/job" in group
    # `script` gives the client a terminal; device rules are in force for the job's
    typed = f"{attach} sh -c 'tty; id -un; exit 5'"
    said = lab.machine.run(
        *("runuser", "-l", "ada", "-c", shlex.join(["script", "-qec", typed, "/dev/null"])),
        check=False,
    )
    assert said.returncode == 5, said
    terminal, user = said.stdout.split()
    assert ("/dev/pts/" in terminal, user) == (True, "ada")


def test_cancelling_ends_processes_that_have_left_session_and_parents(lab: Any) -> None:
    job = with_grandchild(lab)
    lab.dlsched("cancel", str(job))
    lab.wait(job)
    assert lab.show(job)["state"] == "CANCELLED"
    assert not sleepers(lab)


def test_a_suspended_job_is_cancelled_whole(lab: Any) -> None:
    job = with_grandchild(lab)
    lab.dlsched("suspend", str(job))
    lab.machine.eventually("cat", lab.leaf(job, "job/cgroup.events"), says="frozen 1")
    lab.dlsched("cancel", str(job))
    lab.wait(job)
    assert not sleepers(lab)


@pytest.mark.parametrize("victim", ["keeper", "main", "both by systemd"])
def test_a_job_ends_with_its_killed_keeper_and_the_end_has_a_name(lab: Any, victim: str) -> None:
    job = with_grandchild(lab)
    if victim == "both by systemd":
        lab.machine.run("systemctl", "kill", "--signal=KILL", unit_of(job))
    else:
        pid = keeper_of(lab, job) if victim == "keeper" else lab.main_pid(unit_of(job))
        lab.machine.run("kill", "-KILL", str(pid))
    assert lab.wait(job) != 0
    found = lab.show(job)
    assert found["state"] == "NODE_FAIL"
    assert "keeper-lost systemd: " in found["events"][-1]["text"]
    assert not sleepers(lab)
    free = json.loads(lab.dlsched("nodes", "--json"))["nodes"][0]["busy_gpus"]
    assert free == 0


def test_a_keeper_killed_without_an_agent_is_reported_later(lab: Any) -> None:
    job = with_grandchild(lab)
    lab.machine.run("systemctl", "stop", AGENT)
    lab.machine.run("systemctl", "kill", "--signal=KILL", unit_of(job))
    until(lambda: not sleepers(lab))
    lab.machine.run("systemctl", "start", AGENT)
    assert lab.wait(job) != 0
    assert "keeper-lost systemd: signal" in lab.show(job)["events"][-1]["text"]


def test_a_job_outlives_an_agent_that_is_killed_with_all_it_started(lab: Any) -> None:
    job = lab.begun("while test ! -e ~/all.killed; do sleep 0.05; done; exit 9")
    pid = lab.main_pid(AGENT)
    lab.machine.run("systemctl", "kill", "--signal=KILL", "--kill-whom=all", AGENT)
    until(lambda: lab.main_pid(AGENT) not in (0, pid))
    lab.as_user("touch", "all.killed")
    assert lab.wait(job) == 9


def test_nothing_secret_is_in_a_unit_or_in_the_journal(lab: Any) -> None:
    job = lab.begun("sleep 86398", "--export", "TOKEN=do-not-tell-7391")
    unit = unit_of(job)
    shown = [
        lab.machine.run("systemctl", "cat", unit).stdout,
        lab.machine.run("systemctl", "show", unit).stdout,
        lab.machine.run("journalctl", "-o", "cat").stdout,
        lab.machine.run("grep", "-rs", "do-not-tell", "/var/lib/dlsched/agent", check=False).stdout,
    ]
    assert not [text for text in shown if "do-not-tell-7391" in text]
    lab.dlsched("cancel", str(job))
    lab.wait(job)


def test_only_root_reaches_the_socket_at_which_keepers_start(lab: Any) -> None:
    machine = lab.machine
    assert machine.run("stat", "-c", "%U %a", "/run/dlsched-agent/births").stdout == "root 600\n"
    ask = (
        "import socket; s = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET); "
        "s.connect('/run/dlsched-agent/births'); s.send(b'dls-1-1-0.service'); print(s.recv(99))"
    )
    with pytest.raises(AssertionError, match="PermissionError"):
        lab.as_user("python3", "-c", ask)
    assert machine.run("python3", "-c", ask).stdout == "b''\n"


@pytest.mark.usefixtures("devices")
def test_a_drop_in_of_the_site_holds_for_every_job(lab: Any) -> None:
    with drop_in(lab, "DeviceAllow=/dev/gpu1 r\nDeviceAllow=/dev/gpu0 r\nTasksMax=77"):
        job = lab.begun(LOOK + "while test ! -e ~/dropped.in; do sleep 0.05; done", "--gpus", "1")
        lab.machine.eventually("cat", lab.output_path(job), says="opens 1")
        assert "opens 0" in lab.output(job)
        assert lab.machine.show(unit_of(job), "TasksMax") == "77"
        lab.as_user("touch", "dropped.in")
        assert lab.wait(job) == 0


def test_a_unit_that_systemd_refuses_is_a_start_that_failed(lab: Any) -> None:
    with drop_in(lab, "ExecStartPre=/bin/false"):
        job = lab.submit("true", "--no-requeue")
        lab.machine.eventually(
            "journalctl", "-u", AGENT, "-o", "cat", says=f"not-started run={job}.1"
        )
        lab.dlsched("cancel", str(job))
        lab.wait(job)


def test_a_job_beyond_its_memory_is_out_of_memory(lab: Any) -> None:
    controllers = lab.machine.run("cat", "/sys/fs/cgroup/cgroup.controllers").stdout.split()
    if "memory" not in controllers:
        pytest.skip("the unified hierarchy of this machine has no memory controller")
    grow = "python3 -c 'b\"x\" * 10**9'"
    job = lab.submit(grow, "--mem", "64M", "--no-requeue")
    assert lab.wait(job) != 0
    assert lab.show(job)["state"] == "OUT_OF_MEMORY"


def logs(lab: Any, job: int) -> str:
    """What the user is shown of a job's output, or why not."""
    return str(lab.as_user("sh", "-c", f"{PROGRAM} logs {job} 2>&1", check=False))


def test_an_output_in_a_unit_s_own_tmp_is_shown_while_the_job_runs(lab: Any) -> None:
    with drop_in(lab, "PrivateTmp=yes"):
        job = lab.submit("echo in its own tmp; sleep 86398", "-o", "/tmp/own.out")
        until(lambda: logs(lab, job) == "in its own tmp\n")
        assert lab.machine.run("test", "-e", "/tmp/own.out", check=False).returncode == 1
        lab.dlsched("cancel", str(job))
        lab.wait(job)
        assert "No such file" in logs(lab, job)


def test_logs_of_a_folder_that_became_a_link_to_root_s_process_show_nothing(lab: Any) -> None:
    secret = "what only root may read"
    make = "mkdir -p /srv/closed/open && cd /srv/closed/open && chmod 755 . && chmod 700 .."
    begin = f"{make} && echo {secret} >out"
    lab.machine.run("systemd-run", "--unit=stays", "sh", "-c", f"{begin} && exec sleep 86397")
    until(
        lambda: "sleep" in lab.machine.run("ps", "-o", "comm=", str(lab.main_pid("stays"))).stdout
    )
    lab.as_user("mkdir", "swapped")
    job = lab.submit("echo mine; sleep 86398", "-o", "swapped/out")
    until(lambda: logs(lab, job) == "mine\n")
    lab.as_user("mv", "swapped", "before")
    lab.as_user("ln", "-s", f"/proc/{lab.main_pid('stays')}/cwd", "swapped")
    said = logs(lab, job)
    lab.machine.run("systemctl", "stop", "stays")
    assert secret not in said
    assert "cannot open" in said
