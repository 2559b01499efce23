"""Slurm's listings and actions, typed in a login shell; each prints what Slurm prints."""

from __future__ import annotations

import contextlib
import getpass
import re
import sqlite3
import threading
from collections.abc import Iterator

import pytest

from dlsched.torture.local_cluster import LocalCluster, eventually
from tests.live.login_node import LoginNode

pytestmark = pytest.mark.slow
ME = getpass.getuser()


@pytest.fixture(scope="module")
def login() -> Iterator[LoginNode]:
    """A user's shell on a cluster of two nodes of two GPUs, in two partitions."""
    partitions = {"partitions": [{"name": "main", "default": True}, {"name": "debug"}]}
    with LocalCluster(nodes=2, gpus="2:v100") as running:
        path = running.folder / "dlsched.toml"
        tables = "".join(
            f"[[partitions]]\nname = {each['name']!r}\ndefault = {str('default' in each).lower()}\n"
            for each in partitions["partitions"]
        )
        path.write_text(path.read_text() + tables.replace("'", '"'))
        running.cli("admin", "reload")
        yield LoginNode(running)


def submitted(login: LoginNode, options: str, run: str = "sleep 600") -> int:
    return int(login.typed(f"sbatch --parsable {options} --wrap '{run}'"))


def test_the_queue_in_slurms_formats(login: LoginNode) -> None:
    running = submitted(login, "-J train --gpus=2 --time=1:00:00 -p debug")
    held = submitted(login, "-J later --gpus=1 --hold")
    login.cluster.until(running, "RUNNING")
    (where,) = login.cluster.job(running).nodes
    both = f"-j {running},{held}"
    assert login.typed(f'squeue -h {both} -S i -o "%i %j %T %R"').splitlines() == [
        f"{running} train RUNNING {where}",
        f"{held} later PENDING (JobHeldUser)",
    ]
    assert login.typed(f'squeue --me -h -t PD {both} -o "%.8i|%.3j|%t|%u"') == (
        f"{held:>8}|lat|PD|{ME}\n"
    )
    assert login.typed(f"squeue -h -u {ME} -n train -t R -o %A") == f"{running}\n"
    titles, *rows = login.typed(f"squeue {both} -S -i").splitlines()
    assert titles.split() == [
        *("JOBID", "PARTITION", "NAME", "USER", "ST", "TIME", "NODES", "NODELIST(REASON)"),
    ]
    assert [row.split()[:3] for row in rows] == [
        [str(held), "main", "later"],
        [str(running), "debug", "train"],
    ]
    assert re.search(r"RUNNING +\d+:\d\d +1:00:00 ", login.typed(f"squeue -l -h -j {running}"))
    assert login.typed(f"squeue -h -j {running} -O JobArrayID:10,State:8") == (
        f"{running:<10}RUNNING\n"
    )
    assert "known: JobID" in login.run("squeue -O nonsense").stderr
    login.typed(f"scancel {running} {held}")
    login.cluster.until(held, "CANCELLED")
    assert login.typed(f"squeue -h {both}") == ""


def test_jobs_that_ended_lately_are_listed_by_their_states(login: LoginNode) -> None:
    failed = submitted(login, "-J lately --gpus=1 --time=9", "exit 3")
    done = submitted(login, "-J lately --gpus=1", "true")
    held = submitted(login, "-J lately --gpus=1 --hold")
    array = submitted(login, "-J lately --gpus=1 --hold --array=1-3")
    stopped = submitted(login, "-J lately --gpus=1 --hold")
    login.typed(f"scancel {stopped} {array}_2")
    login.cluster.until(failed, "FAILED")
    (where,) = login.cluster.until(done, "COMPLETED").nodes

    def listed(options: str) -> list[str]:
        return sorted(login.typed(f"squeue -h -n lately {options} -o '%i %t %R'").splitlines())

    live = [f"{array}_[1,3] PD (JobHeldUser)", f"{held} PD (JobHeldUser)"]
    of_failed, of_done = f"{failed} F (NonZeroExitCode)", f"{done} CD {where}"
    cancelled = [f"{array}_2 CA", f"{stopped} CA"]
    assert listed("") == sorted(live)
    assert listed("-t PD,R,cf,RQ") == sorted(live)
    assert listed("-t BOOT_FAIL") == []
    assert listed("-t CD,F,CA,TO") == sorted([of_failed, of_done, *cancelled])
    assert listed("-t completed -t PENDING") == sorted([*live, of_done])
    for every in ("all", "ALL", "R,all"):
        assert listed(f"-t {every}") == sorted([*live, of_failed, of_done, *cancelled])
    assert listed(f"-t all -j {failed},{held}") == sorted([of_failed, live[1]])
    assert listed(f"-t CA -j {array}") == cancelled[:1]
    state, end, why, ran = login.typed(f"squeue -h -j {failed} -t F -o '%T|%e|%r|%M'").split("|")
    assert (state, why) == ("FAILED", "NonZeroExitCode")
    assert end == login.typed(f"sacct -X -n -P -j {failed} -o End").strip()
    assert re.fullmatch(r"\d+:\d\d\n", ran)
    with contextlib.closing(sqlite3.connect(login.cluster.folder / "dlsched.db")) as store:
        store.execute("UPDATE jobs SET ended_at = ended_at - 301 WHERE job = ?", (failed,))
        store.commit()
    assert listed("-t all") == sorted([*live, of_done, *cancelled])  # Slurm's MinJobAge is over
    login.typed(f"scancel {held} {array}")


