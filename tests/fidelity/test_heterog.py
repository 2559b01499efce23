"""HeteroG's simulator: every operation of the recorded plans ends at the same microsecond."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from simulate.worlds.plans.deployment import Choice, graph_of
from simulate.worlds.plans.devices import Devices
from simulate.worlds.plans.iteration import Edge, Graph, Network, Operation, iterate
from simulate.worlds.plans.model import Model, ModelOperation

pytestmark = pytest.mark.fidelity

ROOT = Path(os.environ.get("DLSCHED_DATA", Path(__file__).parents[3] / "shared" / "data"))
FILE = ROOT / "heterog" / "simulator_cases.json"
EXCHANGES = {"-": "none", "ar": "all-reduce", "ps": "server"}


def recorded() -> dict[str, Any]:
    return json.loads(FILE.read_text()) if FILE.exists() else {}


def plans() -> list[Any]:
    """Every recorded plan that has its graph, in whatever part of the file."""
    if not FILE.exists():
        return [pytest.param({}, marks=pytest.mark.skip(reason=f"no {FILE}"), id="none")]
    parts = [part for part in recorded().values() if isinstance(part, dict)]
    return [
        pytest.param(case, id=key)
        for part in parts
        for key, case in part.items()
        if isinstance(case, dict) and "ops" in case
    ]


def network() -> Network:
    params = recorded()["params"]
    paths = {(0, 1): (0,), (1, 0): (1,)}
    latency = recorded()["transfer_latency_us"]
    return Network(paths, [params["bw"]] * 2, tuple(params["nccl"]), latency)


def graph_said(case: dict[str, Any]) -> Graph:
    """The graph of a recorded plan, as it is given."""
    collectives = case["collectives"]
    operations = [
        Operation(
            op["name"],
            op["dev"],
            case["compute_us"][op["name"]],
            collectives.get(op["name"], {}).get("instance", -1),
        )
        for op in case["ops"]
    ]
    place = {op.name: number for number, op in enumerate(operations)}
    edges = [
        Edge(place[edge["src"]], place[edge["dst"]], None if edge["control"] else edge["bytes"])
        for edge in case["edges"]
    ]
    sizes = {each["instance"]: each["bytes"] for each in collectives.values()}
    return Graph(operations, edges, sizes)


@pytest.mark.parametrize("case", plans())
def test_every_operation_of_a_given_graph_ends_at_its_microsecond(case: dict[str, Any]) -> None:
    graph = graph_said(case)
    found = iterate(graph, network())
    names = [operation.name for operation in graph.operations]
    assert dict(zip(names, found.finish_us, strict=True)) == case["finish_us"]
    assert found.makespan_us == case["makespan_us"]


@pytest.mark.parametrize("case", plans())
def test_our_graph_of_a_plan_takes_as_long_as_the_recorded_one(case: dict[str, Any]) -> None:
    params = recorded()["params"]
    layers = [
        ModelOperation(
            name=f"f{n}",
            us={"fast": params["fast"][n], "slow": params["slow"][n]},
            parameter_bytes=params["grad"][n],
            gradient_bytes=params["grad"][n],
            inputs={f"f{n - 1}": params["act"][n]} if n else {},
            group=f"f{n}",
        )
        for n in range(len(params["fast"]))
    ]
    plan = {
        f"f{n}": Choice(tuple(devices), EXCHANGES[how])  # type: ignore[arg-type]
        for n, (devices, how) in enumerate(case["strategy"])
    }
    devices = Devices(["fast", "slow"], [0, 0], network(), {})
    graph = graph_of(Model("toy", 0, layers), plan, devices, server_us=params["ps_us"])
    assert iterate(graph, network()).makespan_us == case["makespan_us"]
