"""How long one iteration of a deployed training takes: operations, transfers, collectives.

Times are whole microseconds, amounts are bytes. What is ready is begun in the order in which it
became ready: an operation when its GPU is free, a transfer when all links of its path are, a
collective when its last member has come and no other collective runs. Collectives do not hold GPUs.

    transfer    ⌊bytes / least bandwidth of the path⌋ + latency; nothing on one GPU
    collective  max(a₁·KiB + b₁, a₂·KiB + b₂), KiB = ⌊bytes / 1024⌋

Source: the program of HeteroG (CoNEXT 2020). Where it leaves the order of equal ends open, the one
that began first ends first here.
"""

from __future__ import annotations

import heapq
from collections import Counter, defaultdict, deque
from collections.abc import Sequence
from dataclasses import dataclass, field

from dlsched.core.errors import BadInput

LATENCY_US = 12
ALL_REDUCE = (0.0434, 368.2, 0.2777, 211.9)  # µs for each KiB and at least, two lines


@dataclass(frozen=True, slots=True)
class Operation:
    """One operation on one GPU.

    Attributes:
        name: unique in its graph.
        device: the GPU, by number.
        compute_us: how long it takes.
        instance: the collective that it is a member of; −1: none.
        output_bytes: what it leaves in memory until its last consumer is done; None: as much as
            it sends.
    """

    name: str
    device: int
    compute_us: int
    instance: int = -1
    output_bytes: int | None = None


@dataclass(frozen=True, slots=True)
class Edge:
    """What one operation passes to another, by their numbers; None bytes: only the order."""

    source: int
    target: int
    bytes: int | None = None