def wait_until_idle(login: LoginNode) -> None:
    """Wait until the jobs of earlier tests have left the nodes."""
    states = "sinfo -h -N -p main -o %T"
    eventually("no job runs", lambda: login.typed(states).split() == 2 * ["idle"])


def test_the_nodes_in_slurms_formats(login: LoginNode) -> None:
    wait_until_idle(login)
    assert login.typed('sinfo -h -N -p main -o "%N %G %T %c"').splitlines() == [
        line
        for name in ("n1", "n2")
        for line in (f"{name} gpu:v100:2 idle {login.cluster.node(name).cpus}",)
    ]
    # without partitions in the format, each node is there once
    assert login.typed('sinfo -h -N -o "%N %t"').splitlines() == ["n1 idle", "n2 idle"]
    assert login.typed('sinfo -h -o "%D %t"') == "2 idle\n"
    titles, main, debug = login.typed("sinfo").splitlines()
    assert titles.split() == ["PARTITION", "AVAIL", "TIMELIMIT", "NODES", "STATE", "NODELIST"]
    assert main.split() == ["main*", "up", "infinite", "2", "idle", "n[1-2]"]
    assert debug.split()[0] == "debug"
    login.typed("scontrol update NodeName=n2 State=DRAIN Reason='bad fan'")
    assert login.typed('sinfo -h -p main -t drain -o "%n %t %E"') == "n2 drain bad fan\n"
    assert login.typed("sinfo -h -R").count("bad fan") == 1
    assert f"\n   Reason=bad fan [{ME}@20" in login.typed("scontrol show node=n2")
    lines = [line.split() for line in login.typed("sinfo -h").splitlines()]
    assert [(line[0], line[4], line[5]) for line in lines] == [
        (partition, state, node)
        for partition in ("main*", "debug")  # by partition, and what is out of service first
        for state, node in (("drain", "n2"), ("idle", "n1"))
    ]
    login.typed("scontrol update NodeName=n2 State=RESUME")
    assert login.typed("sinfo -h -p main -t drain") == ""
    shown = login.typed("scontrol show node n1")
    assert "Gres=gpu:v100:2" in shown
    assert "Reason=" not in shown
    assert "Nodes=n[1-2]\n" in login.typed("scontrol show partition debug")


def test_a_job_is_shown_however_it_is_asked_for(login: LoginNode) -> None:
    job = submitted(login, "--gpus=4 -N 2 --mem=1G --time=60")
    login.cluster.until(job, "RUNNING")
    shown = login.typed(f"scontrol show job {job} | grep TRES")
    assert shown == "   TRES=cpu=2,mem=2G,node=2,billing=2,gres/gpu=4\n"
    for line in ("show jobid={}", "show job={}", "show jobid -dd {}", "show -d job {}"):
        assert login.typed(f"scontrol {line.format(job)} | grep TRES") == shown
    assert "   State=ALLOCATED " in login.typed("scontrol show node n1")
    login.typed(f"scontrol update jobid={job} timelimit=+30")
    assert login.typed(f"squeue -h -j {job} -o %l") == "1:30:00\n"
    login.typed(f"scontrol update jobid={job} timelimit=-0:15:00")
    assert login.typed(f"squeue -h -j {job} -o %l") == "1:15:00\n"
    done = login.run(f"scontrol update jobid={job} timelimit=-75")  # 0 would be no limit
    told = f"scontrol: error: TimeLimit=-75: the limit of job {job} is 1:15:00\n"
    assert (done.returncode, done.stderr) == (2, told)
    login.typed(f"scancel {job}")


def test_the_rest_of_an_array_is_changed(login: LoginNode) -> None:
    """Elements that have ended are no error while others have not."""
    job = submitted(login, "--gpus=1 --array=1-3%1 --time=60")
    login.cluster.until(job, "RUNNING")
    login.typed(f"scancel {job}_1")
    login.cluster.until(job, "CANCELLED")
    login.typed(f"scontrol update jobid={job} arraytaskthrottle=3 timelimit=-30")
    login.cluster.until(job + 2, "RUNNING")
    assert login.typed(f"squeue -h -j {job} -o %l") == "30:00\n30:00\n"
    done = login.run(f"scontrol update jobid={job}_1 timelimit=10")
    told = f"scontrol: error: job {job}_1: it has ended already\n"
    assert (done.returncode, done.stderr) == (1, told)
    login.typed(f"scancel {job}")


