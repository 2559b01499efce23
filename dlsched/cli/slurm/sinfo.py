"""`sinfo`: partitions and their nodes, by state; `-N`: a line for each node."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from dlsched.cli.slurm.arguments import Arguments, joined
from dlsched.cli.slurm.formats import Cell, Part, by_letters, by_names, lines
from dlsched.client.daemon_client import Client
from dlsched.client.records import Node
from dlsched.client.submission.durations import duration_text
from dlsched.core.cluster.host_lists import expand, fold
from dlsched.rpc.v1.control_pb2 import TenantPartition

USUAL = "%P %a %l %D %t %N"
BY_NODE = "%N %D %P %t"
BY_NODE_LONG = "%N %D %P %T %c %m %G %E"
REASONS = "%E %u %H %N"
_SHORT = {"mixed": "mix", "full": "alloc", "drained": "drain", "draining": "drng", "late": "down"}
_LONG = {"full": "allocated", "late": "down", "unheard": "unknown"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """Nodes of one partition that a line shows together."""

    partition: str
    limit: str
    nodes: tuple[Node, ...]

    @property
    def first(self) -> Node:
        """Stands for all."""
        return self.nodes[0]


def _state(group: Group, words: dict[str, str]) -> str:
    state = group.first.state
    plain = state.rstrip("*~#")
    return words.get(plain, plain) + state[len(plain) :]


def _same(values: Iterable[object]) -> str:
    """One value, or the smallest with a `+` where nodes differ, as Slurm has it."""
    found = sorted({str(value) for value in values}, key=lambda text: (len(text), text))
    return found[0] + ("+" if len(found) > 1 else "")


def _gres(node: Node) -> str:
    kind = f"{node.gpu_type}:" if node.gpu_type else ""
    return f"gpu:{kind}{node.gpus}" if node.gpus else "(null)"


def _counts(group: Group) -> str:
    """Processors allocated, idle, other and all; how many jobs hold is not known to clients."""
    total = sum(node.cpus or 0 for node in group.nodes)
    return f"0/{total}/0/{total}"


LETTERS: dict[str, Cell[Group]] = {
    "P": Cell("PARTITION", lambda group: group.partition),
    "R": Cell("PARTITION", lambda group: group.partition.rstrip("*")),
    "a": Cell("AVAIL", lambda group: "up"),
    "l": Cell("TIMELIMIT", lambda group: group.limit),
    "D": Cell("NODES", lambda group: str(len(group.nodes))),
    "t": Cell("STATE", lambda group: _state(group, _SHORT)),
    "T": Cell("STATE", lambda group: _state(group, _LONG)),
    "N": Cell("NODELIST", lambda group: fold([node.name for node in group.nodes])),
    "n": Cell("HOSTNAMES", lambda group: fold([node.name for node in group.nodes])),
    "G": Cell("GRES", lambda group: _same(map(_gres, group.nodes))),
    "c": Cell("CPUS", lambda group: _same(node.cpus or 0 for node in group.nodes)),
    "m": Cell(
        "MEMORY",
        lambda group: _same((node.memory_bytes or 0) >> 20 for node in group.nodes),
    ),
    "C": Cell("CPUS(A/I/O/T)", _counts),
    "E": Cell("REASON", lambda group: group.first.reason or "none"),
    "u": Cell("USER", lambda group: group.first.reason_by or "Unknown"),
    "H": Cell("TIMESTAMP", lambda group: _when(group.first.reason_at)),
    "f": Cell("AVAIL_FEATURES", lambda group: group.first.gpu_type or "(null)"),
    "o": Cell("NODE_ADDR", lambda group: group.first.address or ""),
    "v": Cell("VERSION", lambda group: group.first.agent_version or ""),
}
NAMES: dict[str, Cell[Group]] = {
    "NodeList": LETTERS["N"],
    "NodeHost": LETTERS["n"],
    "Partition": LETTERS["P"],
    "PartitionName": LETTERS["R"],
    "Nodes": LETTERS["D"],
    "StateCompact": LETTERS["t"],
    "StateLong": LETTERS["T"],
    "Gres": LETTERS["G"],
    "GresUsed": Cell(
        "GRES_USED", lambda group: _same([f"gpu:{each.busy_gpus}" for each in group.nodes])
    ),
    "CPUs": LETTERS["c"],
    "Memory": LETTERS["m"],
    "Reason": LETTERS["E"],
    "Time": LETTERS["l"],
    "Available": LETTERS["a"],
    "Features": LETTERS["f"],
}


def _when(at: float | None) -> str:
    import time  # noqa: PLC0415  # few formats need it

    return "Unknown" if at is None else time.strftime("%Y-%m-%dT%H:%M:%S", time.localtime(at))


def _parser() -> Arguments:
    found = Arguments("sinfo", "List partitions and nodes.")
    option = found.option
    option("-p", "--partition", help="these")
    option("-n", "--nodes", help="these")
    option("-t", "--states", "--state", help="in these states: idle, mix, alloc, drain, down")
    option("-N", "--Node", flag=True, help="a line for each node")
    option("-o", "--format", help="letters: '%%N %%G %%T'")
    option("-O", "--Format", help="names: NodeList,Gres:20,StateLong")
    option("-R", "--list-reasons", flag=True, help="why nodes are out of service")
    option("-l", "--long", flag=True, help="more of each node")
    option("-h", "--noheader", flag=True, help="without the titles")
    option("-s", "--summarize", flag=True)
    option("-e", "--exact", flag=True)
    option("-a", "--all", flag=True)
    return found


def sinfo(words: Sequence[str]) -> int:
    """List partitions and nodes."""
    given = _parser().read(words)
    parts = _parts(given)
    names = [name for word in given.nodes or () for name in expand("--nodes", word)]
    with Client() as cluster:
        nodes = cluster.nodes(names)
        partitions = [each.partition for each in cluster.tenants("partition")]
    states = {word.lower().rstrip("*") for word in joined(given.states)}
    if states:
        nodes = [node for node in nodes if _names_of(node) & states]
    if given.list_reasons:
        nodes = [node for node in nodes if node.reason]
    asked = set(joined(given.partition))
    rows = _groups(nodes, partitions, asked, by_node=given.Node or given.list_reasons)
    for line in lines(parts, rows, header=not given.noheader, padded=not given.format):
        print(line)
    return 0


def _parts(given: Any) -> list[Part[Group]]:
    if given.Format:
        return by_names(",".join(given.Format), NAMES, "-O", usual=20)
    if given.format:
        return by_letters(given.format[-1], LETTERS)
    usual = BY_NODE_LONG if given.Node and given.long else BY_NODE if given.Node else USUAL
    return by_letters(REASONS if given.list_reasons else usual, LETTERS)


def _names_of(node: Node) -> set[str]:
    plain = node.state.rstrip("*~#")
    return {plain, _SHORT.get(plain, plain), _LONG.get(plain, plain)}


def _groups(
    nodes: Sequence[Node],
    partitions: Sequence[TenantPartition],
    asked: set[str],
    *,
    by_node: bool,
) -> list[Group]:
    """The lines: nodes of one partition and state together, or each alone."""
    known = {each.name: each for each in partitions}
    found: dict[tuple[str, str], list[Node]] = {}
    for node in nodes:
        for partition in node.partitions or ("-",):
            if not asked or partition in asked:
                key = node.name if by_node else node.state
                found.setdefault((partition, key), []).append(node)
    groups = []
    for (name, _), members in found.items():
        facts = known.get(name, TenantPartition())
        limit = duration_text(facts.max_time_s) if facts.HasField("max_time_s") else "infinite"
        mark = "*" if facts.is_default else ""
        groups.append(Group(partition=f"{name}{mark}", limit=limit, nodes=tuple(members)))
    return groups
