"""What partitions and features of nodes say of a job when it is submitted or updated."""

from __future__ import annotations

import getpass
import grp
import os
from pathlib import Path
from typing import Any

import grpc
import pytest

from dlsched.core.errors import BadInput, NotAllowed
from dlsched.daemon.capacity import Capacity, Host
from dlsched.daemon.control.submission.job_validation import validate
from dlsched.daemon.loops.user_groups import groups_of
from dlsched.daemon.settings import Settings
from dlsched.daemon.tenants import Tenants, TenantsOfUser
from dlsched.rpc.v1 import control_pb2 as c

from .cluster_of_tests import Caller, Running, job
from .scripted_agent import ScriptedAgent
from .test_daily import play, reaches, refused
from .test_tenants import Operator

PARTITIONS: list[dict[str, Any]] = [
    {"name": "main", "default": True, "max_time_s": 7200, "default_time_s": 600,
     "cpus_per_gpu": 4, "memory_gb_per_gpu": 2},
    {"name": "lab", "accounts": ["robots"], "groups": ["staff"], "users": ["zoe"]},
    {"name": "free"},
]  # fmt: skip
SETTINGS = Settings.model_validate(
    {
        "partitions": PARTITIONS,
        "vcs": [{"name": "v"}],
        "nodes": [{"name": "n1", "gpus": 8, "gpu_type": "A100", "features": ["NVLink"]},
                  {"name": "n2", "gpus": 8, "gpu_type": "v100", "features": ["ib"]}],
    }
)  # fmt: skip
CAPACITY = Capacity(
    hosts={
        "n1": Host(name="n1", gpus=8, gpu_type="A100", features=frozenset({"a100", "nvlink"})),
        "n2": Host(name="n2", gpus=8, gpu_type="v100", features=frozenset({"v100", "ib"})),
    }
)


def admitted(user: str = "ann", groups: tuple[str, ...] = (), **wanted: Any) -> Any:
    whose = TenantsOfUser(Tenants(SETTINGS), user, groups=frozenset(groups))
    return validate(job(**wanted), {}, SETTINGS, CAPACITY, 1.8e9, whose).body


def test_times_processors_and_memory_are_those_of_the_partition() -> None:
    plain = admitted(gpus=2)
    assert (plain.partition, plain.time_limit_s) == ("main", 600.0)
    assert (plain.cpus, plain.memory_bytes) == (8, 4 * 10**9)
    spread = admitted(gpus=8, nodes=2)
    assert (spread.cpus, spread.memory_bytes) == (32, 8 * 10**9)  # memory is each node's
    said = admitted(gpus=2, cpus=3, memory_bytes=5, time_limit_s=7200)
    assert (said.cpus, said.memory_bytes, said.time_limit_s) == (3, 5, 7200.0)
    none = admitted(gpus=0, partition="main")
    assert (none.cpus, none.memory_bytes) == (None, None)
    free = admitted(partition="free")
    assert (free.cpus, free.memory_bytes, free.time_limit_s) == (None, None, None)
    with pytest.raises(BadInput, match="PartitionTimeLimit: time limit 2:00:01 is above partition"):
        admitted(time_limit_s=7201)


def test_a_partition_is_for_its_users_accounts_and_groups() -> None:
    said = "AccountNotAllowed: partition lab is for user zoe, account robots, group staff only"
    with pytest.raises(NotAllowed, match=said):
        admitted(partition="lab")
    assert admitted("zoe", partition="lab").partition == "lab"
    assert admitted(groups=("x", "staff"), partition="lab").partition == "lab"
    assert admitted(partition="lab,free").partition == "free"  # the first one that will do
    whose = TenantsOfUser(Tenants(SETTINGS), "root", operator=True)
    found = validate(job(partition="lab"), {}, SETTINGS, CAPACITY, 1.8e9, whose)
    assert found.body.partition == "lab"


