"""Shells inside jobs, typed on a terminal: salloc, srun --pty, submit --interactive, attach."""

from __future__ import annotations

import os
import re
import subprocess
import threading
from collections.abc import Iterator

import pytest

from dlsched.torture.local_cluster import LocalCluster, eventually
from tests.live.login_node import LoginNode
from tests.live.terminal import Terminal

pytestmark = pytest.mark.slow
PROMPT = r"[$#] "
BYTES = 4_000_000
STRANGER = 12345  # another user of this machine


@pytest.fixture(scope="module")
def login_node() -> Iterator[LoginNode]:
    """A user's shell on a cluster of two nodes of two GPUs."""
    with LocalCluster(nodes=2, gpus="2:v100") as running:
        yield LoginNode(running)


@pytest.fixture
def login(login_node: LoginNode) -> Iterator[LoginNode]:
    """The same, and no job is left after a test."""
    yield login_node
    login_node.run("scancel --me")


def granted(terminal: Terminal) -> int:
    """The job of a salloc, once its shell is there."""
    job = int(terminal.expect(r"salloc: Granted job allocation (\d+)\r\n")[1])
    terminal.expect(PROMPT)
    return job


def running(login: LoginNode, script: str = "sleep 600", **options: object) -> int:
    """A job that its nodes execute."""
    job = login.cluster.submit(script, **options)
    login.cluster.until_begun(job)
    return job


def test_salloc_gives_a_shell_on_a_terminal_of_the_job(login: LoginNode) -> None:
    with login.terminal("salloc --gpus=1 -J play") as user:
        job = granted(user)
        assert re.search(r"salloc: Nodes n\d are ready for job\r\n", user.shown)
        user.line("stty size; echo on $DLSCHED_NODE with $CUDA_VISIBLE_DEVICES. job $SLURM_JOB_ID.")
        user.expect(rf"30 100\r\non n\d with GPU-[0-9a-f-]+\. job {job}\.\r\n")
        user.resize(44, 132)
        user.line("until stty size | grep 132; do :; done")
        user.expect(r"44 132\r\n")
        steps = f"sacct -n -P -o JobID,JobName,State -j {job}"
        assert f"{job}.interactive|interactive|RUNNING\n" in login.typed(steps)
        user.line("sleep 601; echo ended with $?")
        eventually("it sleeps", lambda: sleeps(601))
        user.type("\x03")
        user.expect(r"\^C")
        user.expect(PROMPT)
        user.line("sleep 602; echo after it")
        eventually("it sleeps", lambda: sleeps(602))
        user.type("\x1a")
        user.expect(r"Stopped")
        user.line("kill -KILL %1; srun hostname -s > /dev/null && srun --pty sh -c 'stty size'")
        user.expect(r"44 132\r\n")
        user.line("exit 7")
        user.expect(rf"salloc: Relinquishing job allocation {job}\r\n")
        assert user.ends() == 7
    ended = login.cluster.until(job, "FAILED")
    assert (ended.exit_code, ended.name) == (7, "play")
    login.cluster.kill("daemon")
    login.cluster.start_daemon()
    login.cluster.wait_until_up()
    assert login.typed(steps).splitlines()[1:] == [  # from the database
        f"{job}.interactive|interactive|FAILED",
        f"{job}.0|hostname|COMPLETED",
    ]


def sleeps(seconds: int) -> bool:
    """Whether a process sleeps for so long."""
    for name in os.listdir("/proc"):
        try:
            with open(f"/proc/{name}/cmdline", "rb") as file:
                if file.read() == f"sleep\0{seconds}\0".encode():
                    return True
        except (OSError, ValueError):
            continue
    return False


@pytest.mark.parametrize(
    "line",
    [
        "srun --pty -G 1 sh -c 'echo seen; exit 3'",
        "dlsched submit --interactive -G 1 -- sh -c 'echo seen; exit 3'",
    ],
    ids=["srun", "submit"],
)
def test_the_output_and_the_code_of_a_short_command_arrive(login: LoginNode, line: str) -> None:
    with login.terminal(line) as user:
        user.expect(r"seen\r\n")
        assert user.ends() == 3


