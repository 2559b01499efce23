"""`sacctmgr` and `sreport` on a real cluster: what they list, change and add up."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from dlsched.torture.local_cluster import LocalCluster
from tests.live.login_node import LoginNode

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def login() -> Iterator[LoginNode]:
    """A user's shell on a cluster of one node of two GPUs."""
    with LocalCluster(nodes=1, gpus="2:v100") as running:
        yield LoginNode(running)


@pytest.fixture
def science(login: LoginNode) -> Iterator[LoginNode]:
    """The same with two accounts, one below the other, and a user of the lower one."""
    login.typed("sacctmgr -i add account science fairshare=50 Description='all of it'")
    login.typed("sacctmgr -i create account name=physics parent=science GrpTRES=gres/gpu=8")
    login.typed("sacctmgr -i add user adam account=physics GrpSubmit=20")
    yield login
    login.run("sacctmgr -i delete user adam,eve")
    login.typed("sacctmgr -i delete account science,physics")


def refused(login: LoginNode, line: str, code: int = 2) -> str:
    done = login.run(line)
    assert (done.returncode, done.stdout) == (code, ""), line
    assert done.stderr.count("\n") == 1
    return done.stderr


def test_tables_are_slurms(science: LoginNode) -> None:
    assert science.typed("sacctmgr list user").splitlines() == [
        "      User   Def Acct     Admin ",
        "---------- ---------- --------- ",
        "      adam    physics      None ",
    ]
    shown = science.typed("sacctmgr show assoc format=account%20,user,share,grptres,grpsubmit -P")
    assert shown.splitlines() == [
        "Account|User|Share|GrpTRES|GrpSubmit",
        "root||1||",
        "science||50||",
        "physics||1|gres/gpu=8|",
        "physics|adam|1||20",
    ]
    assert science.typed("sacctmgr -n -p list account physics") == "physics|physics|science|\n"
    assert science.typed("sacctmgr -nP list user withassoc where user=adam format=user,acc,q") == (
        "adam|physics|normal\n"
    )
    assert science.typed("sacctmgr -nP show qos format=Name,Priority,UsageFactor") == (
        "normal|0|1.000000\n"
    )
    assert "gres|gpu|1001" in science.typed("sacctmgr show tres -P")
    cluster = science.typed("sacctmgr -nP list cluster format=cluster")
    assert science.typed("sacctmgr -nP list assoc tree format=cluster,account").splitlines()[2] == (
        f"{cluster.strip()}|  physics"
    )
    titles = science.typed("sacctmgr show assoc").splitlines()[0]
    assert titles.startswith("   Cluster    Account       User  Partition     Share   Priority ")
    assert titles.endswith("                 QOS   Def QOS GrpTRESRunMin ")


def test_what_is_set_is_what_dlsched_has(science: LoginNode) -> None:
    assert "physics" in science.typed("dlsched admin account list")
    done = science.typed("sacctmgr -i modify user where name=adam set GrpSubmit=-1 MaxSubmit=3")
    assert done.splitlines() == [
        " Modified user associations...",
        "  C = cluster    A = physics              U = adam",
    ]
    assert "user adam" in " ".join(science.typed("dlsched admin quota list").split())
    science.typed("sacctmgr -i modify user where name=adam set MaxSubmit=-1")
    assert "adam" not in science.typed("dlsched admin quota list")
    science.typed("sacctmgr -i add user adam account=science")
    listed = "sacctmgr -nP list assoc user=adam format=account"
    assert science.typed(listed).split() == ["science", "physics"]
    science.typed("sacctmgr -i modify user adam set defaultaccount=science")
    assert science.typed("sacctmgr -nP list user adam") == "adam|science|None\n"
    assert "default account" in science.run("sacctmgr -i delete user adam account=science").stderr
    science.typed("sacctmgr -i delete user where name=adam account=physics")
    assert science.typed(listed).split() == ["science"]
    kept = science.run("sacctmgr -i delete account science").stderr
    assert "account science has user adam, account physics; nothing is deleted" in kept


def test_a_priority_class_is_a_qos(login: LoginNode) -> None:
    login.typed("sacctmgr -i add qos slow")
    login.typed("sacctmgr -i add qos fast Priority=10 MaxWall=1:00:00 MaxTRESPU=gres/gpu=2")
    login.typed("sacctmgr -i modify qos fast set preempt+=slow GraceTime=30")
    fields = "name,priority,preempt,gracetime,maxwall,maxtrespu"
    assert login.typed(f"sacctmgr -nP show qos fast format={fields}") == (
        "fast|10|slow|00:00:30|01:00:00|gres/gpu=2\n"
    )
    login.typed("sacctmgr -i modify qos fast set preempt-=slow")
    login.typed("sacctmgr -i delete qos fast,slow")
    assert login.typed("sacctmgr -nP show qos format=name") == "normal\n"