def test_jobs_are_changed_with_scontrol(login: LoginNode) -> None:
    job = submitted(login, "-J tune --gpus=1 --hold --time=60 -n 2 --comment='a b'")
    login.typed(f"scontrol update JobId={job} TimeLimit=2:00:00 Partition=debug JobName=tuned")
    text = login.typed(f"scontrol show job {job}")
    for word in (
        *(f"JobId={job} JobName=tuned", "JobState=PENDING Reason=JobHeldUser", "Partition=debug"),
        *("TimeLimit=02:00:00", "NumTasks=2", "TresPerNode=gres:gpu:1", "Comment=a b"),
    ):
        assert word in text
    login.typed(f"scontrol release {job}")
    login.cluster.until(job, "RUNNING")
    login.typed(f"scontrol requeue {job}")
    eventually("the second start", lambda: login.cluster.job(job).starts == 2)
    assert "Restarts=1" in login.typed(f"scontrol -o show job {job}")
    login.typed(f"scancel --me -n tuned; scontrol show job {job} | grep JobState=")
    login.cluster.until(job, "CANCELLED")
    table = login.typed(f"sacct -X -j {job} --format=JobID,State%30,ExitCode,Restarts")
    titles, rule, row = table.splitlines()
    assert titles.split() == ["JobID", "State", "ExitCode", "Restarts"]
    assert set(rule) == {"-", " "}
    assert row.split() == [str(job), "CANCELLED", "by", ME, "0:15", "1"]


@pytest.mark.parametrize(
    ("line", "code", "told"),
    [
        ("squeue --yaml", 2, "squeue: error: --yaml: not supported; --help lists what is"),
        ("squeue -j 999999 -h", 1,
         "squeue: error: slurm_load_jobs error: Invalid job id specified: 999999 never was, or"),
        ("squeue -j 999998,999999 -h", 0, ""),
        ("squeue -t all,ENDED", 2,
         "squeue: error: -t: 'ENDED' is not known; known: PENDING (PD), STARTING (CF), "),
        ("scancel 999999", 0, ""),
        ("scancel -s USR1 999999", 1, "scancel: error: job 999999: there is no such job"),
        ("scancel", 2, "scancel: error: no job id given"),
        ("scontrol shutdown", 2, "scontrol: error: command 'shutdown' is not known"),
        ("scontrol update JobId=1 WCKey=x", 2, "scontrol: error: update: 'WCKey' is not known"),
        ("scontrol update JobId=1 MailType=NOON", 2, "scontrol: error: MailType: 'NOON' is not"),
        ("scontrol update JobId=1 TimeLimit=x", 2, "scontrol: error: TimeLimit: 'x' is not a"),
        ("scontrol update JobId=1 StartTime=x", 2, "scontrol: error: StartTime: 'x' is not a"),
        ("scontrol update NodeName=n1 Weight=2", 2, "scontrol: error: update: 'Weight' is not"),
        ("scontrol update NodeName=n1 Comment=a State=drain Reason=b", 2,
         "scontrol: error: update: 'Comment' is not known; known: NodeName, State, Reason"),
        ("scontrol update JobId=999999 TimeLimit=+5", 1,
         "scontrol: error: job 999999: there is no such job"),
        ("scontrol show topology", 2, "scontrol: error: show 'topology' is not known; known: host"),
        ("sacct --format=Nonsense", 2, "sacct: error: --format: 'Nonsense' is not known"),
        ("sbatch --licenses=a --wrap true", 2, "sbatch: error: --licenses: not supported"),
        ("sbatch nowhere.sh", 2, "sbatch: error: nowhere.sh: can't be read"),
        ("sinfo -o %q", 2, "sinfo: error: -o: %q is not known"),
        ("squeue -s --json", 2, "squeue: error: -s: takes -o, not -O or --json"),
        ("squeue -s -O name", 2, "squeue: error: -s: takes -o, not -O or --json"),
        ("scontrol --json hold 1", 2, "scontrol: error: --json: not with hold; with show job, "),
        ("sacct -i 4-2", 2, "sacct: error: --nnodes: '4-2' is not a number or a range (2, 2-4)"),
    ],
)  # fmt: skip
def test_what_is_not_known_is_refused_in_one_line(
    login: LoginNode, line: str, code: int, told: str
) -> None:
    done = login.run(line)
    assert done.returncode == code, done.stderr
    assert done.stderr.startswith(told), done.stderr
    assert done.stderr.count("\n") == (1 if told else 0)


def test_a_job_that_is_over_is_cancelled_silently_and_known_for_a_while(login: LoginNode) -> None:
    """As on a real Slurm; scripts wait with `while squeue -h -j ID | grep -q .` or by its code."""
    over = int(login.typed("sbatch --parsable --gpus=0 -o /dev/null --wrap true"))
    login.cluster.until(over, "COMPLETED")
    assert login.typed(f"squeue -h -j {over}") == ""
    assert login.typed(f"scancel {over}") == ""
    signalled = login.run(f"scancel -s USR1 {over}")
    assert (signalled.returncode, signalled.stdout) == (1, "")
    alive = submitted(login, "--gpus=1 -w n1")
    both = login.run(f"scancel {over} {alive} 999999")
    assert (both.returncode, both.stdout, both.stderr) == (0, "", "")
    login.cluster.until(alive, "CANCELLED")


