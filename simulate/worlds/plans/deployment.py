"""A plan of a training as a graph: replicas, what they pass on, and how gradients are summed.

With n replicas each takes 1/n of the batch and 1/n of the time. Where the numbers of replicas of
two operations differ, each passes on the part of the batch that both have. Several replicas may
share one GPU, which runs them one after another: so a fast GPU gets a larger part of the batch.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from simulate.worlds.plans.devices import Devices
from simulate.worlds.plans.iteration import Edge, Graph, Operation
from simulate.worlds.plans.model import Model, ModelOperation

Exchange = Literal["none", "all-reduce", "server"]
SERVER_US = 5  # to sum gradients


@dataclass(frozen=True, slots=True)
class Choice:
    """Where the operations of a group run.

    Attributes:
        devices: the GPU of each replica, sorted; one GPU may have several.
        exchange: how gradients are summed: not, by all GPUs, or on the first one.
    """

    devices: tuple[int, ...]
    exchange: Exchange = "none"

    @property
    def places(self) -> tuple[int, ...]:
        """Its GPUs, each once."""
        return tuple(dict.fromkeys(self.devices))


Plan = Mapping[str, Choice]  # by group


def uniform_choices(model: Model, devices: Devices) -> dict[str, Choice]:
    """What a group may be given, by name: one GPU each, and four forms of data parallelism."""
    found = {
        f"{gpu_type}-{number}": Choice((number,)) for number, gpu_type in enumerate(devices.types)
    }
    every = tuple(range(len(devices.types)))
    if len(every) == 1:
        return found
    proportional = proportional_replicas(model, devices)
    exchanges: tuple[Exchange, ...] = ("all-reduce", "server")
    for exchange in exchanges:
        found[f"even, {exchange}"] = Choice(every, exchange)
        if proportional != every:
            found[f"proportional, {exchange}"] = Choice(proportional, exchange)
    return found


def proportional_replicas(model: Model, devices: Devices) -> tuple[int, ...]:
    """Replicas by speed: as many on a GPU as it is times as fast as the slowest, rounded."""
    times = [model.total_us(gpu_type) for gpu_type in devices.types]
    slowest = max(times)
    return tuple(
        number
        for number, time in enumerate(times)
        for _ in range(max(1, round(slowest / time)) if time else 1)
    )


def graph_of(model: Model, plan: Plan, devices: Devices, *, server_us: int = SERVER_US) -> Graph:
    """The graph of one iteration: all operations, then the sums of gradients."""
    building = _Building(model, plan, devices)
    for operation in model.operations:
        building.add_replicas(operation)
    for number, operation in enumerate(model.operations):
        building.add_exchange(number, operation, server_us)
    return Graph(building.operations, building.edges, building.collective_bytes)


def resident_bytes(model: Model, plan: Plan) -> dict[int, int]:
    """Bytes of parameters on each GPU."""
    found: dict[int, int] = {}
    for operation in model.operations:
        for device in plan[operation.group].places:
            found[device] = found.get(device, 0) + operation.parameter_bytes
    return found


class _Building:
    def __init__(self, model: Model, plan: Plan, devices: Devices) -> None:
        self._plan, self._types = plan, devices.types
        self.operations: list[Operation] = []
        self.edges: list[Edge] = []
        self.collective_bytes: dict[int, int] = {}
        self._replicas: dict[str, range] = {}  # of each operation, their numbers
        taken: dict[str, int] = {}
        for each in model.operations:
            for source, size in each.inputs.items():
                taken[source] = max(taken.get(source, 0), size)
        self._output = taken

    def add_replicas(self, operation: ModelOperation) -> None:
        choice = self._plan[operation.group]
        count, begin = len(choice.devices), len(self.operations)
        gradients = operation.gradient_bytes if count > 1 else 0
        for number, device in enumerate(choice.devices):
            self.operations.append(
                Operation(
                    f"{operation.name}_{number}",
                    device,
                    operation.us[self._types[device]] // count,
                    output_bytes=self._output.get(operation.name, 0) // count + gradients,
                )
            )
        self._replicas[operation.name] = range(begin, begin + count)
        for source, size in operation.inputs.items():
            self._pass_on(self._replicas[source], self._replicas[operation.name], size)

    def _pass_on(self, sources: Sequence[int], targets: Sequence[int], size: int) -> None:
        """From each source to each target the part of the batch that both have."""
        n, m = len(sources), len(targets)
        for i, source in enumerate(sources):
            for j, target in enumerate(targets):
                common = min((i + 1) * m, (j + 1) * n) - max(i * m, j * n)
                if common > 0:
                    self.edges.append(Edge(source, target, size * common // (n * m)))

    def add_exchange(self, number: int, operation: ModelOperation, server_us: int) -> None:
        choice = self._plan[operation.group]
        places, size = choice.places, operation.gradient_bytes
        if len(places) == 1 or not size:
            return
        replicas = self._replicas[operation.name]
        if choice.exchange == "all-reduce":
            self.collective_bytes[number] = size
            members = {
                device: self._add(f"all-reduce {operation.name}_{device}", device, 0, number)
                for device in places
            }
            for replica in replicas:
                self._edge(replica, members[self.operations[replica].device], size)
            return
        server = self._add(f"server {operation.name}", places[0], server_us)
        for replica in replicas:
            self._edge(replica, server, size)
        for device in places[1:]:
            self._edge(server, self._add(f"{operation.name} back_{device}", device, 0), size)

    def _add(self, name: str, device: int, compute_us: int, instance: int = -1) -> int:
        self.operations.append(Operation(name, device, compute_us, instance, output_bytes=0))
        return len(self.operations) - 1

    def _edge(self, source: int, target: int, size: int) -> None:
        self.edges.append(Edge(source, target, size))
