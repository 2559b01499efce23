"""What Slurm's commands say of a node: its GPUs, features, state and address."""

from __future__ import annotations

import math
from collections.abc import Iterator

from dlsched.client.records import Node
from dlsched.host_lists import fold

OPEN = ("idle", "mixed", "full")  # states of nodes that are in service
SHORT = {"mixed": "mix", "full": "alloc", "drained": "drain", "draining": "drng", "late": "down"}
SHORT |= {"reserved": "resv"}
LONG = {"full": "allocated", "late": "down", "unheard": "unknown"}
_MARKS = "*~#"  # after a state: does not respond, is powered down or up


def plain_state(node: Node) -> str:
    """A node's state without what is marked after it."""
    return node.state.rstrip(_MARKS)


def state_in(node: Node, words: dict[str, str]) -> str:
    """A node's state in other words, with its mark: allocated, idle*."""
    plain = plain_state(node)
    return words.get(plain, plain) + node.state[len(plain) :]


def long_state(node: Node) -> str:
    """A node's state in Slurm's words: allocated, idle*."""
    return state_in(node, LONG)


def cpus_held(node: Node) -> int:
    """How many of a node's processors jobs hold, in whole ones."""
    return min(node.cpus or 0, math.ceil(node.cpus_held))


def configured(node: Node) -> str:
    """What a node has, as Slurm writes it: `cpu=8,mem=16000M,billing=8,gres/gpu=2`."""
    cpus, memory = node.cpus or 0, (node.memory_bytes or 0) >> 20
    gpus = f",gres/gpu={node.gpus}" if node.gpus else ""
    return f"cpu={cpus},mem={memory}M,billing={cpus}{gpus}"


def hosts_text(names: object) -> str:
    """Nodes that a job names, as a host list; empty without any."""
    return fold(names) if isinstance(names, list | tuple) else ""


def gres(node: Node) -> str:
    """As Slurm has it: `gpu:a100:4`, and `gpu:a100:2,gpu:v100:2` of several types; none: empty."""
    each = ",".join(f"gpu:{kind}{count}" for kind, count, _ in gpus_by_type(node))
    return each if node.gpus else ""


def gres_used(node: Node) -> str:
    """As Slurm has it: `gpu:a100:4(IDX:0-3)`; without GPUs empty."""
    each = ",".join(
        f"gpu:{kind}{len(busy)}(IDX:{fold(busy).strip('[]') or 'N/A'})"
        for kind, _, busy in gpus_by_type(node)
    )
    return each if node.gpus else ""


def gpus_by_type(node: Node) -> Iterator[tuple[str, int, list[str]]]:
    """Each type of GPU of a node, `a100:`; how many it has, and the indices of those in use.

    A type that is not known is empty.
    """
    types = dict.fromkeys(gpu.type for gpu in node.devices)
    for kind in types if len(types) > 1 else [node.gpu_type]:
        mine = [gpu for gpu in node.devices if len(types) < 2 or gpu.type == kind]
        busy = [str(gpu.index) for gpu in mine if gpu.jobs]
        yield f"{kind}:" if kind else "", len(mine) or node.gpus, busy


def features(node: Node) -> str:
    """What `-C` may name of a node, as Slurm lists it."""
    return ",".join(filter(None, (node.gpu_type, *node.features))) or "(null)"


def address_of(node: Node) -> str:
    """A node's address without a port."""
    return (node.address or "").rpartition(":")[0].strip("[]") or node.name


def port_of(node: Node) -> str:
    """The port of a node's agent; 0: not known."""
    return (node.address or "").rpartition(":")[2] or "0"


def responds(node: Node) -> bool:
    """Does its agent answer?"""
    return not node.state.endswith("*") and plain_state(node) not in ("late", "down", "unheard")