def test_patterns_of_slurm_name_the_files_that_slurm_names(login: LoginNode) -> None:
    folder = login.home / "patterns"
    folder.mkdir()
    line = f"cd {folder}; sbatch --parsable --gpus=0 --wrap true"
    job = int(login.typed(f"{line} -o log_%J.out"))
    array = int(login.typed(f"{line} -a 10-11 -o log_%b_%q.out"))
    after = int(login.typed(f"{line} -o after.out --dependency={job},{array}"))
    login.cluster.until(after, "COMPLETED")
    names = sorted(path.name for path in folder.iterdir())
    assert names == sorted([f"log_{job}.out", "log_0_%q.out", "log_1_%q.out", "after.out"])


def test_another_job_truncates_a_log_and_later_runs_of_one_append(login: LoginNode) -> None:
    line = "sbatch --parsable --gpus=0 -o fixed.log"
    log = login.home / "fixed.log"
    script = """--wrap 'echo run $DLSCHED_RUN of $SLURM_JOB_ID
        [ $DLSCHED_RUN = 2 ] || scontrol requeue $SLURM_JOB_ID; sleep 0.1'"""
    for _ in range(2):
        job = int(login.typed(f"{line} {script}"))
        login.cluster.until(job, "COMPLETED")
        assert log.read_text() == f"run 1 of {job}\nrun 2 of {job}\n"
    array = int(login.typed(f"{line} -a 1-3%1 --wrap 'echo $SLURM_ARRAY_TASK_ID'"))
    last = int(login.typed(f"{line} --open-mode=append -d {array} --wrap 'echo last'"))
    login.cluster.until(last, "COMPLETED")
    assert sorted(log.read_text().splitlines()[2:]) == ["1", "2", "3", "last"]


def test_a_mode_of_the_jobs_files_holds_for_those_of_its_steps(login: LoginNode) -> None:
    step = "srun -o {name} --open-mode=truncate sh -c 'echo of run $DLSCHED_RUN'"
    script = f"""#!/bin/bash
#SBATCH --gpus=0 --ntasks=1 --open-mode=append -o batch.log
echo mode $SLURM_OPEN_MODE
srun --output kept.log sh -c 'echo of run $DLSCHED_RUN'
{step.format(name="anew.log")}
[ $DLSCHED_RUN = 2 ] || scontrol requeue $SLURM_JOB_ID
sleep 0.1
"""
    (login.home / "steps.sh").write_text(script)
    job = int(login.typed("sbatch --parsable steps.sh"))
    login.cluster.until(job, "COMPLETED")
    assert (login.home / "batch.log").read_text() == "mode a\nmode a\n"
    assert (login.home / "kept.log").read_text() == "of run 1\nof run 2\n"
    assert (login.home / "anew.log").read_text() == "of run 2\n"


def test_a_folder_of_logs_that_appears_after_the_submission_is_waited_for(
    login: LoginNode,
) -> None:
    line = f"sbatch --parsable --gpus=0 -o {login.home}/late-%j/out --wrap true"
    jobs = []
    for _ in range(5):
        job = int(login.typed(line))
        threading.Timer(0.3, (login.home / f"late-{job}").mkdir).start()
        jobs.append(job)
    for job in jobs:
        login.cluster.until(job, "COMPLETED")


def test_options_that_only_slurm_has_are_carried_out_or_noted(login: LoginNode) -> None:
    line = "sbatch -p debug,main -n 1 --ntasks-per-gpu=2 -G 2 --mem=0 -N 1-2 --time=9 --time-min=5 "
    line += (
        "--mail-type=END,TIME_LIMIT_80 --tmp=1G -o %x-%s.out -J wish --wrap 'echo $SLURM_NTASKS'"
    )
    done = login.run(line.replace("-n 1 ", ""))
    assert done.returncode == 0, done.stderr
    assert "without effect" not in done.stderr
    job = int(done.stdout.split()[-1])
    login.cluster.until(job, "COMPLETED")
    assert (login.home / "wish-batch.out").read_text() == "4\n"
    assert login.cluster.job(job).partition == "debug"


def test_srun_on_a_login_node_runs_a_job_and_shows_its_output(login: LoginNode) -> None:
    done = login.run("srun --gpus=1 -n 2 bash -c 'echo rank $SLURM_PROCID of $SLURM_NTASKS'")
    assert done.returncode == 0, done.stderr
    assert sorted(done.stdout.splitlines()) == ["rank 0 of 2", "rank 1 of 2"]  # and nothing else
    assert not list(login.home.glob("*srun*"))
    failed = login.run("srun --gpus=1 -o task.%t bash -c 'echo out; echo err >&2; exit 3'")
    assert (failed.returncode, failed.stdout) == (3, "")
    inner = "[ $SLURM_PROCID = 0 ] && exit 3; exec sleep 600"  # its task 1 is ended by TERM
    assert login.run(f"srun --gpus=1 -K -n 2 bash -c '{inner}'").returncode == 3
    # two streams of one file, in any order
    assert sorted((login.home / "task.0").read_text().splitlines()) == ["err", "out"]
    unstarted = login.run("srun --gpus=1 -D /nowhere true")
    assert unstarted.returncode == 126
    assert "cannot enter working directory /nowhere" in unstarted.stderr


