"""`sinfo`: partitions and their nodes, by state; `-N`: a line for each node."""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from dlsched.cli.slurm.arguments import Arguments, given_by, joined, seconds_between
from dlsched.cli.slurm.cluster import cluster_name
from dlsched.cli.slurm.formats import (
    Cell,
    Part,
    all_of,
    by_fields,
    by_letters,
    lines,
    moment,
    of_each,
)
from dlsched.cli.slurm.node_words import (
    LONG,
    OPEN,
    SHORT,
    address_of,
    cpus_held,
    features,
    gres,
    gres_used,
    long_state,
    plain_state,
    port_of,
    responds,
    state_in,
)
from dlsched.cli.slurm.people import with_number
from dlsched.client.daemon_client import Client
from dlsched.client.records import Node
from dlsched.client.submission.durations import duration_text
from dlsched.core.cluster.host_lists import node_names
from dlsched.host_lists import fold
from dlsched.rpc.v1.control_pb2 import TenantPartition

USUAL = "%P %a %l %D %t %N"
SUMMARY = "%P %a %l %F %N"
LONG_LINES = "%P %a %l %s %r %h %g %D %T %N"
BY_NODE = "%N %D %P %t"
BY_NODE_LONG = "%N %D %P %T %c %m %G %E"
REASONS = "%E %u %H %N"
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
    usual: str = "n/a"  # the time limit of jobs that say none
    groups: str = "all"
    nodes: tuple[Node, ...]

    @property
    def first(self) -> Node:
        """Stands for all."""
        return self.nodes[0]


def _same(values: Iterable[object]) -> str:
    """One value, or the smallest with a `+` where nodes differ, as Slurm has it."""
    found = sorted({str(value) for value in values}, key=lambda text: (len(text), text))
    return found[0] + ("+" if len(found) > 1 else "")


def _processors(group: Group) -> str:
    """Processors that jobs hold, that are idle, of nodes out of service, and all."""
    held = idle = other = 0
    for node in group.nodes:
        total = node.cpus or 0
        mine = cpus_held(node)
        held += mine
        if plain_state(node) in OPEN:
            idle += total - mine
        else:
            other += total - mine
    return f"{held}/{idle}/{other}/{held + idle + other}"


def _nodes(group: Group) -> tuple[int, int, int]:
    """Nodes with jobs, idle ones, and those out of service."""
    states = [plain_state(node) for node in group.nodes]
    idle, held = states.count("idle"), sum(state in ("mixed", "full") for state in states)
    return held, idle, len(states) - idle - held


def _node_counts(group: Group) -> str:
    held, idle, other = _nodes(group)
    return f"{held}/{idle}/{other}/{held + idle + other}"


LETTERS: dict[str, Cell[Group]] = {
    "P": Cell("PARTITION", lambda group: group.partition),
    "R": Cell("PARTITION", lambda group: group.partition.rstrip("*")),
    "a": Cell("AVAIL", lambda group: "up"),
    "l": Cell("TIMELIMIT", lambda group: group.limit),
    "D": Cell("NODES", lambda group: str(len(group.nodes))),
    "t": Cell("STATE", lambda group: state_in(group.first, SHORT)),
    "T": Cell("STATE", lambda group: long_state(group.first)),
    "N": Cell("NODELIST", lambda group: fold([node.name for node in group.nodes])),
    "n": Cell("HOSTNAMES", lambda group: fold([node.name for node in group.nodes])),
    "G": Cell("GRES", lambda group: _same(gres(node) or "(null)" for node in group.nodes)),
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
    "g": Cell("GROUPS", lambda group: group.groups),
    "L": Cell("DEFAULTTIME", lambda group: group.usual),
    "E": Cell("REASON", lambda group: group.first.reason or "none"),
    "u": Cell("USER", lambda group: group.first.reason_by or "Unknown"),
    "H": Cell("TIMESTAMP", lambda group: moment(group.first.reason_at)),
    "f": Cell("AVAIL_FEATURES", lambda group: features(group.first)),
    "o": Cell("NODE_ADDR", lambda group: address_of(group.first)),
    "v": Cell("VERSION", lambda group: group.first.agent_version or ""),
    "U": Cell("USER", lambda group: with_number(group.first.reason_by) or "Unknown"),
    # one socket for each processor, as in Slurm where nothing is said of them
    "X": Cell("SOCKETS", lambda group: _same(node.cpus or 0 for node in group.nodes)),
    "Y": Cell("CORES", lambda group: "1"),
    "Z": Cell("THREADS", lambda group: "1"),
    "z": Cell("S:C:T", lambda group: _same(f"{node.cpus or 0}:1:1" for node in group.nodes)),
    "V": Cell("CLUSTER", lambda group: cluster_name()),
    "d": Cell("TMP_DISK", lambda group: "0"),
    "B": Cell("MAX_CPUS_PER_NODE", lambda group: "UNLIMITED"),
    "M": Cell("PREEMPT_MODE", lambda group: "OFF"),
    "I": Cell("PRIO_JOB_FACTOR", lambda group: "1"),
    "p": Cell("PRIO_TIER", lambda group: "1"),
    "S": Cell("ALLOCNODES", lambda group: "all"),
    "i": Cell("RESERVATION", lambda group: ""),
}
_OF_PARTITIONS = {LETTERS[letter].title for letter in "PRa"}
# nodes that differ in one of these are on lines of their own, where it is shown
_TELL_APART = (
    *_OF_PARTITIONS,
    *(LETTERS[letter].title for letter in "lTnGbEuHfovLgU"),
    "GRES_USED",
    "STATECOMPLETE",
    "PORT",
)
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
        "GRES_USED", lambda group: _same(gres_used(node) or "(null)" for node in group.nodes)
    ),
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
    "features_act": LETTERS["b"],
    "StateComplete": Cell("STATECOMPLETE", lambda group: long_state(group.first)),
    "Comment": Cell("COMMENT", lambda group: "(null)"),
    "Extra": Cell("EXTRA", lambda group: "(null)"),
    "Port": Cell("PORT", lambda group: port_of(group.first)),
    **{
        name: LETTERS[letter]
        for name, letter in (
            *(("AllocNodes", "S"), ("Cluster", "V"), ("Cores", "Y"), ("DefaultTime", "L")),
            *(("Disk", "d"), ("Groups", "g"), ("MaxCPUsPerNode", "B"), ("OverSubscribe", "h")),
            *(("Share", "h"), ("PreemptMode", "M"), ("PriorityJobFactor", "I")),
            *(("PriorityTier", "p"), ("Reservation", "i"), ("Root", "r"), ("Size", "s")),
            *(("Sockets", "X"), ("SocketCoreThread", "z"), ("Threads", "Z"), ("UserLong", "U")),
            ("Weight", "w"),
        )
    },
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
    option("-r", "--responding", flag=True, help="that respond")
    option("-d", "--dead", flag=True, help="that do not respond")
    option("-T", "--reservation", flag=True, help="reservations")
    option("-i", "--iterate", help="repeat every so many seconds")
    option("--helpFormat", "--helpformat", flag=True, help="print the names of -O")
    option("--helpstate", flag=True, help="print the names of -t")
    found.as_json()
    for words in (("-e", "--exact"), ("-a", "--all"), ("-F", "--future"), ("--hide",)):
        option(*words, flag=True)
    for words in (("--local",), ("--federation",), ("--noconvert",)):
        option(*words, flag=True)
    return found


