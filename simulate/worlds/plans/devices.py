"""The GPUs of a plan and the links between them.

Within a node each ordered pair of GPUs has a link of its own. Between nodes a transfer goes out
over the network card of one and in over that of the other; all transfers of a node share it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from dlsched.core.errors import BadInput
from simulate.worlds.plans.iteration import Network

MOST_DEVICES = 64
BYTES_PER_US_OF_GBPS = 125.0
_NODE = re.compile(r"(\d{1,3})x([A-Za-z0-9_.-]+)")


@dataclass(frozen=True, slots=True)
class Devices:
    """GPUs by number.

    Attributes:
        types: the type of each.
        nodes: the node of each, by number.
        network: the links between them.
        memory_bytes: of each type; a type that is not here has no bound.
    """

    types: Sequence[str]
    nodes: Sequence[int]
    network: Network
    memory_bytes: Mapping[str, int]

    def of_type(self, gpu_type: str, count: int) -> Devices:
        """The first so many GPUs of one type, with their links."""
        chosen = [number for number, each in enumerate(self.types) if each == gpu_type][:count]
        place = {old: new for new, old in enumerate(chosen)}
        paths = {
            (place[a], place[b]): path
            for (a, b), path in self.network.paths.items()
            if a in place and b in place
        }
        nodes = [self.nodes[number] for number in chosen]
        network = replace(self.network, paths=paths)
        return replace(self, types=[gpu_type] * len(chosen), nodes=nodes, network=network)


def devices_of(
    said: str,
    *,
    link_gbps: float,
    nic_gbps: float,
    memory_bytes: Mapping[str, int],
) -> Devices:
    """Read `2xv100,4xt4`: nodes, each with so many GPUs of a type.

    Args:
        said: the nodes.
        link_gbps: of each link within a node, Gbit/s.
        nic_gbps: of each node's network card, Gbit/s.
        memory_bytes: by GPU type.

    Raises:
        BadInput: no such list, or too many GPUs.
    """
    types: list[str] = []
    nodes: list[int] = []
    for node, part in enumerate(said.split(",")):
        found = _NODE.fullmatch(part.strip())
        if found is None or int(found[1]) < 1:
            raise BadInput(f"--gpus {said}: {part!r} is not COUNTxTYPE, as in 2xv100,4xt4")
        types += [found[2]] * int(found[1])
        nodes += [node] * int(found[1])
    if len(types) > MOST_DEVICES:
        raise BadInput(f"--gpus {said}: {len(types)} GPUs; {MOST_DEVICES} are the most")
    cards = 2 * (max(nodes) + 1)  # out and in, of each node
    bandwidth = [nic_gbps * BYTES_PER_US_OF_GBPS] * cards
    paths: dict[tuple[int, int], tuple[int, ...]] = {}
    for a in range(len(types)):
        for b in range(len(types)):
            if a == b:
                continue
            if nodes[a] != nodes[b]:
                paths[a, b] = (2 * nodes[a], 2 * nodes[b] + 1)
                continue
            paths[a, b] = (len(bandwidth),)
            bandwidth.append(link_gbps * BYTES_PER_US_OF_GBPS)
    return Devices(types, nodes, Network(paths, bandwidth), memory_bytes)