def test_groups_are_those_of_unix() -> None:
    me = getpass.getuser()
    assert grp.getgrgid(os.getgid()).gr_name in groups_of(me)
    assert groups_of("no-such-user-here") == frozenset()


@pytest.mark.parametrize(
    ("wanted", "types", "constraint"),
    [
        ({"constraint": "a100|V100"}, ("A100", "v100"), ""),
        ({"constraint": "a100&nvlink"}, ("A100",), "a100&nvlink"),
        ({"constraint": "nvlink|ib"}, (), "nvlink|ib"),
        ({"constraint": "v100|a100", "gpu_types": ["v100"]}, ("v100",), ""),
    ],
)
def test_constraints_become_gpu_types_and_features(
    wanted: dict[str, Any], types: tuple[str, ...], constraint: str
) -> None:
    body = admitted(**wanted)
    assert (body.gpu_types, body.constraint) == (types, constraint)


@pytest.mark.parametrize(
    ("wanted", "said"),
    [
        ({"constraint": "nvlnk"}, "constraint: feature 'nvlnk' is not known; known: a100, ib, nvl"),
        ({"constraint": "a100&ib"}, "and the cluster has 0 of that kind"),
        ({"constraint": "a100", "gpu_types": ["v100"]}, "GPU types: nothing is both v100 and A100"),
        ({"constraint": "a100&("}, "a name is missing"),
        ({"constraint": "nvlink", "gpus": 9}, "needs 9 GPUs, and the cluster has 8 of that kind"),
    ],
)
def test_constraints_that_no_node_meets_are_refused(wanted: dict[str, Any], said: str) -> None:
    with pytest.raises(BadInput) as error:
        admitted(**wanted)
    assert said in str(error.value)


def test_jobs_go_where_features_are_and_updates_are_checked(tmp_path: Path) -> None:
    nodes = [
        {"name": "n1", "gpus": 4, "features": ["slow"]},
        {"name": "n2", "gpus": 4, "features": ["fast", "ib"]},
    ]

    async def scene(running: Running, caller: Caller, agent: ScriptedAgent) -> None:
        async with ScriptedAgent("n2", running.target, gpus=4):
            root = Operator(running)
            await root.set("account", name="robots")
            [fast] = await caller.submit(job(constraint="ib&fast"))
            assert list((await reaches(caller, fast, "RUNNING")).nodes) == ["n2"]
            [held] = await caller.submit(job(held=True))
            for fields, said in (
                ({"constraint": "slow&ib"}, "the cluster has 0 of that kind"),
                ({"partition": "lab"}, "AccountNotAllowed: partition lab is for"),
            ):
                asked = c.UpdateRequest(filter=c.Filter(jobs=[held]), fields=fields)
                [failed] = (await caller.control.Update(asked, timeout=60)).failed
                assert said in failed.why
            asked = c.UpdateRequest(filter=c.Filter(jobs=[held]), fields={"constraint": "none"})
            _, said = await refused(caller.control.Update(asked, timeout=60))
            assert "feature 'none' is not known; known: fast" in said
            asked = c.UpdateRequest(filter=c.Filter(jobs=[held]), fields={"constraint": "slow"})
            assert not (await caller.control.Update(asked, timeout=60)).failed
            await caller.act(c.ACTION_RELEASE, held)
            assert list((await reaches(caller, held, "RUNNING")).nodes) == ["n1"]
            code, said = await refused(caller.submit(job(partition="lab")))
            assert code is grpc.StatusCode.PERMISSION_DENIED
            await root.set("user", name="ann", accounts=["robots"])
            [inside] = await caller.submit(job(partition="lab", vc="robots", held=True))
            assert (await caller.show(inside)).job.partition == "lab"
            found = await caller.control.Nodes(c.NodesRequest(), timeout=60)
            assert {n.name: list(n.features) for n in found.nodes} == {
                "n1": ["slow"], "n2": ["fast", "ib"],
            }  # fmt: skip

    play(tmp_path, scene, nodes=nodes, partitions=PARTITIONS)