def test_salloc_runs_a_command_without_a_terminal(login: LoginNode) -> None:
    done = login.run(
        "printf 'b\\na\\n' | salloc --gpus=1 sh -c 'sort; test ! -t 0; echo $? $SLURM_GPUS; exit 3'"
    )
    assert (done.returncode, done.stdout) == (3, "a\nb\n0 1\n")
    job = re.search(r"salloc: Granted job allocation (\d+)\n", done.stderr)
    assert job, done.stderr
    assert done.stderr.endswith(f"salloc: Relinquishing job allocation {job[1]}\n")
    assert login.cluster.until(int(job[1]), "FAILED").exit_code == 3
    assert login.run("salloc --gpus=1 true").returncode == 0
    done = login.run("salloc --gpus=1 -e errors.txt sh -c 'echo out; echo told >&2'")
    assert (done.returncode, done.stdout) == (0, "out\n")
    assert (login.home / "errors.txt").read_text() == "told\n"
    long = login.run("salloc --gpus=1 head -c 3000000 /dev/zero | wc -c")
    assert long.stdout.strip() == "3000000"
    done = login.run("salloc --gpus=1")
    assert done.returncode == 2
    assert "no terminal" in done.stderr


def test_a_shell_leaves_the_command_of_salloc_its_streams(login: LoginNode) -> None:
    with login.terminal("salloc --gpus=1 sh -c 'echo begun; sleep 604' </dev/null") as salloc:
        job = salloc.expect(r"Granted job allocation (\d+)\r\n")[1]
        salloc.expect(r"begun\r\n")
        with login.terminal(f"dlsched attach {job}") as user:
            user.expect(PROMPT)
            user.line("exit 5")
            assert user.ends() == 5
        assert sleeps(604)
        login.typed(f"scancel {job}")
        salloc.expect(rf"salloc: Job allocation {job} has been revoked\.\r\n")
        assert salloc.ends() != 0


def test_what_cannot_be_interactive_is_refused_in_one_line(login: LoginNode) -> None:
    done = login.run("dlsched submit --interactive -G 1")
    assert done.returncode == 2
    assert "standard input and output are no terminal" in done.stderr
    assert done.stderr.count("\n") == 1
    for options in ("-a 0-3", "--launch node", "--retries 2"):
        with login.terminal(f"dlsched submit --interactive {options} -- true") as user:
            user.expect(r"an interactive job")
            assert user.ends() == 1
    with login.terminal("dlsched submit --interactive --wrap true") as user:
        assert user.ends() == 2


def test_ctrl_c_before_the_start_cancels_the_job(login: LoginNode) -> None:
    with login.terminal("salloc --gpus=1 --begin=now+1hour") as user:
        job = int(user.expect(r"Pending job allocation (\d+)\r\n")[1])
        user.type("\x03")
        user.expect(rf"salloc: job {job} is cancelled\r\n")
        assert user.ends() == 130
    login.cluster.until(job, "CANCELLED")


def test_a_job_that_is_cancelled_says_so_in_its_shell(login: LoginNode) -> None:
    with login.terminal("salloc --gpus=1") as user:
        job = granted(user)
        login.typed(f"scancel {job}")
        user.expect(r"salloc: the job is cancelled\r\n")
        user.expect(rf"salloc: Job allocation {job} has been revoked\.\r\n")
        assert user.ends() != 0
        assert user.shown.count("the job is cancelled") == 1
    login.cluster.until(job, "CANCELLED")


def test_a_job_at_its_time_limit_says_so_in_its_shell(login: LoginNode) -> None:
    with login.terminal("dlsched submit --interactive -G 1 -t 8s --grace 4") as user:
        user.expect(r"job (\d+) runs on n")
        user.expect(r"dlsched: the job has reached its time limit; its processes have 4 s to end")
        assert user.ends() != 0


def test_a_job_that_has_to_leave_its_node_says_so_and_ends(login: LoginNode) -> None:
    with login.terminal("dlsched submit --interactive -G 1 --grace 5") as user:
        job, node = user.expect(r"job (\d+) runs on (n\d)").groups()
        for words in (f"logs {job}", f"requeue {job}"):
            assert "interactive" in login.run(f"dlsched {words}").stderr
        login.typed(f"dlsched drain {node} --now --reason fan")
        user.expect(r"dlsched: the job is moved to other GPUs; its processes have 5 s to end")
        assert user.ends() != 0
    assert login.cluster.until(int(job), "PREEMPTED").starts == 1
    login.typed(f"dlsched resume-node {node}")