def sinfo(words: Sequence[str]) -> int:
    """List partitions and nodes."""
    given = _parser().read(words)
    if given.helpFormat or given.helpstate:
        print("\n".join(NAMES if given.helpFormat else dict.fromkeys((*LONG.values(), *SHORT))))
        return 0
    if given.reservation:
        from dlsched.cli.slurm.reservations import show  # noqa: PLC0415

        print("\n".join(show(())))
        return 0
    parts = _parts(given)
    names = node_names("--nodes", given.nodes or ())
    pause = seconds_between(given.iterate)
    with Client() as cluster:
        _list(given, parts, cluster, names)
        while pause:
            time.sleep(pause)
            _list(given, parts, cluster, names)
    return 0


def _list(given: Any, parts: Sequence[Part[Group]], cluster: Client, names: Sequence[str]) -> None:
    nodes = cluster.nodes(names)
    # the totals of a partition in JSON are of all its nodes
    every = cluster.nodes() if given.json and names else nodes
    partitions = [each.partition for each in cluster.tenants("partition")]
    states = {word.lower().rstrip("*") for word in joined(given.states)} - {"all"}
    if states:
        nodes = [node for node in nodes if _names_of(node) & states]
    if given.list_reasons:
        nodes = [node for node in nodes if node.reason]
    if given.responding or given.dead:
        answers = {bool(given.responding)}
        nodes = [node for node in nodes if responds(node) in answers]
    asked = set(joined(given.partition))
    shown = [part.cell for part in parts if part.cell is not None]
    if given.json:
        from dlsched.cli.slurm.shown.nodes_json import APART, print_groups  # noqa: PLC0415

        cells = [NAMES[name] for name in APART]
        print_groups(
            _groups(nodes, partitions, asked, cells, by_node=given.Node), partitions, every
        )
        return
    rows = _groups(nodes, partitions, asked, shown, by_node=given.Node)
    chosen = given.format or given.Format or given_by("SINFO_FORMAT")
    for line in lines(parts, *of_each(rows), header=not given.noheader, padded=not chosen):
        print(line, flush=bool(given.iterate))


def _parts(given: Any) -> list[Part[Group]]:
    if given.Format:
        if given.Format[-1].lower() == "all":
            return all_of(NAMES.values())
        return by_fields(",".join(given.Format), NAMES)
    own = given.Node or given.long or given.summarize or given.list_reasons
    chosen = given.format or ([] if own else given_by("SINFO_FORMAT"))
    if chosen and chosen[-1] == "%all":
        return all_of(LETTERS.values())
    if chosen:
        return by_letters(chosen[-1], LETTERS)
    if given.list_reasons or given.summarize:
        return by_letters(REASONS if given.list_reasons else SUMMARY, LETTERS)
    short, long = (BY_NODE, BY_NODE_LONG) if given.Node else (USUAL, LONG_LINES)
    return by_letters(long if given.long else short, LETTERS)


def _names_of(node: Node) -> set[str]:
    plain = plain_state(node)
    return {plain, SHORT.get(plain, plain), LONG.get(plain, plain)}


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
            has_usual = facts.HasField("default_time_s")
            usual = duration_text(facts.default_time_s) if has_usual else "n/a"
            mark = "*" if facts.is_default else ""
            state = plain_state(node)
            rank = _RANKS.index(state) if state in _RANKS else len(_RANKS)
            group = Group(
                partition=f"{name}{mark}",
                limit=limit,
                usual=usual,
                groups=",".join(facts.groups) or "all",
                nodes=(node,),
            )
            found.append(((places[name], rank), group))
    if not by_node:
        found.sort(key=lambda each: each[0])
    return [group for _, group in found]
