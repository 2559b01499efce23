"""A site's rules, typed as users and operators type them, on real daemons and agents."""

from __future__ import annotations

import getpass
import json
import os
from collections.abc import Iterator

import pytest

from dlsched.torture.local_cluster import LocalCluster, eventually
from tests.live.login_node import LoginNode
from tests.live.site.test_priorities import as_user

pytestmark = pytest.mark.slow
ME = getpass.getuser()
CLASSES = [
    {"name": "urgent", "priority": 10, "preempts": ["idle"], "max_time_s": 3600},
    {"name": "idle", "grace_s": 5, "gpus_per_user": 2},
]

PARTITIONS = [
    {"name": "main", "default": True},
    {"name": "short", "max_time_s": 600, "default_time_s": 60, "cpus_per_gpu": 1},
    {"name": "lab", "users": ["zoe"], "groups": ["no-such-group"]},
]
FEATURES = {1: ["ib"], 2: ["ib", "nvlink"]}


@pytest.fixture(scope="module")
def site() -> Iterator[LoginNode]:
    """A user's shell on a cluster of two nodes of two GPUs with rules of its own."""
    tables = {
        "classes": CLASSES,
        "fair_share": {"half_life_s": 3600},
        "partitions": PARTITIONS,
        "nodes": [{"name": f"n{k}", "gpus": 2, "features": f} for k, f in FEATURES.items()],
    }
    with LocalCluster(
        nodes=2, gpus="2:v100", round={"policy": "multifactor"}, tables=tables
    ) as running:
        yield LoginNode(running)


def submitted(site: LoginNode, options: str, run: str = "sleep 600") -> int:
    return int(site.typed(f"dlsched submit --parsable {options} --wrap '{run}'"))


def refused(site: LoginNode, line: str, code: int = 1) -> str:
    done = site.run(line)
    assert (done.returncode, done.stdout) == (code, ""), line
    return done.stderr.strip()


def cancel(site: LoginNode, *jobs: int) -> None:
    for job in jobs:
        site.run(f"dlsched cancel {job}")
        site.cluster.until(job, "CANCELLED", "COMPLETED", "FAILED")


def test_an_unknown_class_is_refused_and_the_known_ones_are_listed(site: LoginNode) -> None:
    said = "InvalidQOS: priority class 'hihg' is not known; known: normal, urgent, idle"
    assert refused(site, "dlsched submit -q hihg -- true") == f"dlsched: {said}"
    assert said in refused(site, "sbatch --qos=hihg --wrap true")
    assert "QOSMaxWallDurationPerJobLimit" in refused(site, "sbatch -q urgent -t 2:00:00 --wrap x")
    script = site.home / "normal.sh"
    script.write_text("#!/bin/bash\n#SBATCH --qos=normal\ntrue\n")
    job = int(site.typed("sbatch --parsable normal.sh"))
    site.cluster.until(job, "COMPLETED")


def test_a_class_preempts_another_within_a_round(site: LoginNode) -> None:
    idle = submitted(site, "-q idle -G 2 -N 1")
    rest = submitted(site, "-q normal -G 2 -N 1")
    for job in (idle, rest):
        site.cluster.until(job, "RUNNING")
    urgent = submitted(site, "-q urgent -G 1", "sleep 1")
    site.cluster.until(urgent, "RUNNING", "COMPLETED")
    assert site.cluster.job(idle).preemptions == 1
    assert site.cluster.job(rest).preemptions == 0
    site.cluster.until(urgent, "COMPLETED")
    site.cluster.until(idle, "RUNNING")  # it comes back
    cancel(site, idle, rest)


def test_order_and_shares_are_shown_term_by_term(site: LoginNode) -> None:
    full = submitted(site, "-q urgent -G 4")
    site.cluster.until(full, "RUNNING")
    low, high = submitted(site, "-q idle -G 2 --nice 7"), submitted(site, "-q urgent -G 1 -N 1")

    def placed() -> bool:
        found = [site.cluster.job(job).position for job in (high, low)]
        return found == [1, 2]

    eventually("both have a place", placed)
    shown = site.typed(f"dlsched show {low} --why-order")
    for word in ("age", "fair share", "size", "class", "nice", "total"):
        assert f"  {word} " in shown
    (found,) = json.loads(site.typed(f"dlsched show {high} --why-order --json"))["jobs"]
    assert found["order_numbers"]["class"] == "10000.0"

    first, second = site.typed(f'sprio -h -j {low},{high} -o "%i %Q %N %n"').splitlines()
    assert (first.split(), second.split()) == (
        [str(high), "10000", "0", "urgent"],
        [str(low), "0", "7", "idle"],
    )
    assert site.typed("sprio").split()[:3] == ["JOBID", "PARTITION", "PRIORITY"]
    tree = json.loads(site.typed("dlsched usage --shares --json"))
    assert (tree["level"], tree["half_life_s"]) == ("user", 3600)  # there are no accounts
    (mine,) = tree["shares"]
    assert (mine["kind"], mine["name"], mine["share"]) == ("user", ME, 1.0)
    assert 0 < mine["factor"] < 1
    assert f"user {ME}" in site.typed("dlsched usage --shares")
    titles, row = site.typed("sshare -P -o User,NormShares,FairShare").splitlines()
    assert (titles, row.split("|")[:2]) == ("User|NormShares|FairShare", [ME, "1.000000"])
    assert "known" in refused(site, "sshare -o nothing", 2)
    assert "alone" in refused(site, "dlsched usage --shares --by-user", 2)
    cancel(site, full, low, high)