def test_attach_enters_a_running_job_and_comes_back_to_the_same_shell(login: LoginNode) -> None:
    job = running(login, "sleep 603", gpus=1)
    with login.terminal(f"dlsched attach {job}") as user:
        user.expect(PROMPT)
        user.line("there=yes; echo job $DLSCHED_JOB_ID, gpus $DLSCHED_GPUS_ON_NODE.; pwd")
        user.expect(rf"job {job}, gpus 1\.\r\n{login.cluster.folder}\r\n")
        user.line("(sleep 1; echo written meanwhile) &")
        user.expect(r"meanwhile\) &.*\[1\].*[$#] ")
        user.kill()  # as when a machine or a network is lost
    with login.terminal(f"dlsched attach {job}") as user:
        user.expect(r"written meanwhile")
        user.line("echo there=$there.")
        user.expect(r"there=yes\.\r\n")
        with login.terminal(f"dlsched attach {job}") as other:  # a second one gets its own shell
            other.expect(PROMPT)
            other.line("echo there=$there.")
            other.expect(r"there=\.\r\n")
            other.type("\r~.")
            other.expect(rf"detached; dlsched attach {job} comes back to it")
            assert other.ends() == 0
        user.line("exit 5")
        assert user.ends() == 5
    login.typed(f"dlsched cancel {job}")


def test_a_shell_that_was_left_does_not_delay_a_cancel(login: LoginNode) -> None:
    job = running(login, "sleep 604", gpus=1, grace="10m")
    with login.terminal(f"dlsched attach {job}") as user:
        user.expect(PROMPT)
        user.kill()
    login.typed(f"scancel {job}")
    login.cluster.until(job, "CANCELLED")  # a shell at its prompt ignores TERM


def test_a_command_without_a_terminal_has_clean_streams(login: LoginNode) -> None:
    job = running(login, gpus=1)
    done = login.run(f"printf 'b\\na\\n' | dlsched attach {job} -- sort")
    assert (done.returncode, done.stdout) == (0, "a\nb\n")
    text = login.typed(f"head -c 3000000 /dev/zero | dlsched attach {job} -- wc -c")
    assert text.strip() == "3000000"
    assert (
        login.typed(f"dlsched attach {job} -- head -c 3000000 /dev/zero | wc -c").strip()
        == "3000000"
    )
    assert login.run(f"dlsched attach {job} -- sh -c 'exit 9' </dev/null").returncode == 9
    done = login.run(f"dlsched attach {job} -- no-such-program </dev/null")
    assert done.returncode == 127
    assert done.stderr == "dlsched: no-such-program: command not found\n"
    login.typed(f"dlsched cancel {job}")
    login.cluster.until(job, "CANCELLED")
    done = login.run(f"dlsched attach {job}")
    assert (done.returncode, done.stderr) == (1, f"dlsched: job {job} has ended\n")


def test_attach_reaches_each_node_of_a_gang(login: LoginNode) -> None:
    job = running(login, nodes=2, gpus_per_node=1)
    for node in ("n1", "n2"):
        assert (
            login.typed(f"dlsched attach {job} --node {node} -- printenv DLSCHED_NODE")
            == f"{node}\n"
        )
    done = login.run(f"dlsched attach {job} --node n7 -- true")
    assert done.returncode == 1
    assert re.search(rf"node n7: job {job} is on n\d, n\d$", done.stderr)
    shell = login.terminal(f"dlsched attach {job} --node n2")
    with shell as user:
        user.expect(PROMPT)
        login.typed(f"dlsched cancel {job}")
        user.expect(r"dlsched: the job is cancelled")
        assert user.ends() != 0


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")
def test_only_the_owner_enters_a_job_and_enters_it_as_himself(login: LoginNode) -> None:
    job = running(login, gpus=1)
    for words in (("attach", str(job)), ("forward", str(job), "8888:0")):
        with login.terminal_of(STRANGER, *words) as user:
            user.expect(rf"job {job} belongs to \w+, not to {STRANGER}")
            assert user.ends() == 1
    with login.terminal_of(STRANGER, "submit", "--interactive", "-G", "1") as user:
        job = int(user.expect(r"job (\d+) runs on n")[1])
        user.line("id -u; test -w $(tty) && ls -l $(tty)")
        user.expect(rf"{STRANGER}\r\ncrw--w---- 1 {STRANGER} ")
        assert login.typed(f"dlsched attach {job} -- id -u") == f"{STRANGER}\n"  # root, an operator
        user.line("exit")
        assert user.ends() == 0