def test_srun_on_a_login_node_passes_its_input_on(login: LoginNode) -> None:
    (login.home / "given.txt").write_text("a line\n")
    twice = "0: a line\n1: a line\n"
    assert login.typed("salloc --gpus=1 -n 2 srun -l cat < given.txt | sort") == twice
    assert login.typed("srun --gpus=1 -n 2 -l cat < given.txt | sort") == twice
    run = "sh -c 'cat; echo told >&2; exit 3'"
    done = login.run(f"echo hello | srun --gpus=1 -n 2 --kill-on-bad-exit=0 {run}")
    assert (done.returncode, done.stdout) == (3, "hello\nhello\n")
    assert done.stderr.count("told\n") == 2
    assert login.typed("head -c 3000000 /dev/zero | srun --gpus=1 wc -c") == "3000000\n"
    assert login.typed("srun --gpus=1 -n 2 -i 1 -l cat < given.txt") == "1: a line\n"
    assert login.typed("srun --gpus=1 --input=none cat < given.txt") == ""
    assert login.typed("srun --gpus=1 --input=given.txt cat") == "a line\n"
    # an input that never ends, and one that ends early
    assert login.typed("mkfifo endless; exec 3<>endless; srun --gpus=1 echo there <&3") == "there\n"
    assert login.typed("yes | srun --gpus=1 head -n 1") == "y\n"
    unstarted = login.run("echo | srun --gpus=1 -D /nowhere cat")
    assert unstarted.returncode == 126
    assert "cannot enter working directory /nowhere" in unstarted.stderr
    assert not list(login.home.glob(".srun*"))


FIRST = "[ $SLURM_PROCID = 0 ] && { sleep 1; echo rank0-done; } || exit 3"
ENDLESS = "[ $SLURM_PROCID = 0 ] && { sleep 600; echo rank0-done; } || exit 3"


@pytest.mark.parametrize(
    ("how", "command", "code", "out"),
    [
        ("srun", FIRST, 3, "rank0-done\n"),
        ("srun -K0", FIRST, 3, "rank0-done\n"),
        ("SLURM_KILL_BAD_EXIT=1 srun --kill-on-bad-exit=0", FIRST, 3, "rank0-done\n"),
        ("srun -K", ENDLESS, 3, ""),
        ("srun --kill-on-bad-exit=1", ENDLESS, 3, ""),
        ("SLURM_KILL_BAD_EXIT=1 srun", ENDLESS, 3, ""),
        ("srun -W 1", ENDLESS, 137, ""),
        ("SLURM_WAIT=1 srun", ENDLESS.replace("exit 3", "exit 0"), 137, ""),
        ("srun", "exit $SLURM_PROCID", 1, ""),
    ],
)
def test_a_step_ends_with_its_last_task_unless_it_is_told_otherwise(
    login: LoginNode, how: str, command: str, code: int, out: str
) -> None:
    """As on a real Slurm, but that the code of a step that -K ends is that of the first failure."""
    (login.home / "step.sh").write_text(command)
    done = login.run(f"salloc --gpus=1 -n 2 bash -c '{how} bash step.sh 2>/dev/null'")
    assert (done.returncode, done.stdout) == (code, out), done.stderr


def test_a_site_says_whether_the_first_failure_ends_a_step(login: LoginNode) -> None:
    (login.home / "step.sh").write_text(ENDLESS)
    path = login.cluster.folder / "dlsched.toml"
    before = path.read_text()
    path.write_text(f"{before}[cluster]\nkill_on_bad_exit = true\n")
    login.cluster.cli("admin", "reload")
    try:
        assert login.run("srun --gpus=1 -n 2 bash step.sh").returncode == 3
        (login.home / "step.sh").write_text(FIRST)
        kept = login.run("srun -K0 --gpus=1 -n 2 bash step.sh")
    finally:
        path.write_text(before)
        login.cluster.cli("admin", "reload")
    assert (kept.returncode, kept.stdout) == (3, "rank0-done\n")


def test_srun_outside_of_a_job_knows_when_its_step_ends(login: LoginNode) -> None:
    (login.home / "first.sh").write_text(FIRST)
    (login.home / "endless.sh").write_text(ENDLESS)
    done = login.run("srun --gpus=1 -n 2 bash first.sh")
    assert (done.returncode, done.stdout) == (3, "rank0-done\n"), done.stderr
    waited = login.run("srun --gpus=1 -n 2 -W 1 bash endless.sh")
    assert (waited.returncode, waited.stdout) == (137, ""), waited.stderr
    refused = login.run("salloc --gpus=1 bash -c 'srun -W x true 2>&1'")
    assert refused.returncode == 2
    assert "'x' is not a number of seconds" in refused.stdout


def test_ctrl_c_cancels_an_srun_that_passes_its_input_on(login: LoginNode) -> None:
    (login.home / "given.txt").write_text("a line\n")
    run = """sh -c 'trap "" INT; cat; sleep 600'"""
    with login.terminal(f"srun --gpus=1 -J stopped {run} <given.txt") as user:
        user.expect(r"a line\r\n")
        user.type("\x03")
        job = int(user.expect(r"srun: job (\d+) is cancelled\r\n")[1])
        user.expect(rf"srun: error: job {job}: CANCELLED by {ME}")
        assert user.ends() == 130
    assert login.cluster.job(job).state == "CANCELLED"
    assert not list(login.home.glob(".srun*"))