@dataclass(frozen=True, slots=True)
class Network:
    """The links between GPUs.

    Attributes:
        paths: the links from one GPU to another, by both numbers.
        bandwidth: bytes per microsecond of each link.
        all_reduce: two lines a₁, b₁, a₂, b₂: µs per KiB, and µs.
        latency_us: of each transfer between two GPUs.
    """

    paths: dict[tuple[int, int], tuple[int, ...]]
    bandwidth: Sequence[float]
    all_reduce: tuple[float, float, float, float] = ALL_REDUCE
    latency_us: int = LATENCY_US

    def transfer_us(self, source: int, target: int, size: int) -> int:
        """How long a transfer takes on free links."""
        path = () if source == target else self.paths[source, target]
        if not path:
            return 0
        return int(size // min(self.bandwidth[link] for link in path)) + self.latency_us

    def collective_us(self, size: int) -> int:
        """How long the sum of gradients over a group of GPUs takes."""
        a1, b1, a2, b2 = self.all_reduce
        kib = size >> 10
        return int(max(a1 * kib + b1, a2 * kib + b2))


@dataclass(frozen=True, slots=True)
class Graph:
    """One iteration.

    Attributes:
        operations: in creation order.
        edges: between them, in creation order; no circle.
        collective_bytes: of each collective, by its number.
    """

    operations: Sequence[Operation]
    edges: Sequence[Edge]
    collective_bytes: dict[int, int] = field(default_factory=dict)

    def in_order(self) -> list[int]:
        """The operations, each after those it depends on; otherwise in creation order.

        Raises:
            BadInput: they depend on each other in a circle.
        """
        waits = [0] * len(self.operations)
        after: list[list[int]] = [[] for _ in self.operations]
        for edge in self.edges:
            waits[edge.target] += 1
            after[edge.source].append(edge.target)
        free = [number for number, count in enumerate(waits) if not count]
        found = []
        while free:
            number = heapq.heappop(free)
            found.append(number)
            for each in after[number]:
                waits[each] -= 1
                if not waits[each]:
                    heapq.heappush(free, each)
        if len(found) < len(self.operations):
            stuck = next(number for number, count in enumerate(waits) if count)
            name = self.operations[stuck].name
            raise BadInput(f"operation {name} depends on itself, through others")
        return found


@dataclass(frozen=True, slots=True)
class Iteration:
    """What became of an iteration.

    Attributes:
        finish_us: when each operation ended.
        makespan_us: when the last one ended.
        peak_bytes: the most memory that outputs took at once, by GPU.
    """

    finish_us: list[int]
    makespan_us: int
    peak_bytes: dict[int, int]


class _Run:
    """The tasks of a graph: a transfer for each edge with data, and one for each operation.

    Attributes:
        operations: the task of each operation.
        transfers: the task of each edge with data.
        finish: when each task ends.
    """

    def __init__(self, graph: Graph, network: Network) -> None:
        self._graph, self._network = graph, network
        self._tasks: list[Edge | Operation] = []
        self._waits: list[int] = []
        self._after: list[list[int]] = []
        self.operations = [-1] * len(graph.operations)
        self.transfers: dict[int, int] = {}
        into: list[list[int]] = [[] for _ in graph.operations]
        for number, edge in enumerate(graph.edges):
            into[edge.target].append(number)
        for number in graph.in_order():
            begun = []
            for each in into[number]:
                edge = graph.edges[each]
                before = self.operations[edge.source]
                if edge.bytes is not None:
                    before = self.transfers[each] = self._add(edge, [before])
                begun.append(before)
            self.operations[number] = self._add(graph.operations[number], begun)
        self.finish = [0] * len(self._tasks)
        self._members = Counter(operation.instance for operation in graph.operations)
        self._came: dict[int, list[int]] = defaultdict(list)
        self._device_free: dict[int, int] = defaultdict(int)
        self._link_free = [0] * len(network.bandwidth)
        self._collective_free = self._now = self._begun = 0
        self._ongoing: list[tuple[int, int, int]] = []

    def _add(self, what: Edge | Operation, before: list[int]) -> int:
        number = len(self._tasks)
        self._tasks.append(what)
        self._waits.append(len(before))
        self._after.append([])
        for each in before:
            self._after[each].append(number)
        return number

    def to_the_end(self) -> None:
        """Begin what is ready, go to the next end, and so on."""
        ready = deque(number for number, count in enumerate(self._waits) if not count)
        while True:
            while ready:
                self._begin(ready.popleft())
            if not self._ongoing:
                return
            self._now, _, ended = heapq.heappop(self._ongoing)
            for each in self._after[ended]:
                self._waits[each] -= 1
                if not self._waits[each]:
                    ready.append(each)

    def _begin(self, number: int) -> None:
        task = self._tasks[number]
        if isinstance(task, Edge):
            self._ends(number, self._transfer(task))
        elif task.instance < 0:
            end = max(self._device_free[task.device], self._now) + task.compute_us
            self._device_free[task.device] = end
            self._ends(number, end)
        else:
            self._come(number, task.instance)

    def _transfer(self, edge: Edge) -> int:
        source = self._graph.operations[edge.source].device
        target = self._graph.operations[edge.target].device
        path = () if source == target else self._network.paths[source, target]
        if not path:
            return self._now
        start = max(self._now, *(self._link_free[link] for link in path))
        assert edge.bytes is not None
        end = start + self._network.transfer_us(source, target, edge.bytes)
        for link in path:
            self._link_free[link] = end
        return end

    def _come(self, number: int, instance: int) -> None:
        came = self._came[instance]
        came.append(number)
        if len(came) < self._members[instance]:
            return
        start = max(self._now, self._collective_free)
        size = self._graph.collective_bytes[instance]
        self._collective_free = end = start + self._network.collective_us(size)
        for each in came:
            self._ends(each, end)

    def _ends(self, number: int, end: int) -> None:
        self.finish[number] = end
        heapq.heappush(self._ongoing, (end, self._begun, number))
        self._begun += 1


def iterate(graph: Graph, network: Network) -> Iteration:
    """Run one iteration.

    Raises:
        BadInput: operations depend on each other in a circle.
    """
    run = _Run(graph, network)
    run.to_the_end()
    finish = [run.finish[task] for task in run.operations]
    arrivals = {edge: run.finish[task] for edge, task in run.transfers.items()}
    peak = _peak_bytes(graph, finish, arrivals)
    return Iteration(finish, max(finish, default=0), peak)


def _peak_bytes(graph: Graph, finish: list[int], arrivals: dict[int, int]) -> dict[int, int]:
    """The most memory of outputs by GPU.

    An output is on the GPU of its operation until the last consumer is done, and a copy on that of
    a consumer elsewhere from its arrival on. At one moment what comes counts before what goes.
    """
    sent = [0] * len(graph.operations)
    until = list(finish)
    changes: dict[int, list[tuple[int, int]]] = {}
    for number, edge in enumerate(graph.edges):
        if edge.bytes is None:
            continue
        sent[edge.source] += edge.bytes
        until[edge.source] = max(until[edge.source], finish[edge.target])
        device = graph.operations[edge.target].device
        if device != graph.operations[edge.source].device:
            here = changes.setdefault(device, [])
            here += [(arrivals[number], edge.bytes), (finish[edge.target], -edge.bytes)]
    for number, operation in enumerate(graph.operations):
        size = sent[number] if operation.output_bytes is None else operation.output_bytes
        here = changes.setdefault(operation.device, [])
        here += [(finish[number], size), (until[number], -size)]
    peak = {}
    for device, moves in changes.items():
        held = most = 0
        for _, change in sorted(moves, key=lambda move: (move[0], -move[1])):
            held += change
            most = max(most, held)
        peak[device] = most
    return peak
