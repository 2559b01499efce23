"""What programs read of Slurm's commands: fields, names, JSON; numbers that agree everywhere."""

from __future__ import annotations

import getpass
import json
import os
import re
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime
from pathlib import Path

import pytest

from dlsched.torture.local_cluster import LocalCluster, eventually
from tests.live.login_node import LoginNode

pytestmark = pytest.mark.slow
ME = getpass.getuser()

SCRIPT = """#!/bin/bash
#SBATCH -J tool --gpus-per-node=1 -N 2 --mem=1G -t 10 -A speech -q urgent -o told.out
scontrol show job $SLURM_JOB_ID | grep Command=
squeue -h -j $SLURM_JOB_ID -o %o
sleep 600
"""
# of Slurm 24.05 and 25.05
SACCT_FIELDS = """
Account AdminComment AllocCPUS AllocNodes AllocTRES AssocID AveCPU AveCPUFreq AveDiskRead
AveDiskWrite AvePages AveRSS AveVMSize BlockID Cluster Comment Constraints ConsumedEnergy
ConsumedEnergyRaw Container CPUTime CPUTimeRAW DBIndex DerivedExitCode Elapsed ElapsedRaw Eligible
End ExitCode Extra FailedNode Flags GID Group JobID JobIDRaw JobName Layout Licenses MaxDiskRead
MaxDiskWrite MaxPages MaxRSS MaxRSSNode MaxRSSTask MaxVMSize McsLabel MinCPU NCPUS NNodes NodeList
NTasks Partition Planned PlannedCPU PlannedCPURAW Priority QOS QOSRAW Reason ReqCPUFreq ReqCPUS
ReqMem ReqNodes ReqTRES Reservation Restarts Start State SubmitLine Submit Suspended SystemCPU
Timelimit TimelimitRaw TotalCPU TRESUsageInAve TRESUsageInMax TRESUsageInTot TRESUsageOutMax UID
User UserCPU WCKey WorkDir
""".split()  # noqa: SIM905
SQUEUE_NAMES = """
Account AccrueTime admin_comment AllocNodes AllocSID ArrayJobId ArrayTaskId AssocId BatchFlag
BatchHost Cluster Command Comment Container Contiguous Cores CoreSpec CPUsPerTask cpus-per-task
Deadline DelayBoot Dependency DerivedEC EligibleTime EndTime ExcNodes exit_code Feature Gres GroupId
GroupName HetJobId JobArrayId JobId Licenses MaxCPUs MaxNodes MinCPUs MinMemory MinTime MinTmpDisk
Name Network Nice NodeList NumCPUs NumNodes NumTasks OverSubscribe Partition PendingTime Priority
PriorityLong Profile QOS Reason ReasonList ReqNodes Requeue Reservation RestartCnt SCT StartTime
State StateCompact StdErr StdIn StdOut SubmitTime Threads TimeLeft TimeLimit TimeUsed tres-alloc
tres-bind tres-per-job tres-per-node tres-per-task UserId UserName WCKey WorkDir
""".split()  # noqa: SIM905
SINFO_NAMES = """
AllocMem AllocNodes Available Cluster Comment Cores CPUs CPUsLoad CPUsState DefaultTime Disk Extra
Features features_act FreeMem Gres GresUsed Groups MaxCPUsPerNode Memory NodeAddr NodeAI NodeAIOT
NodeHost NodeList Nodes OverSubscribe Partition PartitionName Port PreemptMode PriorityJobFactor
PriorityTier Reason Reservation Root Size Sockets SocketCoreThread StateCompact StateComplete
StateLong Threads Time TimeStamp User UserLong Version Weight
""".split()  # noqa: SIM905


@pytest.fixture(scope="module")
def login() -> Iterator[LoginNode]:
    """A user's shell on a cluster of two nodes of two GPUs, without accounts and classes."""
    with LocalCluster(nodes=2, gpus="2:v100") as running:
        path = running.folder / "dlsched.toml"
        path.write_text(path.read_text() + '[[partitions]]\nname = "main"\ndefault = true\n')
        running.cli("admin", "reload")
        yield LoginNode(running)


@pytest.fixture(scope="module")
def job(login: LoginNode) -> int:
    """A job of a script with arguments that runs on both nodes."""
    folder = login.home / "scripts"
    folder.mkdir()
    (folder / "tool.sh").write_text(SCRIPT)
    found = int(login.typed("sbatch --parsable scripts/tool.sh one two"))
    login.cluster.until_begun(found)
    return found