STEPS = """#!/bin/bash
#SBATCH -J steps -N 2 --gpus-per-node=1 --ntasks-per-node=1 --cpus-per-task=1
srun hostname
srun -N 1 -n 1 -w n2 bash -c 'exit 7'
srun -N 1 -n 1 -w n1 sleep 599
"""


def test_sacct_lists_the_steps_of_a_job(login: LoginNode) -> None:
    (login.home / "steps.sh").write_text(STEPS)
    job = int(login.typed("sbatch --parsable steps.sh"))
    login.cluster.until(job, "RUNNING")
    path = login.home / f"slurm-{job}.out"
    eventually("its second step has failed", lambda: path.exists() and "code 7" in path.read_text())
    table = "sacct -n -P -o JobID,JobName,State,ExitCode,NodeList,AllocCPUS"
    assert login.typed(f"{table} -j {job}.batch") == f"{job}.batch|batch|RUNNING|0:0|n1|2\n"
    eventually(
        "its last step runs",
        lambda: ["sleep", "599"] in [p.cmdline() for p in login.cluster.remaining()],
    )
    live = [
        f"{job}.0|hostname|COMPLETED|0:0|n[1-2]|2",
        f"{job}.1|bash|FAILED|7:0|n2|1",
        f"{job}.2|sleep|RUNNING|0:0|n1|1",
    ]
    eventually(
        "its node has told of it",
        lambda: login.typed(f"{table} -j {job}").splitlines()[2:] == live,
    )
    login.typed(f"scancel {job}")
    login.cluster.until(job, "CANCELLED")
    head, *rest = login.typed(f"{table} -j {job}").splitlines()
    assert re.fullmatch(rf"{job}\|steps\|CANCELLED by {ME}\|\S+\|n\[1-2\]\|2", head)
    assert rest[0].startswith(f"{job}.batch|batch|CANCELLED|")
    assert rest[1:3] == [
        f"{job}.0|hostname|COMPLETED|0:0|n[1-2]|2",
        f"{job}.1|bash|FAILED|7:0|n2|1",
    ]
    assert re.fullmatch(rf"{job}\.2\|sleep\|CANCELLED\|0:\d+\|n1\|1", rest[3])
    assert login.typed(f"{table} -X -j {job}").splitlines() == [head]
    assert login.typed(f"{table} -j {job}.1").splitlines() == [rest[2]]
    times = "sacct -n -P -o Start,End,Elapsed,MaxRSS,User"
    start, end, elapsed, memory, user = login.typed(f"{times} -j {job}.0").strip().split("|")
    assert start <= end
    assert (elapsed[:6], user) == ("00:00:", "")
    assert memory.endswith("K")


BURN = """import os, sys, time
kept = bytearray(int(sys.argv[1]) << 20)
while time.process_time() < 0.3: pass
"""
USES = """#!/bin/bash
#SBATCH -N 2 --gpus-per-node=1 --ntasks-per-node=1
srun python3 burn.py 200
srun -N 1 -n 1 -w n2 python3 burn.py 100
srun python3 burn.py 50 &
sleep 600
"""


def test_sacct_says_what_each_step_has_used(login: LoginNode) -> None:
    (login.home / "burn.py").write_text(BURN)
    (login.home / "uses.sh").write_text(USES)
    job = int(login.typed("sbatch --parsable uses.sh"))
    table = f"sacct -n -P -o JobID,State,TotalCPU,MaxRSS -j {job}"

    def steps() -> list[tuple[str, str, float, int]]:
        rows = [line.split("|") for line in login.typed(table).splitlines()]
        return [
            (name, state, float(spent.partition(":")[2] or 0), int(peak.removesuffix("K") or 0))
            for name, state, spent, peak in rows
        ]

    def third_is_over() -> bool:
        return [(name, state) for name, state, *_ in steps()][4:] == [(f"{job}.2", "COMPLETED")]

    eventually("its third step is over", third_is_over)
    _, _, both, second, third = steps()  # while the job runs
    assert (both[0], second[0]) == (f"{job}.0", f"{job}.1")
    assert both[2] >= 0.6  # on two nodes
    assert second[2] >= 0.3
    assert 200 * 1024 <= both[3] < 300 * 1024
    assert 100 * 1024 <= second[3] < 200 * 1024
    assert third[2] >= 0.6
    login.typed(f"scancel {job}")
    login.cluster.until(job, "CANCELLED")
    whole, script, *rest = steps()
    assert [row[0] for row in rest] == [f"{job}.0", f"{job}.1", f"{job}.2"]
    assert [row[2:] for row in rest] == [both[2:], second[2:], third[2:]]  # counted once
    assert script[3] < 100 * 1024  # the script alone
    assert whole[2] == pytest.approx(script[2] + sum(row[2] for row in rest), abs=0.005)


