"""`sinfo`: partitions and their nodes, by state; `-N`: a line for each node."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from dlsched.cli.slurm.arguments import Arguments, given_by, joined
from dlsched.cli.slurm.formats import (
    Cell,
    Part,
    all_of,
    by_letters,
    by_names,
    lines,
    moment,
    of_each,
)
from dlsched.client.daemon_client import Client
from dlsched.client.records import Node
from dlsched.client.submission.durations import duration_text
from dlsched.core.cluster.host_lists import node_names
from dlsched.host_lists import fold
from dlsched.rpc.v1.control_pb2 import TenantPartition

USUAL = "%P %a %l %D %t %N"
SUMMARY = "%P %a %l %F %N"
LONG = "%P %a %l %s %r %h %g %D %T %N"
BY_NODE = "%N %D %P %t"
BY_NODE_LONG = "%N %D %P %T %c %m %G %E"
REASONS = "%E %u %H %N"
_OPEN = ("idle", "mixed", "full")  # states of nodes that are in service
_SHORT = {"mixed": "mix", "full": "alloc", "drained": "drain", "draining": "drng", "late": "down"}
_SHORT |= {"reserved": "resv"}
_LONG = {"full": "allocated", "late": "down", "unheard": "unknown"}
# Slurm's order within a partition: what an operator has taken out of service comes first
_RANKS = (
    *("drained", "draining", "maint", "reserved", "invalid"),
    *("mixed", "full", "idle", "spare", "down"),
)


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


def _state(node: Node, words: dict[str, str]) -> str:
    plain = node.state.rstrip("*~#")
    return words.get(plain, plain) + node.state[len(plain) :]


def long_state(node: Node) -> str:
    """A node's state in Slurm's words: allocated, idle*."""
    return _state(node, _LONG)


def _same(values: Iterable[object]) -> str:
    """One value, or the smallest with a `+` where nodes differ, as Slurm has it."""
    found = sorted({str(value) for value in values}, key=lambda text: (len(text), text))
    return found[0] + ("+" if len(found) > 1 else "")


def gres(node: Node) -> str:
    """As Slurm has it: `gpu:a100:4`, and `gpu:a100:2,gpu:v100:2` of several types."""
    each = ",".join(f"gpu:{kind}{count}" for kind, count, _ in gpus_by_type(node))
    return each if node.gpus else "(null)"


def _gres_used(node: Node) -> str:
    """As Slurm has it: `gpu:a100:4(IDX:0-3)`."""
    each = ",".join(
        f"gpu:{kind}{len(busy)}(IDX:{fold(busy).strip('[]') or 'N/A'})"
        for kind, _, busy in gpus_by_type(node)
    )
    return each if node.gpus else "(null)"


def gpus_by_type(node: Node) -> Iterator[tuple[str, int, list[str]]]:
    """Each type of GPU of a node, `a100:`; how many it has, and the indices of those in use.

    A type that is not known is empty.
    """
    types = dict.fromkeys(gpu.type for gpu in node.devices)
    for kind in types if len(types) > 1 else [node.gpu_type]:
        mine = [gpu for gpu in node.devices if len(types) < 2 or gpu.type == kind]
        busy = [str(gpu.index) for gpu in mine if gpu.jobs]
        yield f"{kind}:" if kind else "", len(mine) or node.gpus, busy


def _processors(group: Group) -> str:
    """Processors that jobs hold, that are idle, of nodes out of service, and all."""
    held = idle = other = 0
    for node in group.nodes:
        total = node.cpus or 0
        mine = min(total, math.ceil(node.cpus_held))
        held += mine
        if node.state.rstrip("*~#") in _OPEN:
            idle += total - mine
        else:
            other += total - mine
    return f"{held}/{idle}/{other}/{held + idle + other}"


def _nodes(group: Group) -> tuple[int, int, int]:
    """Nodes with jobs, idle ones, and those out of service."""
    states = [node.state.rstrip("*~#") for node in group.nodes]
    idle, held = states.count("idle"), sum(state in ("mixed", "full") for state in states)
    return held, idle, len(states) - idle - held


def _node_counts(group: Group) -> str:
    held, idle, other = _nodes(group)
    return f"{held}/{idle}/{other}/{held + idle + other}"


def features(node: Node) -> str:
    """What `-C` may name of a node, as Slurm lists it."""
    return ",".join(filter(None, (node.gpu_type, *node.features))) or "(null)"


LETTERS: dict[str, Cell[Group]] = {
    "P": Cell("PARTITION", lambda group: group.partition),
    "R": Cell("PARTITION", lambda group: group.partition.rstrip("*")),
    "a": Cell("AVAIL", lambda group: "up"),
    "l": Cell("TIMELIMIT", lambda group: group.limit),
    "D": Cell("NODES", lambda group: str(len(group.nodes))),
    "t": Cell("STATE", lambda group: _state(group.first, _SHORT)),
    "T": Cell("STATE", lambda group: long_state(group.first)),
    "N": Cell("NODELIST", lambda group: fold([node.name for node in group.nodes])),
    "n": Cell("HOSTNAMES", lambda group: fold([node.name for node in group.nodes])),
    "G": Cell("GRES", lambda group: _same(map(gres, group.nodes))),
    "c": Cell("CPUS", lambda group: _same(node.cpus or 0 for node in group.nodes)),
    "m": Cell(
        "MEMORY",
        lambda group: _same((node.memory_bytes or 0) >> 20 for node in group.nodes),
    ),
    "C": Cell("CPUS(A/I/O/T)", _processors),
    "F": Cell("NODES(A/I/O/T)", _node_counts),
    "A": Cell("NODES(A/I)", lambda group: "{}/{}".format(*_nodes(group))),
    "b": Cell("ACTIVE_FEATURES", lambda group: features(group.first)),
    # what is not measured, and what there is not
    "e": Cell("FREE_MEM", lambda group: "N/A"),
    "O": Cell("CPU_LOAD", lambda group: "N/A"),
    "w": Cell("WEIGHT", lambda group: "1"),
    "s": Cell("JOB_SIZE", lambda group: "1-infinite"),
    "r": Cell("ROOT", lambda group: "no"),
    "h": Cell("OVERSUBS", lambda group: "NO"),
    "g": Cell("GROUPS", lambda group: "all"),
    "E": Cell("REASON", lambda group: group.first.reason or "none"),
    "u": Cell("USER", lambda group: group.first.reason_by or "Unknown"),
    "H": Cell("TIMESTAMP", lambda group: moment(group.first.reason_at)),
    "f": Cell("AVAIL_FEATURES", lambda group: features(group.first)),
    "o": Cell("NODE_ADDR", lambda group: group.first.address or ""),
    "v": Cell("VERSION", lambda group: group.first.agent_version or ""),
}
_OF_PARTITIONS = {LETTERS[letter].title for letter in "PRa"}
# nodes that differ in one of these are on lines of their own, where it is shown
_TELL_APART = (*_OF_PARTITIONS, *(LETTERS[letter].title for letter in "lTnGbEuHfov"), "GRES_USED")
NAMES: dict[str, Cell[Group]] = {
    "NodeList": LETTERS["N"],
    "NodeHost": LETTERS["n"],
    "Partition": LETTERS["P"],
    "PartitionName": LETTERS["R"],
    "Nodes": LETTERS["D"],
    "StateCompact": LETTERS["t"],
    "StateLong": LETTERS["T"],
    "Gres": LETTERS["G"],
    "GresUsed": Cell("GRES_USED", lambda group: _same(map(_gres_used, group.nodes))),
    "CPUsState": LETTERS["C"],
    "NodeAIOT": LETTERS["F"],
    "NodeAI": LETTERS["A"],
    "AllocMem": Cell(
        "ALLOCMEM", lambda group: _same(node.memory_held_bytes >> 20 for node in group.nodes)
    ),
    "FreeMem": LETTERS["e"],
    "CPUsLoad": LETTERS["O"],
    "User": LETTERS["u"],
    "Timestamp": LETTERS["H"],
    "NodeAddr": LETTERS["o"],
    "Version": LETTERS["v"],
    "CPUs": LETTERS["c"],
    "Memory": LETTERS["m"],
    "Reason": LETTERS["E"],
    "Time": LETTERS["l"],
    "Available": LETTERS["a"],
    "Features": LETTERS["f"],
}


def _parser() -> Arguments:
    found = Arguments("sinfo", "List partitions and nodes.")
    option = found.option
    option("-p", "--partition", help="these")
    option("-n", "--nodes", help="these")
    option("-t", "--states", "--state", help="in these states: idle, mix, alloc, drain, down")
    option("-N", "--Node", flag=True, help="a line for each node")
    option("-o", "--format", help="letters: '%%N %%G %%T'; SINFO_FORMAT without it")
    option("-O", "--Format", help="names: NodeList,Gres:20,StateLong")
    option("-R", "--list-reasons", flag=True, help="why nodes are out of service")
    option("-l", "--long", flag=True, help="more of each node")
    option("-h", "--noheader", flag=True, help="without the titles")
    option("-s", "--summarize", flag=True, help="a line for each partition")
    option("-e", "--exact", flag=True)
    option("-a", "--all", flag=True)
    return found


def sinfo(words: Sequence[str]) -> int:
    """List partitions and nodes."""
    given = _parser().read(words)
    parts = _parts(given)
    names = node_names("--nodes", given.nodes or ())
    with Client() as cluster:
        nodes = cluster.nodes(names)
        partitions = [each.partition for each in cluster.tenants("partition")]
    states = {word.lower().rstrip("*") for word in joined(given.states)}
    if states:
        nodes = [node for node in nodes if _names_of(node) & states]
    if given.list_reasons:
        nodes = [node for node in nodes if node.reason]
    asked = set(joined(given.partition))
    shown = [part.cell for part in parts if part.cell is not None]
    rows = _groups(nodes, partitions, asked, shown, by_node=given.Node)
    chosen = given.format or given_by("SINFO_FORMAT")
    for line in lines(parts, *of_each(rows), header=not given.noheader, padded=not chosen):
        print(line)
    return 0


def _parts(given: Any) -> list[Part[Group]]:
    if given.Format:
        return by_names(",".join(given.Format), NAMES, "-O", usual=20)
    own = given.Node or given.long or given.summarize or given.list_reasons
    chosen = given.format or ([] if own else given_by("SINFO_FORMAT"))
    if chosen and chosen[-1] == "%all":
        return all_of(LETTERS.values())
    if chosen:
        return by_letters(chosen[-1], LETTERS)
    if given.list_reasons or given.summarize:
        return by_letters(REASONS if given.list_reasons else SUMMARY, LETTERS)
    short, long = (BY_NODE, BY_NODE_LONG) if given.Node else (USUAL, LONG)
    return by_letters(long if given.long else short, LETTERS)


def _names_of(node: Node) -> set[str]:
    plain = node.state.rstrip("*~#")
    return {plain, _SHORT.get(plain, plain), _LONG.get(plain, plain)}


def _groups(
    nodes: Sequence[Node],
    partitions: Sequence[TenantPartition],
    asked: set[str],
    shown: Sequence[Cell[Group]],
    *,
    by_node: bool,
) -> list[Group]:
    """The lines: nodes together that look alike in what is shown, or each node alone.

    A node of several partitions is on a line of each, unless no partition is shown.
    """
    apart = [cell for cell in shown if cell.title in _TELL_APART]
    found: dict[tuple[str, ...], dict[str, Group]] = {}
    for single in _singles(nodes, partitions, asked, by_node=by_node):
        name = single.first.name
        key = (name if by_node else "", *(cell.text(single) for cell in apart))
        found.setdefault(key, {}).setdefault(name, single)
    return [
        replace(next(iter(each.values())), nodes=tuple(group.first for group in each.values()))
        for each in found.values()
    ]


def _singles(
    nodes: Sequence[Node],
    partitions: Sequence[TenantPartition],
    asked: set[str],
    *,
    by_node: bool,
) -> list[Group]:
    """Each node in each of its partitions, in Slurm's order."""
    known = {each.name: each for each in partitions}
    names = dict.fromkeys(name for node in nodes for name in node.partitions or ("-",))
    places = {name: place for place, name in enumerate(names)}  # nodes have them as configured
    found: list[tuple[tuple[int, int], Group]] = []
    for node in nodes:
        for name in node.partitions or ("-",):
            if asked and name not in asked:
                continue
            facts = known.get(name, TenantPartition())
            limit = duration_text(facts.max_time_s) if facts.HasField("max_time_s") else "infinite"
            mark = "*" if facts.is_default else ""
            state = node.state.rstrip("*~#")
            rank = _RANKS.index(state) if state in _RANKS else len(_RANKS)
            group = Group(partition=f"{name}{mark}", limit=limit, nodes=(node,))
            found.append(((places[name], rank), group))
    if not by_node:
        found.sort(key=lambda each: each[0])
    return [group for _, group in found]