def test_a_script_finds_its_own_path(login: LoginNode, job: int) -> None:
    path = f"{login.home}/scripts/tool.sh one two"
    shown = login.typed(f"scontrol show job {job}")
    assert f"   Command={path}\n" in shown
    assert login.typed(f"squeue -h -j {job} -o %o") == f"{path}\n"
    assert f"   StdOut={login.home}/told.out\n" in shown
    told = login.typed(f"scontrol write batch_script {job} -")
    assert told == SCRIPT
    login.typed(f"scontrol write batch_script {job}")
    assert (login.home / f"slurm-{job}.sh").read_text() == SCRIPT


def test_numbers_agree_everywhere(login: LoginNode, job: int) -> None:
    told = [
        login.typed(f"squeue -h -j {job} -o %C"),
        login.typed(f"sacct -X -n -P -j {job} -o AllocCPUS"),
        login.typed(f"scontrol show job {job} | grep -oP 'NumCPUs=\\K\\d+'"),
        login.typed(f"scontrol show job {job} | grep -oP ' TRES=cpu=\\K\\d+'"),
    ]
    assert told == ["2\n"] * 4
    assert login.typed("sinfo -h -o %C").startswith("2/")
    assert "   CPUAlloc=1 " in login.typed("scontrol show node n1")


def test_a_job_is_shown_in_slurms_lines(login: LoginNode, job: int) -> None:
    shown = login.typed(f"scontrol show job {job}")
    start = re.search(r"StartTime=(\S+) EndTime=(\S+) ", shown)
    assert start
    begun, until = map(datetime.fromisoformat, start.groups())
    assert (until - begun).total_seconds() == 600  # it runs
    assert "Account=speech QOS=urgent" in shown  # a site without accounts keeps any
    assert "JOB_GRES" not in shown
    detailed = login.typed(f"scontrol -d show job {job}")
    assert "   JOB_GRES=gpu:2\n" in detailed
    assert re.search(r"Nodes=n\[1-2\] CPU_IDs=N/A Mem=1024 GRES=gpu:1\(IDX:\d\)", detailed)
    line = login.typed(f"scontrol -o show job {job}")
    assert line.count("\n") == 1
    other = login.typed("sbatch --parsable --gpus=0 -H --array=1-4%2 --wrap true").strip()
    held = login.typed(f"scontrol show job {other}_1")
    both = login.typed(f"scontrol show job {job},{other}_1")
    assert both.count("\n   \n\n") == 2  # tools find the ends of jobs by their empty lines
    assert f"JobId={other} ArrayJobId={other} ArrayTaskId=1 ArrayTaskThrottle=2 " in held
    assert "Account=(null) QOS=(null)" in held
    assert "Command=(null)" in held
    step = login.typed(f"scontrol show step {job}")
    assert step.startswith(f"StepId={job}.batch UserId=")
    node = login.typed("scontrol show node n1")
    assert re.search(r"NodeAddr=127\.0\.0\.1 NodeHostName=n1 Port=\d+ ", node)
    assert "SLURM_VERSION" in login.typed("scontrol show config")
    login.typed(f"scancel {other}")


def test_every_name_of_a_field_is_known(login: LoginNode, job: int) -> None:
    titles, row = login.typed(
        f"sacct -X -P -j {job} --format={','.join(SACCT_FIELDS)}"
    ).splitlines()
    assert titles.split("|") == SACCT_FIELDS
    found = dict(zip(SACCT_FIELDS, row.split("|"), strict=True))
    assert (found["ReqMem"], found["NNodes"], found["AveRSS"]) == ("1G", "2", "")
    assert found["Planned"].startswith("00:00:")
    fields = ",".join(f"{name}:|" for name in SQUEUE_NAMES)
    queued = login.typed(f"squeue -h -j {job} -O '{fields}'").rstrip("\n").split("|")
    by_name = dict(zip(SQUEUE_NAMES, queued, strict=False))
    assert (by_name["NumCPUs"], by_name["StdOut"]) == ("2", f"{login.home}/told.out")
    assert (by_name["Licenses"], by_name["NumTasks"]) == ("(null)", "2")
    nodes = ",".join(f"{name}:|" for name in SINFO_NAMES)
    assert login.typed(f"sinfo -h -N -n n1 -O '{nodes}'").count("|") == len(SINFO_NAMES)