def test_running_steps_are_known_to_a_daemon_that_starts_anew(login: LoginNode) -> None:
    (login.home / "one.sh").write_text("#!/bin/bash\n#SBATCH --gpus=1\nsrun sleep 598\n")
    job = int(login.typed("sbatch --parsable one.sh"))
    listed = f"sacct -n -P -o JobID,State -j {job}.0"
    told = f"{job}.0|RUNNING\n"
    eventually("its node has told of it", lambda: login.typed(listed) == told)
    login.cluster.kill("daemon")
    login.cluster.start_daemon()
    login.cluster.wait_until_up()
    eventually("its node has told again", lambda: login.typed(listed) == told)
    (where,) = login.cluster.job(job).nodes
    (script, step) = login.typed(f"squeue -h -s -j {job} -o '%i %j %N %u'").splitlines()
    assert (script, step) == (f"{job}.batch batch {where} {ME}", f"{job}.0 sleep {where} {ME}")
    assert login.typed(f"squeue -s {job}.0").split()[:7] == [
        *("STEPID", "NAME", "PARTITION", "USER", "TIME", "NODELIST", f"{job}.0"),
    ]
    login.typed(f"scancel {job}")


def test_sacct_says_what_an_ended_job_used(login: LoginNode) -> None:
    (login.home / "burn.py").write_text(
        "import time\nkept = bytearray(200 << 20)\nwhile time.process_time() < 0.3: pass\n"
    )
    job = submitted(login, "-N 2 --gpus-per-node=1", "python3 burn.py")
    login.cluster.until(job, "COMPLETED")
    line, batch = login.typed(f"sacct -n -P -o JobID,TotalCPU,MaxRSS -j {job}").splitlines()
    name, spent, peak = line.split("|")
    assert (name, peak) == (str(job), "")  # memory is a step's, as with Slurm
    assert login.typed(f"sacct -X -n -P -o AllocCPUS -j {job}") == "2\n"  # one on each node
    minutes, seconds = spent.split(":")
    assert int(minutes) * 60 + float(seconds) >= 0.3
    step, its_time, its_peak = batch.split("|")
    assert (step, its_time) == (f"{job}.batch", spent)
    assert 200 * 1024 <= int(its_peak.removesuffix("K")) < 2 * 1024 * 1024
    assert login.typed(f"sacct -n -P -o WorkDir -j {job}") == f"{login.home}\n\n"


def test_srun_enters_a_running_job(login: LoginNode) -> None:
    job = submitted(login, "--gpus=1 -w n1")
    login.cluster.until_begun(job)
    line = f"srun --jobid={job} --overlap bash -c 'echo $SLURM_JOB_ID on $SLURMD_NODENAME; exit 3'"
    done = login.run(line)
    assert done.returncode == 3
    assert done.stdout == f"{job} on n1\ndlsched: run: rank 0 on n1: exit code 3\n"
    two = login.typed(f"srun --jobid={job} -n 2 -l echo there")
    assert sorted(two.splitlines()) == ["0: there", "1: there"]
    assert login.typed(f"sacct -n -P -o jobid,state -j {job}.batch") == f"{job}.batch|RUNNING\n"
    login.typed(f"scancel {job}")


def test_a_gpu_is_never_taken_silently(login: LoginNode) -> None:
    done = login.run("sbatch --wrap true")
    assert "no option says how many GPUs: it gets 1 GPU (--gpus 0: none)" in done.stderr
    assert "GPU" not in login.run("sbatch --gpus=0 --wrap true").stderr


def test_a_test_only_submission_says_when_it_would_start(login: LoginNode) -> None:
    done = login.run("sbatch --test-only --gpus=1 --time=10 --wrap true")
    assert (done.returncode, done.stdout) == (0, "")
    assert re.search(
        r"sbatch: it would start at \d{4}-\d\d-\d\dT[\d:]+ \(.+\); nothing was", done.stderr
    )


def test_entries_of_gres_are_added_up_and_types_that_no_node_has_refused(login: LoginNode) -> None:
    job = submitted(login, "--gres=gpu:v100:1,gpu:1", run="true")
    assert login.cluster.job(job).gpus == 2
    done = login.run("sbatch --gres=gpu:a100:2,gpu:v100:2 --wrap true")
    assert done.returncode == 1
    assert "no node has 2 a100 and 2 v100; n[1-2] have 2 v100" in done.stderr


def test_what_jobs_hold_is_seen_on_nodes(login: LoginNode) -> None:
    wait_until_idle(login)
    job = submitted(login, "--gpus=1 -c 1 --mem=1G -w n1 -p main")
    login.cluster.until(job, "RUNNING")
    cpus = login.cluster.node("n1").cpus or 0
    line = login.typed("sinfo -h -N -n n1 -p main -O CPUsState,AllocMem,GresUsed:30").split()
    assert line == [f"1/{cpus - 1}/0/{cpus}", "1024", "gpu:v100:1(IDX:0)"]
    text = login.typed("scontrol show node n1")
    for word in (f"CPUAlloc=1 CPUEfctv={cpus}", "AllocMem=1024", "AllocTRES=cpu=1,mem=1024M,gres"):
        assert word in text
    summary = login.typed("sinfo -s -h -p main").split()
    assert summary[3:] == ["1/1/0/2", "n[1-2]"]
    listed = login.typed(f'squeue -h -j {job} -o "%i|%m|%c|%B|%n|%Z|%o"').strip()
    assert listed == f"{job}|1G|1|n1|n1|{login.home}|(null)"
    assert login.typed(f"SQUEUE_FORMAT=%i/%T squeue -h -j {job}") == f"{job}/RUNNING\n"
    assert login.typed(f"squeue -h -j {job} -o %all").startswith(f"{job}|{job}|{job}|N/A|main|")
    assert login.typed(f"SACCT_FORMAT=jobid,reqmem sacct -X -n -P -j {job}") == f"{job}|1G\n"
    assert "AllocTRES" in login.typed("sacct --helpformat").split()
    login.typed(f"scontrol requeuehold {job}")
    found = login.cluster.until(job, "PENDING")
    assert found.held
    login.typed(f"scancel {job}")


