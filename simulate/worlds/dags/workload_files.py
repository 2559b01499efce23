"""Files of workloads, TOML or JSON.

    [capacity]
    gpu = 8
    cpu = 64

    [[jobs]]
    id = "tune"
    arrival = 0
    stages = [
      {name = "prepare", tasks = 4, duration = 600, demand = {cpu = 8}},
      {name = "train", duration = 3600, demand = {gpu = 8, cpu = 32}, after = ["prepare"]},
    ]

Times are in seconds. A stage without `tasks` is one task, a job without `arrival` comes at 0.
Files of the published layout are read too: `capacity_per_dim` for each resource, demands as lists,
and `edges` of a job, pairs of stages. A file may hold several workloads, as a list or as
`workloads`, each with a `name`. Numbers are taken exactly as they are written.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any

from dlsched.core.documents import named_tables, names_listed, table, whole_number
from dlsched.core.errors import BadInput, not_known, shorten
from dlsched.core.graphs import in_order
from dlsched.policies.scheduling.carbyne.stages import Graph, Number, Stage
from simulate.document_files import read_document
from simulate.worlds.dags.workload import Dag, Workload

MOST_TASKS = 1_000_000
LARGEST = 1e15
MOST_DIGITS = 40
_WORKLOAD = ("name", "capacity", "capacity_per_dim", "jobs", "expected")
_JOB = ("id", "arrival", "stages", "edges")
_STAGE = ("name", "tasks", "duration", "demand", "after")


def read_workload(path: Path, name: str | None = None) -> Workload:
    """Read a file.

    Args:
        path: of it.
        name: of the workload; None: the only one of the file.

    Raises:
        BadInput: one line with the file and the place in it.
    """
    document = read_document(path, number=_exact)
    where, listed = str(path), document
    if isinstance(document, dict) and "workloads" in document:
        listed = table(where, document, ("workloads",))["workloads"]
    if isinstance(listed, list):
        where, document = _chosen(where, listed, name)
    elif name is not None:
        raise BadInput(f"--workload {shorten(name)}: {path} has one workload; leave the name out")
    return _workload(where, document)


def _exact(text: str) -> Fraction:
    """A number as it is written; none that would need thousands of digits."""
    value = abs(float(text))
    if len(text) > MOST_DIGITS or not (value == 0 or 1 / LARGEST <= value <= LARGEST):
        raise ValueError(f"{shorten(text)} has too many digits")
    return Fraction(text)


def _chosen(where: str, listed: list[Any], name: str | None) -> tuple[str, dict[str, Any]]:
    workloads = named_tables(where, "workload", listed, _WORKLOAD, most=MOST_TASKS)
    if name is None and len(workloads) > 1:
        raise BadInput(f"{where}: has {len(workloads)} workloads; choose one by --workload NAME")
    name = next(iter(workloads)) if name is None else name
    if name not in workloads:
        raise not_known(f"{where}: workload", name, workloads)
    return workloads[name]


def _workload(where: str, said: Any) -> Workload:
    listed = table(where, said, _WORKLOAD).get("jobs")
    described = named_tables(where, "job", listed, _JOB, name="id", most=MOST_TASKS)
    resources, capacity = _capacity(where, said)
    jobs: list[Dag] = []
    tasks = 0
    for name, (place, each) in described.items():
        graph = _graph(place, each, resources, capacity)
        tasks += sum(stage.tasks for stage in graph.stages)
        if tasks > MOST_TASKS:
            raise BadInput(f"{place}: more than {MOST_TASKS:,} tasks in one workload")
        arrival = _number(place, "arrival", each.get("arrival", 0), least=0)
        jobs.append(Dag(id=name, arrival=arrival, graph=graph))
    return Workload(resources=resources, capacity=capacity, jobs=jobs)


def _capacity(where: str, said: Mapping[str, Any]) -> tuple[tuple[str, ...], tuple[Number, ...]]:
    if ("capacity" in said) == ("capacity_per_dim" in said):
        raise BadInput(f"{where}: needs one of capacity and capacity_per_dim")
    if "capacity" in said:
        named = said["capacity"]
        if not isinstance(named, dict) or not named:
            raise BadInput(f"{where}: capacity must give an amount by resource")
        sizes = [_number(where, f"capacity of {name}", size) for name, size in named.items()]
        return tuple(named), tuple(sizes)
    size = _number(where, "capacity_per_dim", said["capacity_per_dim"])
    stages = (each for job in said["jobs"] for each in _list(where, "stages", job.get("stages")))
    demands = (stage.get("demand") for stage in stages if isinstance(stage, dict))
    count = max((len(each) for each in demands if isinstance(each, list)), default=0)
    return tuple(f"r{number}" for number in range(1, count + 1)), (size,) * count


def _graph(
    where: str, said: Mapping[str, Any], resources: Sequence[str], capacity: Sequence[Number]
) -> Graph:
    described = named_tables(where, "stage", said.get("stages"), _STAGE, most=MOST_TASKS)
    stages: dict[str, Stage] = {}
    parents: dict[str, list[str]] = {}
    for name, (place, each) in described.items():
        stages[name] = _stage(place, each, resources, capacity)
        parents[name] = [*names_listed(place, "after", each.get("after", []))]
    for number, pair in enumerate(_list(where, "edges", said.get("edges", [])), 1):
        ends = names_listed(f"{where}: edge {number}", "edges", pair)
        if len(ends) != 2 or ends[1] not in stages:
            raise BadInput(
                f"{where}: edge {number} must be a pair of stages, the earlier one first"
            )
        parents[ends[1]].append(ends[0])
    in_order(where, "stage", parents)
    if not any(part for stage in stages.values() for part in stage.demand):
        raise BadInput(f"{where}: its tasks need nothing; some demand must be above 0")
    number_of = {name: number for number, name in enumerate(stages)}
    return Graph(
        [
            replace(stage, parents=tuple(sorted({number_of[each] for each in parents[name]})))
            for name, stage in stages.items()
        ]
    )


def _stage(
    where: str, said: Mapping[str, Any], resources: Sequence[str], capacity: Sequence[Number]
) -> Stage:
    tasks = whole_number(where, "tasks", said.get("tasks", 1), least=1, most=MOST_TASKS)
    demand = said.get("demand")
    if isinstance(demand, list):
        if len(demand) > len(resources):
            raise BadInput(
                f"{where}: demand has {len(demand)} numbers for {len(resources)} resources"
            )
        demand = dict(zip(resources, demand, strict=False))
    if not isinstance(demand, dict):
        raise BadInput(f"{where}: demand must give an amount by resource")
    for name in demand:
        if name not in resources:
            raise not_known(f"{where}: resource", name, resources)
    parts = [
        _number(where, f"demand of {name}", demand.get(name, 0), least=0) for name in resources
    ]
    for name, part, size in zip(resources, parts, capacity, strict=True):
        if part > size:
            raise BadInput(
                f"{where}: a task needs {float(part):g} {name}; the cluster has {float(size):g}"
            )
    return Stage(_number(where, "duration", said.get("duration")), tuple(parts), tasks)


def _list(where: str, key: str, said: Any) -> list[Any]:
    if not isinstance(said, list):
        raise BadInput(f"{where}: {key} must be a list")
    return said


def _number(where: str, key: str, said: Any, *, least: int | None = None) -> Number:
    """A number above 0, or from `least` up."""
    right = "above 0" if least is None else f"from {least} up"
    if not isinstance(said, int | Fraction) or isinstance(said, bool):
        raise BadInput(f"{where}: {key} must be a number {right}, not {shorten(str(said))!r}")
    if said > LARGEST or (said <= 0 if least is None else said < least):
        raise BadInput(f"{where}: {key} must be a number {right} and to {LARGEST:g}, not {said}")
    return said