def test_classes_are_made_and_removed_by_operators(site: LoginNode) -> None:
    told = site.typed("dlsched admin class add paid --priority 2.5 --preempts idle --grace 2m")
    assert told == "class paid: added, priority 2.5, preempts idle, grace_s 120, is_default no\n"
    assert "class paid: gpus none -> 3" in site.typed("dlsched admin class set paid --gpus 3")
    listed = json.loads(site.typed("dlsched admin class list --json"))["tenants"]
    paid = next(each for each in listed if each["name"] == "paid")
    assert (paid["gpus"], paid["preempts"], paid["source"]) == (3, ["idle"], "operator")
    assert "QOSGrpGRES" in refused(site, "dlsched submit -q paid -G 4 -- true")
    assert "--priority" in refused(site, "dlsched admin class set paid --priority x", 2)
    site.typed("dlsched admin class remove paid")
    assert "paid" in refused(site, "dlsched submit -q paid -- true")


def test_partitions_limit_times_and_users(site: LoginNode) -> None:
    done = as_user(site.cluster, "submit", "-p", "lab", "--", "true")
    said = "AccountNotAllowed: partition lab is for user zoe, group no-such-group only"
    assert done == (1, "", f"dlsched: {said}\n")
    assert "PartitionTimeLimit" in refused(site, "sbatch -p short -t 1:00:00 --wrap true")
    job = submitted(site, "-p lab,short -G 2 -N 1 --hold")  # an operator may
    assert site.cluster.job(job).partition == "lab"
    plain = int(site.typed("sbatch --parsable -p short --gpus=2 --hold --wrap true"))
    shown = site.typed(f"scontrol show job {plain}")
    assert "TimeLimit=00:01:00" in shown
    (found,) = json.loads(site.typed(f"dlsched show {plain} --json"))["jobs"]
    assert (found["time_limit_s"], found["cpus"]) == (60, 2)
    told = site.typed("scontrol show partition short")
    assert "DefaultTime=00:01:00 " in told
    assert "MaxTime=00:10:00 " in told
    assert "AllowGroups=no-such-group" in site.typed("scontrol show partition lab")
    cancel(site, job, plain)


def _lists_of_short(site: LoginNode, **lists: list[str]) -> None:
    """Other lists of partition `short`, as an operator writes and reloads them."""
    changed = [p | lists if p["name"] == "short" else p for p in PARTITIONS]
    site.cluster.sections["partitions"] = changed
    site.cluster.write_config()


def _waits_outside(site: LoginNode, job: int) -> None:
    said = "AccountNotAllowed: partition short is for "
    eventually("it waits", lambda: (site.cluster.job(job).reason or "").startswith(said))
    assert site.typed(f'squeue -h -j {job} -o "%T %R"').strip() == "PENDING (AccountNotAllowed)"


@pytest.mark.skipif(os.geteuid() != 0, reason="only root runs jobs of other users")
def test_a_waiting_job_follows_the_lists_of_its_partition(site: LoginNode) -> None:
    words = ("submit", "--parsable", "-p", "short", "-G", "1", "-D", "/", "-o", "/dev/null")
    code, out, error = as_user(site.cluster, *words, "--", "sleep", "600")
    assert code == 0, error
    runs = int(out)
    site.cluster.until(runs, "RUNNING")
    job = int(as_user(site.cluster, *words, "--hold", "--", "sleep", "600")[1])
    _lists_of_short(site, users=["zoe"])
    assert "partitions" in site.typed("dlsched admin reload")
    site.typed(f"scontrol release {job}")
    _waits_outside(site, job)
    moved = site.run(f"dlsched update {job} -p lab")
    assert (moved.returncode, f"job {job}: AccountNotAllowed" in moved.stderr) == (1, True)
    site.cluster.kill("daemon")
    _lists_of_short(site, groups=["no-such-group"])
    site.cluster.start_daemon()
    site.cluster.wait_until_up()
    _waits_outside(site, job)
    assert site.cluster.job(runs).state == "RUNNING"  # what runs goes on
    _lists_of_short(site)
    site.typed("dlsched admin reload")
    site.cluster.until(job, "RUNNING")
    cancel(site, job, runs)