def test_every_task_reads_what_srun_reads(login: LoginNode) -> None:
    """Here-documents, pipes and files, for the tasks of both nodes."""
    (login.home / "reads.sh").write_text(
        "#!/bin/bash\n"
        "printf 'a\\nb\\n' | srun --ntasks=4 --nodes=2 --label cat | sort\n"
        "srun bash <<'END' | sort\necho a shell of task $SLURM_PROCID\nEND\n"
        "echo unread | srun -i none cat\n"
        "echo of the third | srun -l --input=2 cat\n"
        "echo of a task elsewhere | srun -w n2 -n 1 cat\n"
        "echo to the others | srun -l sh -c '[ $SLURM_PROCID = 2 ] || exec cat' | sort\n"
        "srun -n 1 --input=reads.txt cat\n"
        "srun --input=reads.txt wc -l | sort -u\n"
        "srun -l --input=reads.%t.txt cat | sort\n"
        "srun -n 1 --input=lost.txt cat\n"
        "srun --input=4 cat\n"
    )
    (login.home / "reads.txt").write_text("of a file\n")
    for task in range(4):
        (login.home / f"reads.{task}.txt").write_text(f"of file {task}\n")
    options = "--gpus=0 -N 2 -w n[1-2] --tasks-per-node=2 -o reads.out"
    job = int(login.typed(f"sbatch --parsable {options} reads.sh"))
    login.cluster.until(job, "COMPLETED", "FAILED")
    assert (login.home / "reads.out").read_text().splitlines() == [
        *(f"{task}: {line}" for task in range(4) for line in "ab"),
        *(f"a shell of task {task}" for task in range(4)),
        "2: of the third",
        "of a task elsewhere",
        *(f"{task}: to the others" for task in (0, 1, 3)),
        "of a file",
        "1",
        *(f"{task}: of file {task}" for task in range(4)),
        "srun: error: --input=lost.txt: No such file or directory",
        "srun: error: --input=4: the tasks are 0 to 3",
    ]


def test_a_job_that_waits_is_predicted_and_one_that_runs_is_not(login: LoginNode) -> None:
    wait_until_idle(login)
    running = submitted(login, "--gpus-per-node=2 -N 2 --time=1:00:00")
    waiting = submitted(login, "--gpus=1 --time=5 -J next")
    login.cluster.until(running, "RUNNING")

    def told() -> bool:
        row = login.typed("squeue -h --start").split()
        return (row[0], row[4], row[-1]) == (str(waiting), "PD", "(Resources)")

    eventually("it is told why it waits", told)
    cells = login.typed(f'squeue -h -j {waiting} -o "%a %k %M" -O tres-alloc:40').split()
    assert cells == ["cpu=1,node=1,billing=1,gres/gpu=1"]
    assert login.typed(f'squeue -h -j {waiting} -o "%a %k %M"') == "(null) (null) 0:00\n"
    login.typed(f"scancel {running} {waiting}")


def test_each_command_says_what_it_knows(login: LoginNode) -> None:
    for name in ("sbatch", "srun", "salloc", "squeue", "sacct", "sinfo", "scancel", "scontrol"):
        assert login.typed(f"{name} --help").startswith(f"usage: {name} ")
    assert "%.10Q" in login.typed("sprio --help")
    for name in ("sbatch", "srun", "salloc"):
        lines = login.typed(f"COLUMNS=80 {name} --usage").splitlines()
        assert any("--gpus-per-node" in line for line in lines)
        assert max(map(len, lines)) <= 80
    assert re.fullmatch(r"slurm 24\.05\S* \(dlsched \S+\)\n", login.typed("squeue --version"))
    job = submitted(login, "--gpus=1", "exit 3")
    login.cluster.until(job, "FAILED")
    failed = login.typed("sacct -X -n -s F -S today -o JobID,AllocNodes,CPUTimeRAW,TimelimitRaw")
    rows = {row[0]: row[1:] for row in map(str.split, failed.splitlines())}
    nodes, seconds, limit = rows[str(job)]
    assert (nodes, seconds.isdecimal(), limit) == ("1", True, "UNLIMITED")


def test_the_commands_are_installed_by_one_command(login: LoginNode) -> None:
    folder = login.home / "bin"
    folder.mkdir()
    written = login.typed(f"dlsched admin slurm-commands {folder}").splitlines()
    assert str(folder / "squeue") in written
    assert login.typed(f"{folder}/squeue -h -n no-such-job") == ""
    said = login.run("dlsched admin slurm-commands nowhere").stderr
    assert said == "dlsched: nowhere: No such file or directory\n"
