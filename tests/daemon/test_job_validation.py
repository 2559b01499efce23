"""What job validation refuses: one line that names the limit, and nothing is left behind."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import pytest

from dlsched.core.errors import BadInput
from dlsched.daemon.capacity import Capacity, Host
from dlsched.daemon.control.submission.job_validation import checked_environment, validate
from dlsched.daemon.settings import Settings
from dlsched.jobs.sweep import Halving
from dlsched.rpc.v1 import control_pb2 as c

from .cluster_of_tests import job

NOW = 1_800_000_000.0
SETTINGS = Settings.model_validate(
    {
        "partitions": [
            {"name": "main", "default": True, "max_time_s": 3600.0},
            {"name": "cpu", "default_gpus": 0},
        ],
        "vcs": [{"name": "research", "gpus": 8}],
    }
)
CAPACITY = Capacity(
    hosts={
        name: Host(
            name=name,
            gpus=8,
            gpu_type=kind,
            has={"cpus": 64, "memory_gb": 512 << 30},
            partitions=("main", "cpu"),
        )
        for name, kind in (("n1", "v100"), ("n2", "v100"), ("n3", "A100"))
    }
)


def admitted(wanted: c.JobRequest, *common: c.EnvironmentVariable) -> Any:
    most = SETTINGS.limits.environment_bytes
    return validate(wanted, checked_environment({}, common, most), SETTINGS, CAPACITY, NOW)


def of_types(text: str, nodes: int = 1, **more: Any) -> dict[str, Any]:
    """The fields of a job that wants so many GPUs of each type on every node."""
    each = sum(int(entry.partition(":")[2]) for entry in text.split(","))
    return {"gpus_by_type": text, "gpus_per_node": each, "nodes": nodes, **more}


REFUSED = [
    ("a share of no gpus", {"gpus": 0, "share": 0.5}, "gpus: 0, so it can have no whole nodes"),
    ("leftovers of no gpus", {"gpus": 0, "guarantee": 2}, "opportunistic, and the job has no GPUs"),
    ("leftovers and a part", {"guarantee": 2, "share": 0.5}, "so --share cannot be kept"),
    ("leftovers of many", {"guarantee": 3, "max_gpus": 4}, "auto, so --max-gpus cannot be kept"),
    ("a type of no gpus", {"gpus": 0, "gpu_types": ["a100"]}, "and no type of GPUs"),
    ("cpus", {"gpus": 8, "cpus": 800}, "node n1 has 64 CPUs, 100 are asked for"),
    ("cpus of a node", {"gpus": 0, "cpus": 65}, "node n1 has 64 CPUs, 65 are asked for"),
    ("cpus of nodes", {"nodes": 2, "gpus": 2, "cpus": 130}, "64 CPUs, 65 are asked for on each"),
    ("cpus in all", {"gpus": 24, "cpus": 240}, "the processors of the cluster suffice for 18"),
    ("memory", {"gpus": 1, "memory_bytes": 1 << 40}, "node n1 has 512G of memory, 1T is"),
    ("negative", {"gpus": -3}, "gpus: -3 is not within"),
    ("too many", {"gpus": 25}, "needs 25 GPUs, and the cluster has 24 of that kind"),
    ("too many of a type", {"gpus": 9, "gpu_types": ["a100"]}, "the cluster has 8 of that kind"),
    ("one node too big", {"nodes": 1, "gpus_per_node": 9}, "the largest with 8"),
    ("too many nodes", {"nodes": 4, "gpus_per_node": 1}, "needs 4 nodes"),
    ("contradiction", {"nodes": 2, "gpus": 9, "gpus_per_node": 4}, "are not 9 GPUs"),
    ("unknown type", {"gpu_types": ["k80"]}, "GPU type 'k80' is not known; known: A100, v100"),
    ("unknown partition", {"partition": "x"}, "partition 'x' is not known; known: main, cpu"),
    ("unknown vc", {"vc": "x"}, "vc 'x' is not known; known: research"),
    ("unknown node", {"only_nodes": ["n9"]}, "node 'n9' is not known"),
    ("too long", {"time_limit_s": 7200.0}, "above partition main's, 1:00:00"),
    ("not a number", {"time_limit_s": math.nan}, "time limit: nan is not within"),
    ("least of no limit", {"time_min_s": 60.0}, "least time limit: needs a time limit"),
    ("least too large", {"time_limit_s": 9.0, "time_min_s": 60.0}, "that is not below it"),
    ("least above the partition", {"time_limit_s": 9e6, "time_min_s": 4e6}, "above partition main"),
    ("infinite", {"priority": math.inf}, "priority: inf is not within"),
    ("min over max", {"min_gpus": 4, "max_gpus": 2}, "more than max gpus"),
    ("fewer than min", {"gpus": 1, "min_gpus": 2}, "gpus: 1 is fewer than min gpus, 2"),
    ("more than max", {"gpus": 5, "max_gpus": 4}, "gpus: 5 is more than max gpus, 4"),
    ("min nowhere", {"min_gpus": 25}, "needs 25 GPUs, and the cluster has 24"),
    ("elastic by node", {"adaptive": True, "nodes": 2}, "an elastic job: its GPUs lie wherever"),
    ("elastic share", {"fixed_batch": True, "share": 0.5}, "cannot have a share"),
    ("elastic whole nodes", {"max_gpus": 4, "exclusive": True}, "cannot have whole nodes"),
    ("elastic and once", {"max_gpus": 4, "no_requeue": True}, "which no-requeue forbids"),
    ("escape codes", {"name": "a\x1b[31m"}, r"name: has the character \x1b"),
    ("new line", {"name": "a\nb"}, r"name: has the character \n"),
    ("reversed text", {"name": "a\u202eb"}, r"name: has the character \u202e"),
    ("long name", {"name": "x" * 2000}, "name: longer than 1024 bytes"),
    ("share", {"share": 1.5}, "share: 1.5 is not within 0 and 1"),
    ("tiny share", {"share": 0.049}, "share: 0.049 is less than 0.05: at most 20 jobs on one GPU"),
    ("past deadline", {"deadline_at": 5.0}, "it has passed already"),
    ("far begin", {"begin_at": 1e12}, "begin: 1e+12 is not within"),
    ("script without #!", {"script": b"echo"}, "does not begin with #!"),
    ("huge script", {"script": b"#!" + b"x" * (5 << 20)}, "script bytes"),
    ("array", {"array": "5-1"}, "'5-1' holds no task"),
    ("array grammar", {"array": "1,,2"}, "is not a set of tasks (0-9%2, 1,3 or 0-15:4)"),
    ("huge array", {"array": "0-999999999"}, "is out of bounds (0 to 4000000)"),
    ("large array", {"array": "0-10000"}, "more than 10000 elements"),
    ("types of no node", of_types("a100:2,v100:2"), "v100; n[1-2] have 8 v100; n3 has 8 a100"),
    ("types, many nodes", of_types("v100:1,x:1", 2), "needs 2 nodes with 1 v100 and 1 x; n[1-2]"),
    ("unknown types", of_types("x:1,y:1"), "no node has 1 x and 1 y; no node has any x or y"),
    ("types of all GPUs", {"gpus_by_type": "a100:1,v100:1", "gpus": 2}, "the GPUs of each node"),
    ("other types", of_types("a100:1,v100:1", gpu_types=["v100"]), "all GPUs are to be v100"),
    ("types of leftovers", of_types("a100:1,v100:1", guarantee=2), "no GPUs by type can be kept"),
    *(
        (f"types {text!r}", {"gpus_by_type": text, "gpus_per_node": 2}, "TYPE:N,TYPE:N (a100:2,v10")
        for text in ("a100:2", "a100,v100", "a100:1,v100:0", ":1,v100:1", "a100:1;v100:1", ",")
    ),
    ("column", {"extra": {"a b": "c"}}, "column 'a b' is not a name"),
]


def swept(*rows: str, columns: tuple[str, ...] = ("lr",), **rule: Any) -> dict[str, Any]:
    """The fields of a job with a sweep; the cells of a row stand between blanks."""
    halving = c.Halving(**({"metric": "loss", "mode": "min", "eta": 3, "rung": 9} | rule))
    table = c.SweepTable(columns=columns, rows=[c.SweepRow(values=row.split()) for row in rows])
    if rule:
        table.halving.CopyFrom(halving)
    return {"sweep": table, "array": f"1-{len(rows)}"}


REFUSED += [
    ("sweep alone", {"sweep": c.SweepTable(columns=["lr"])}, "sweep: 0 rows for 0 tasks"),
    ("other tasks", swept("1", "2") | {"array": "1"}, "sweep: 2 rows for 1 task"),
    ("own variable", swept("1", columns=("RANK",)), "'RANK' is a variable that the job has"),
    ("same column", swept("1 2", columns=("a", "a")), "column 'a' stands there twice"),
    ("short row", swept("1", "1 2"), "sweep: row 2 has 2 of 1 values"),
    ("escape code in a row", swept("\x1b"), "sweep: row 1, column lr: has the character"),
    ("long cell", swept("x" * 5000), "sweep: row 1, column lr: longer than 4096 bytes"),
    ("huge table", swept(*["x" * 4096] * 1025), "bytes of the sweep's values: 4198400, at most"),
    ("no such column", swept("1") | {"name": "{wd}"}, "{wd} is no column; columns: lr"),
    ("eta", swept("1", eta=1), "halving: eta: 1 is not within 2 and 1000"),
    ("rung", swept("1", rung=0), "halving: rung: 0 is not within 1"),
    ("last rung", swept("1", most=5), "halving: max: 5 is not within 9"),
    ("mode", swept("1", mode="up"), "halving: a metric and a mode, min or max, are needed"),
]


@pytest.mark.parametrize(
    ("fields", "gang"),
    [
        ({}, (1,)),
        ({"partition": "cpu"}, (0,)),
        ({"partition": "cpu", "nodes": 2}, (0, 0)),
        ({"partition": "cpu", "gpus": 1}, (1,)),
        ({"partition": "cpu", "exclusive": True}, (1,)),
        ({"gpus": 0}, (0,)),
        ({"gpus": 0, "nodes": 3}, (0, 0, 0)),
    ],
)
def test_a_job_has_no_gpus_where_it_or_its_partition_says_so(
    fields: dict[str, Any], gang: tuple[int, ...]
) -> None:
    assert admitted(job(**fields)).request.gang == gang


def test_of_several_partitions_the_first_that_could_run_the_job_is_taken() -> None:
    assert admitted(job(partition="main,cpu")).body.partition == "main"
    found = admitted(job(partition="main,cpu", time_limit_s=7200.0))  # main gives an hour
    assert (found.body.partition, found.request.gang) == ("cpu", (0,))
    with pytest.raises(BadInput, match="partition 'x' is not known"):
        admitted(job(partition="main,x"))
    with pytest.raises(BadInput, match="needs 99 GPUs"):
        admitted(job(partition="main,cpu", gpus=99))


def test_a_sweep_is_kept_with_its_array() -> None:
    found = admitted(job("a", "{lr}", **swept("0.1", "0.2", rung=50)))
    assert found.array.tasks == (1, 2)
    assert found.array.sweep.of(1) == {"lr": "0.2"}
    assert found.array.sweep.halving == Halving(rung=50)


@pytest.mark.parametrize(
    ("fields", "said"), [case[1:] for case in REFUSED], ids=[case[0] for case in REFUSED]
)
def test_what_validation_refuses(fields: dict[str, Any], said: str) -> None:
    with pytest.raises(BadInput) as error:
        admitted(job(**fields))
    assert said in str(error.value)
    assert "\n" not in str(error.value)


def test_a_command_is_needed_and_no_nul_in_it() -> None:
    with pytest.raises(BadInput, match="neither a script nor a command"):
        admitted(c.JobRequest(name="x"))
    with pytest.raises(BadInput, match="NUL"):
        admitted(job("a\0b"))


def test_own_variables_win_over_the_calls() -> None:
    wanted = job(environment=[c.EnvironmentVariable(name="A", value="own")])
    common = [c.EnvironmentVariable(name=n, value="all") for n in ("A", "B")]
    assert admitted(wanted, *common).content.environment == {"A": "own", "B": "all"}


def test_a_job_that_waits_for_a_larger_cluster_is_accepted() -> None:
    assert admitted(job(gpus=99, open_ended=True)).body.gpus == 99


def test_shapes() -> None:
    assert admitted(job(nodes=2, gpus_per_node=4)).body.gang == (4, 4)
    assert admitted(job(nodes=2, gpus=5)).body.gang == (3, 2)
    assert admitted(job(gpus=8, gpus_per_node=4)).body.gang == (4, 4)
    assert admitted(job(gpus=8)).body.gang is None
    assert admitted(job(gpu_types=["V100"])).body.gpu_types == ("v100",)


def test_a_cluster_without_partitions_says_so() -> None:
    wanted = job(partition="main")
    with pytest.raises(BadInput, match="partition 'main': this cluster has no partitions"):
        validate(wanted, {}, Settings(), CAPACITY, NOW)


def test_the_partitions_limit_is_the_default() -> None:
    asked = admitted(job())
    assert (asked.body.partition, asked.request.limits.time_s) == ("main", 3600.0)


@pytest.mark.parametrize(
    ("fields", "sizes"),
    [
        ({"gpus": 4}, (4, None, None)),
        ({"gpus": 4, "max_gpus": 8}, (4, None, 8)),
        ({"min_gpus": 2, "max_gpus": 8}, (2, 2, 8)),
        ({"adaptive": True}, (1, 1, None)),
        ({"adaptive": True, "gpus": 4}, (4, 1, None)),
        ({"adaptive": True, "min_gpus": 2}, (2, 2, None)),
        ({"fixed_batch": True, "max_gpus": 30}, (1, 1, 30)),
    ],
)
def test_the_sizes_of_elastic_jobs(fields: dict[str, Any], sizes: tuple[Any, ...]) -> None:
    body = admitted(c.JobRequest(script=b"#!/bin/sh\n", **fields)).body
    assert (body.gpus, body.min_gpus, body.max_gpus) == sizes


def test_a_limit_is_lowered_to_the_longest_of_the_partition_where_the_job_allows_it() -> None:
    found = admitted(job(time_limit_s=7200.0, time_min_s=1800.0))
    assert found.body.time_limit_s == 3600.0
    assert found.request.limits.time_s == 3600.0


MIXED = Host(name="n4", gpus=6, gpu_types={"k80": 2, "v100": 4}, partitions=("main", "cpu"))
WITH_MIXED = Capacity(hosts={**CAPACITY.hosts, "n4": MIXED})


@pytest.mark.parametrize(
    ("fields", "kept"),
    [
        ({"gpus": 2, "gpu_types": ["K80"]}, ("k80:2", None)),
        ({"gpus_per_node": 1, "gpu_types": ["k80"]}, ("k80:1", (1,))),
        ({"gpu_types": ["k80"]}, ("k80:1", None)),
        ({"gpus": 2, "constraint": "k80"}, ("k80:2", None)),
        ({"gpus": 2, "gpu_types": ["k80"], "constraint": "K80"}, ("k80:2", None)),
        ({"gpus": 3, "gpu_types": ["v100"], "only_nodes": ["n4"]}, ("v100:3", None)),
        ({"gpus": 3, "gpu_types": ["v100"], "not_nodes": ["n1", "n2"]}, ("v100:3", None)),
    ],
)
def test_a_type_that_only_nodes_of_several_have_is_a_layout(
    fields: dict[str, Any], kept: tuple[str, tuple[int, ...] | None]
) -> None:
    body = validate(job(**fields), {}, SETTINGS, WITH_MIXED, NOW).body
    assert (body.gpus_by_type, body.gang) == kept
    assert (body.gpu_types, body.constraint) == ((), "")


@pytest.mark.parametrize(
    ("fields", "why"),
    [
        ({"gpus": 3}, "no node has 3 k80; n4 has 2 k80"),
        ({"gpus": 2, "nodes": 2}, "needs 2 nodes with 1 k80; n4 has 2 k80"),
        ({"gpus": 3, "nodes": 2}, "a job gets as many of it on each: not 3 on 2"),
        ({"gpus": 0}, "gpus: 0, so it can have no type of GPUs"),
        ({"share": 0.5}, "only nodes with several types have it (n4), so --share cannot be kept"),
        ({"max_gpus": 2}, "so --max-gpus cannot be kept"),
        ({"guarantee": 2}, "so --guarantee cannot be kept"),
    ],
)
def test_what_nodes_of_several_types_cannot_give_is_refused(
    fields: dict[str, Any], why: str
) -> None:
    with pytest.raises(BadInput) as refused:
        validate(job(**fields, gpu_types=["k80"]), {}, SETTINGS, WITH_MIXED, NOW)
    assert why in str(refused.value)


def test_a_type_that_other_nodes_have_alone_stays_a_type() -> None:
    wanted = job(gpus=2, gpu_types=["v100"])
    for capacity in (CAPACITY, WITH_MIXED):
        body = validate(wanted, {}, SETTINGS, capacity, NOW).body
        assert (body.gpu_types, body.gpus_by_type, body.gang) == (("v100",), "", None)


def test_types_of_gpus_are_kept_in_one_spelling_where_a_node_has_them() -> None:
    mixed = Host(name="n4", gpus=6, gpu_types={"a100": 2, "v100": 4}, partitions=("main", "cpu"))
    silent = Host(name="n5", gpus=6, partitions=("main", "cpu"))  # has not registered yet
    for host in (mixed, silent):
        capacity = Capacity(hosts={**CAPACITY.hosts, host.name: host})
        wanted = job(**of_types("V100:1,a100:2,v100:2"))
        body = validate(wanted, {}, SETTINGS, capacity, NOW).body
        assert (body.gpus_by_type, body.gang) == ("a100:2,v100:3", (5,))
    capacity = Capacity(hosts={"n4": mixed, "n3": CAPACITY.hosts["n3"]})
    with pytest.raises(BadInput, match="3 a100 and 1 v100; n4 has 2 a100 and 4 v100; n3 has 8 a1"):
        validate(job(**of_types("a100:3,v100:1")), {}, SETTINGS, capacity, NOW)
    many = {
        name: replace(mixed, name=name, gpu_types={"a100": k}) for k, name in enumerate("abcdef", 1)
    }
    told = "a has 1 a100; b has 2 a100; c has 3 a100; d has 4 a100; 2 others have other numbers of"
    with pytest.raises(BadInput, match=told):
        validate(job(**of_types("a100:1,v100:1")), {}, SETTINGS, Capacity(hosts=many), NOW)
    held = validate(job(**of_types("x:1,y:1"), open_ended=True), {}, SETTINGS, CAPACITY, NOW).body
    assert held.gpus_by_type == "x:1,y:1"