def test_fields_have_slurms_widths_and_separators(login: LoginNode, job: int) -> None:
    """As a real Slurm prints it."""
    assert login.typed(f"squeue -h -j {job} -O 'jobid:.6,name:8,statecompact:|,name:.6-'") == (
        f"{job:>6}tool    R|  tool-\n"
    )
    assert login.typed(f"squeue -j {job} -O jobid,name:5").splitlines() == [
        "JOBID               NAME",
        f"{job:<20}tool",
    ]
    assert login.typed(f"squeue -h -j {job} --only-job-state") == f"{job} RUNNING\n"
    assert login.typed(f"squeue -h -j {job} --noconvert -o %m") == "1024M\n"
    assert login.typed(f"sacct -X -n -P -j {job} --units=M -o ReqMem") == "1024M\n"
    day = time.strftime("%m/%d")
    assert login.typed(f"sacct -X -n -P -L --array -S {day} -o JobID,JobName").splitlines()[0] == (
        f"{job}|tool"
    )
    assert "there is no such day" in login.run("sacct -S 13/45").stderr
    assert login.typed("squeue -h --notme") == ""


def test_json_has_the_shape_of_slurms_data_parser(login: LoginNode, job: int) -> None:
    for line in (f"squeue -j {job} --json", f"scontrol show job {job} --json"):
        document = json.loads(login.typed(line))
        assert document["meta"]["plugin"]["data_parser"] == "data_parser/v0.0.41"
        assert document["errors"] == []
        (found,) = document["jobs"]
        assert (found["job_id"], found["job_state"]) == (job, ["RUNNING"])
        assert found["cpus"] == {"set": True, "infinite": False, "number": 2}
        assert found["time_limit"]["number"] == 10
        assert found["command"] == f"{login.home}/scripts/tool.sh one two"
        assert found["job_resources"]["nodes"]["list"] == "n[1-2]"
        assert found["user_name"] == ME
    (ended,) = json.loads(login.typed(f"sacct -j {job} --json"))["jobs"]
    assert ended["state"]["current"] == ["RUNNING"]
    assert ended["steps"][0]["step"] == {"id": f"{job}.batch", "name": "batch"}
    assert {"type": "gres", "name": "gpu", "id": 1001, "count": 2} in ended["tres"]["allocated"]
    groups = json.loads(login.typed("sinfo --json"))["sinfo"]
    assert sum(group["nodes"]["total"] for group in groups) == 2
    assert {group["partition"]["name"] for group in groups} == {"main"}
    nodes = json.loads(login.typed("scontrol show nodes --json"))["nodes"]
    assert [(node["name"], node["state"]) for node in nodes] == [
        ("n1", ["MIXED"]),
        ("n2", ["MIXED"]),
    ]
    (partition,) = json.loads(login.typed("scontrol show partitions --json"))["partitions"]
    assert partition["nodes"]["total"] == 2
    for some in ("-n n1", "-t mixed -n n2"):  # a partition's totals are of all its nodes
        (group,) = json.loads(login.typed(f"sinfo --json {some}"))["sinfo"]
        assert group["nodes"]["total"] == 1
        assert group["partition"] == groups[0]["partition"]


def test_the_derived_exit_code_is_the_highest_of_the_steps(login: LoginNode, job: int) -> None:
    """The job's own code is that of its script."""
    steps = "srun sh -c 'exit 3'; srun sh -c 'exit 7'; srun true; exit 2"
    ended = login.typed(f'sbatch --parsable --gpus=0 -o /dev/null --wrap "{steps}"').strip()
    login.cluster.until(int(ended), "FAILED")
    assert login.typed(f"sacct -X -n -P -j {ended} -o ExitCode,DerivedExitCode") == "2:0|7:0\n"
    assert "   DerivedExitCode=7:0\n" in login.typed(f"scontrol -d show job {ended}")
    for line in (f"scontrol show job {ended} --json", f"sacct -j {ended} --json"):
        (found,) = json.loads(login.typed(line))["jobs"]
        assert found["derived_exit_code"]["return_code"]["number"] == 7
        assert found["exit_code"]["return_code"]["number"] == 2