@pytest.mark.parametrize("lost", ["agent", "daemon"])
def test_a_shell_goes_on_when_agent_or_daemon_are_killed(login: LoginNode, lost: str) -> None:
    cluster = login.cluster
    with login.terminal("salloc --gpus=1") as user:
        job = granted(user)
        (node,) = cluster.job(job).nodes
        user.line("kept=yes; seq 1 1000")
        user.expect(r"\r\n1000\r\n")
        name = node if lost == "agent" else "daemon"
        cluster.kill(name)
        user.expect(r"trying again")
        user.line("echo kept=$kept.")  # typed while no connection is there
        if lost == "agent":
            cluster.start_agent(node)
        else:
            cluster.start_daemon()
        user.expect(r"attached again")
        user.expect(r"kept=yes\.\r\n")
        cluster.wait_until_up()
        user.line("exit 4")
        assert user.ends() == 4
    ended = cluster.until(job, "FAILED")
    assert (ended.exit_code, ended.starts) == (4, 1)


def test_a_client_that_waits_for_the_start_outlasts_the_daemon(login: LoginNode) -> None:
    cluster = login.cluster
    taken = running(login, nodes=2, gpus_per_node=2)
    with login.terminal("salloc --gpus=1") as user:
        job = int(user.expect(r"Pending job allocation (\d+)")[1])
        cluster.kill("daemon")
        user.expect(r"trying again")
        cluster.start_daemon()
        cluster.wait_until_up()
        assert cluster.job(job).state == "PENDING"
        login.typed(f"scancel {taken}")
        assert granted(user) == job
        user.line("exit 2")
        assert user.ends() == 2


def test_a_client_that_is_killed_leaves_its_interactive_job(login: LoginNode) -> None:
    with login.terminal("salloc --gpus=1") as user:
        job = granted(user)
        user.line("left=behind")
        user.expect(PROMPT)
        user.kill()
    assert login.cluster.job(job).state == "RUNNING"
    with login.terminal(f"dlsched attach {job}") as user:
        user.line("echo left=$left.; exit 6")
        user.expect(r"left=behind\.\r\n")
        assert user.ends() == 6
    assert login.cluster.until(job, "FAILED").exit_code == 6


def test_two_clients_of_one_shell_take_it_from_each_other(login: LoginNode) -> None:
    with login.terminal("salloc --gpus=1") as first:
        job = granted(first)
        with login.terminal(f"dlsched attach {job}") as second:
            first.expect(r"another client has the shell now")
            assert first.ends() == 1
            second.line("exit")
            assert second.ends() == 0
    assert re.match("COMPLETED", login.cluster.until(job, "COMPLETED").state)


def test_no_byte_is_lost_or_doubled_while_agent_and_daemon_are_killed(login: LoginNode) -> None:
    cluster, sent = login.cluster, os.urandom(BYTES)
    job = running(login, gpus=1)
    (node,) = cluster.job(job).nodes
    env = {**cluster.environment, "PATH": login.path}
    argv = ["dlsched", "attach", str(job), "--", "cat"]
    pipe = subprocess.PIPE
    with subprocess.Popen(argv, env=env, stdin=pipe, stdout=pipe, cwd=login.home) as client:
        assert client.stdin is not None
        assert client.stdout is not None
        writing = threading.Thread(target=lambda: (client.stdin.write(sent), client.stdin.close()))
        writing.start()
        got = client.stdout.read(BYTES // 4)
        cluster.kill(node)
        cluster.start_agent(node)
        got += client.stdout.read(BYTES // 4)
        cluster.kill("daemon")
        cluster.start_daemon()
        got += client.stdout.read()
        writing.join()
        assert client.wait() == 0
    assert len(got) == BYTES
    assert got == sent