def test_without_i_it_asks(login: LoginNode) -> None:
    for answer, end in (("n", " Changes Discarded\n"), ("", " Changes Discarded\n"), ("y", "")):
        told = login.typed(f"echo {answer} | sacctmgr add account lab")
        assert told.startswith(" Adding Account(s)\n  lab\n Associations\n  A = lab        C = ")
        asked = "Would you like to commit changes? (You have 30 seconds to decide)\n(N/y): "
        assert told.endswith(asked + end)
    again = login.run("sacctmgr -i add account lab")
    assert (again.returncode, again.stdout) == (1, " Nothing new added.\n")
    login.typed("sacctmgr -i delete account lab")
    none = login.run("sacctmgr -i delete account lab")
    assert (none.returncode, none.stdout) == (1, " Nothing deleted\n")


def test_what_has_no_counterpart_is_refused_by_name(science: LoginNode) -> None:
    for line, words in {
        "list wckey": "wckey",
        "list user format=nothing": "'nothing' is not known",
        "-i modify account physics set MaxJobs=3": "MaxJobs: nothing here corresponds",
        "-i modify account physics set GrpTRES=cpu=3": "only gres/gpu=N is limited",
        "-i add user eve account=physics fairshare=3": "fairshare: nothing here corresponds",
        "-i add user eve account=fysics": "'fysics' is not known; known: ",
        "-i add user eve account=physics AdminLevel=Operator": "daemon's configuration",
        "dump cluster": "'dump': not supported",
        "--wat list user": "--wat",
    }.items():
        assert words in refused(science, f"sacctmgr {line}"), line
    assert "doesn't exist" in refused(science, "sacctmgr -i add account x cluster=other", 1)


def test_reports_add_up_to_what_dlsched_has_counted(science: LoginNode) -> None:
    jobs = [
        int(science.typed(f"sbatch --parsable -A {account} --gpus={gpus} --wrap 'sleep 2'"))
        for account, gpus in (("science", 2), ("physics", 1))
    ]
    for job in jobs:
        science.cluster.until(job, "COMPLETED")
    period = "start=now-1days end=now"
    (mine,) = json.loads(science.typed("dlsched usage --by-user --json"))["usage"]
    each = {
        account: science.cluster.job(job).gpu_s or 0
        for account, job in zip(("science", "physics"), jobs, strict=True)
    }
    line = f"sreport -nP -t seconds -T gres/gpu {{}} {period}"

    def of(report: str) -> list[list[str]]:
        return [row.split("|") for row in science.typed(line.format(report)).splitlines()]

    assert sum(each.values()) == pytest.approx(mine["gpu_s"], abs=0.01)
    (used,) = of("cluster utilization")
    assert float(used[2]) == pytest.approx(mine["gpu_s"], abs=0.6)
    assert int(used[2]) + int(used[5]) == pytest.approx(int(used[7]), abs=1)
    top = of("user top")
    assert [row[1] for row in top] == [mine["name"]] * 2
    assert {row[3]: float(row[-1]) for row in top} == pytest.approx(each, abs=0.6)
    assert of("cluster UserUtilizationByAccount") == top
    tree = {(row[1], row[2]): float(row[-1]) for row in of("cluster AccountUtilizationByUser")}
    assert tree["root", ""] == pytest.approx(mine["gpu_s"], abs=0.6)
    assert tree["science", ""] == pytest.approx(mine["gpu_s"], abs=0.6)
    assert tree["physics", mine["name"]] == pytest.approx(each["physics"], abs=0.6)
    assert [row[1] for row in of("job sizesbyaccount PrintJobCount")] == ["physics", "science"]
    sizes = of("job sizesbyaccount grouping=2")
    assert [row[2] == "0" for row in sizes] == [False, True]  # smaller than 2, or not
    shown = science.typed(f"sreport cluster utilization {period} -t hours").splitlines()
    assert shown[0] == "-" * 80
    assert shown[1].startswith("Cluster Utilization 20")
    assert shown[2] == "Usage reported in CPU Hours"
    assert shown[4] == (
        "  Cluster     Allocate         Down     PLND Dow         Idle      Planned     Reported "
    )
    assert of("user top end=now-2days start=now-3days") == []


def test_reports_that_are_not_there_are_refused_by_name(login: LoginNode) -> None:
    for line, words in {
        "reservation utilization": "'reservation': not supported; known: cluster, user, job",
        "cluster WCKeyUtilizationByUser": "'WCKeyUtilizationByUser': not supported",
        "-T mem user top": "'mem' is not known; known: cpu",
        "-t weeks user top": "'weeks' is not known",
        "user top start=now end=now-1hours": "is not before",
        "user top nothing=1": "'nothing' is not known",
        "": "which report?",
    }.items():
        assert words in refused(login, f"sreport {line}"), line