def test_the_small_commands_tell_in_slurms_form(login: LoginNode, job: int) -> None:
    done = int(login.typed("sbatch --parsable --gpus=0 -o /dev/null --wrap true"))
    login.cluster.until(done, "COMPLETED")
    told = login.typed(f"seff {done}")
    assert told.startswith(f"Job ID: {done}\nCluster: ")
    assert "State: COMPLETED (exit code 0)\nCores: 1\nCPU Utilized: 00:00:0" in told
    assert "no such job" in login.run("seff 999999").stderr
    assert login.typed(f"sstat -n -P -j {job}.batch -o JobID,NTasks") == f"{job}.batch|1\n"
    assert login.typed(f"sstat -n -P -j {job}.77 -o JobID") == ""
    many = int(login.typed("sbatch --parsable --gpus=0 -n 2 -o /dev/null --wrap true"))
    login.cluster.until(many, "COMPLETED")
    of_batch = login.typed(f"sacct -n -P -j {many}.batch -o JobID,NTasks")
    assert of_batch == f"{many}.batch|1\n"
    assert re.search(r"Jobs running:   [1-9]", login.typed("sdiag"))
    assert login.typed(f"squeue -h -j {job} -O AllocNodes:20").strip() not in ("", "(null)")
    titles = login.typed("sshare -U -P").splitlines()[0]
    assert titles.startswith("Account|User|RawShares|")


def test_a_file_is_copied_to_the_nodes_of_a_job(login: LoginNode) -> None:
    source, dest = login.home / "data.bin", login.home / "copied.bin"
    source.write_bytes(bytes(range(256)) * 4096)
    source.chmod(0o750)
    line = f"salloc --gpus=0 bash -c 'sbcast {{}} {source} {dest}'"
    login.typed(line.format(""))
    assert dest.read_bytes() == source.read_bytes()
    assert dest.stat().st_mode & 0o777 == 0o750
    again = login.run(line.format(""))
    assert again.returncode == 1
    assert "is there already; -f replaces it" in again.stdout + again.stderr
    login.typed(line.format("-f"))
    assert "only inside a job" in login.run(f"sbcast {source} {dest}").stderr
    assert not list(login.home.glob("*.sbcast.*"))


def test_a_file_on_its_way_is_read_by_its_user_only_and_goes_through_no_link(
    login: LoginNode,
) -> None:
    source, dest = login.home / "slow.bin", login.home / "arrived.bin"
    os.mkfifo(source, 0o640)
    precious = login.home / "precious"
    precious.write_text("as it was")
    for number in range(1, 500):  # process numbers, which others can guess
        (login.home / f"arrived.bin.sbcast.{number}").symlink_to(precious)

    def on_its_way() -> list[Path]:
        return [each for each in login.home.glob("arrived.bin.sbcast.*") if not each.is_symlink()]

    with ThreadPoolExecutor(1) as pool:
        copied = pool.submit(login.run, f"salloc --gpus=0 sbcast {source} {dest}")
        with source.open("wb", buffering=0) as writer:
            writer.write(b"begun, ")
            eventually("it begins", lambda: precious.read_text() != "as it was" or on_its_way())
            modes = [each.stat().st_mode & 0o777 for each in on_its_way()]
            writer.write(b"ended")
        assert copied.result(60).returncode == 0
    assert (modes, precious.read_text()) == ([0o600], "as it was")
    assert dest.read_bytes() == b"begun, ended"
    assert dest.stat().st_mode & 0o777 == 0o640
    assert not on_its_way()


def test_the_output_of_a_running_step_is_attached_to(login: LoginNode, job: int) -> None:
    loop = "echo begun; until [ -e go ]; do sleep 0.1; done; echo ended"
    login.typed(f"sbatch --parsable --gpus=0 -J script -o script.out --wrap '{loop}'")
    script = login.typed("squeue -h -n script -o %i").strip()
    login.cluster.until(int(script), "RUNNING")
    assert login.typed(f"sattach --layout {script}.batch").startswith(
        "Job step layout:\n\t1 tasks, 1 nodes (n"
    )
    ran = login.typed(
        f"srun -J ranks -n 2 --gpus=0 sh -c '{loop}' > ranks.out & "
        "until squeue -h -n ranks -t R -o %i | grep .; do sleep 0.2; done; "
        "id=$(squeue -h -n ranks -o %i); "
        "sattach $id.0 > one.out & sattach $id.0 --layout; "
        f"sattach {script}.batch > two.out & "
        "until grep -q begun one.out && grep -q begun two.out; do sleep 0.2; done; touch go; wait"
    )
    assert "\t2 tasks, 1 nodes (n" in ran
    assert ", 2 task(s): 0 1 \n" in ran
    written = [sorted((login.home / f"{name}.out").read_text().split()) for name in ("one", "two")]
    assert written == [["begun", "begun", "ended", "ended"], ["begun", "ended"]]
    for words, line in {
        f"{script}.batch": "no such step runs",
        "-l 7.0": "--label: not supported",
        "--input-filter 1 7.0": "--input-filter: not supported",
        "7": "which step?",
    }.items():
        assert line in login.run(f"sattach {words}").stderr