def test_constraints_choose_nodes_by_features(site: LoginNode) -> None:
    script = site.home / "constraint.sh"
    script.write_text('#!/bin/bash\n#SBATCH -C "v100&nvlink"\n#SBATCH --gpus=1\nsleep 600\n')
    job = int(site.typed("sbatch --parsable constraint.sh"))
    assert site.cluster.until(job, "RUNNING").nodes == ("n2",)
    assert site.typed(f'squeue -h -j {job} -o "%f"').strip() == "nvlink&v100"
    assert "feature 'nvlnk' is not known; known: ib, nvlink, v100" in refused(
        site, "sbatch -C nvlnk --wrap true"
    )
    assert "a name is missing" in refused(site, "dlsched submit -C 'ib&' -- true", 2)
    assert site.typed('sinfo -h -N -p main -o "%N %f"').splitlines() == [
        "n1 v100,ib", "n2 v100,ib,nvlink",
    ]  # fmt: skip
    assert "AvailableFeatures=v100,ib,nvlink" in site.typed("scontrol show node n2")
    cancel(site, job)


def test_reservations_keep_nodes_for_users_and_maintenance(site: LoginNode) -> None:
    told = site.typed(
        "dlsched reserve create course -w n1 --start now+1hour --duration 2h -u zoe --reason talk"
    )
    assert told.startswith("reservation course: added, nodes n1, start_at ")
    long, short = submitted(site, "-w n1 -G 1 -t 2h"), submitted(site, "-w n1 -G 1 -t 30")
    site.cluster.until(short, "RUNNING")
    eventually("it is told", lambda: "ReqNodeNotAvail" in (site.cluster.job(long).reason or ""))
    assert site.typed(f'squeue -h -j {long} -o "%R"').strip() == "(ReqNodeNotAvail)"
    shown = site.typed(f"dlsched show {long}")
    assert "n1: reserved (course) in" in shown
    mine = int(site.typed("sbatch --parsable --reservation=course -t 10 --gpus=1 --wrap true"))
    eventually("it waits", lambda: "Reservation" in (site.cluster.job(mine).reason or ""))
    (found,) = json.loads(site.typed("dlsched reserve list --json"))["reservations"]
    assert (found["name"], found["state"], found["users"], found["jobs_now"]) == (
        "course", "planned", ["zoe"], 1,
    )  # fmt: skip
    done = as_user(site.cluster, "submit", "--reservation", "course", "-t", "1", "--", "true")
    assert done == (1, "", "dlsched: Reservation: course is for user zoe only\n")
    done = as_user(site.cluster, "reserve", "create", "x", "-w", "n2", "-d", "1h")
    assert done[0] == 1
    assert "operator" in done[2]
    assert f"job {mine} is in it" in refused(site, "dlsched reserve delete course")
    cancel(site, mine, long)
    assert site.typed("dlsched admin reserve delete course") == "reservation course: removed\n"

    made = "scontrol create reservation ReservationName=fix StartTime=now Duration=60"
    assert f"job {short} may run into it" in refused(site, f"{made} Nodes=n1 Flags=MAINT")
    told = site.typed(f"{made} Nodes=n1 Flags=MAINT,IGNORE_JOBS")
    assert told == "Reservation created: fix\n"
    assert site.cluster.job(short).state == "RUNNING"  # it runs on, nothing else starts
    late = submitted(site, "-w n1 -G 1 -t 5")
    eventually("it is told", lambda: "maintenance (fix)" in (site.cluster.job(late).reason or ""))
    cancel(site, late)
    assert site.cluster.job(short).state == "RUNNING"
    site.typed("scontrol delete ReservationName=fix")
    assert site.typed(f"{made} Nodes=n2 Flags=MAINT") == "Reservation created: fix\n"
    assert "Nodes=n2 Flags=MAINT,SPEC_NODES" in site.typed("scontrol show reservation fix")
    assert site.typed('sinfo -h -N -n n2 -p main -o "%T"').strip() == "maint"
    assert "maint" in site.typed("dlsched nodes")
    waits = submitted(site, "-w n2 -G 1 -t 5")
    eventually("it is told", lambda: "maintenance (fix)" in (site.cluster.job(waits).reason or ""))
    site.typed("scontrol delete ReservationName=fix")
    site.cluster.until(waits, "RUNNING")
    assert "No reservations" in site.typed("scontrol show reservation")
    assert "--duration or --end" in refused(site, "dlsched reserve create x -w n1", 2)
    assert "not a host list" in refused(site, "dlsched reserve create x -w 'n]1[' -d 1", 2)
    cancel(site, short, waits)
