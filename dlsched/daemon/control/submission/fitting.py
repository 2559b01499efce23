"""Whether any state of the cluster could run a job: its GPUs by node and type, processors, memory.

What is refused names what is asked for and what there is.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from dlsched.client.submission.memory import memory_text
from dlsched.core.cluster.features import CONTAINER, alternatives_of, holds
from dlsched.core.cluster.gpus_by_type import ByType, by_type_of, by_type_words
from dlsched.core.cluster.host_lists import expand
from dlsched.core.errors import BadInput, plural
from dlsched.daemon.capacity import Capacity, Host
from dlsched.db.records import JobBody
from dlsched.host_lists import fold
from dlsched.nodes.fields import ROWS, Row

MOST_TOLD = 4  # kinds of nodes that a refusal names


def check_fits(body: JobBody, capacity: Capacity, within: str | None = None) -> None:
    """Refuse a gang that no state of this cluster could hold.

    Args:
        body: of the job.
        capacity: of the cluster.
        within: a host list of the only nodes that it may use; None: any.

    Raises:
        BadInput: naming what is asked for and what there is.
    """
    if not capacity.hosts:
        return  # no node is known yet: nothing can be said
    types = {name.lower() for name in body.gpu_types}
    wanted = alternatives_of(body.constraint)
    only, unwanted = frozenset(body.only_nodes), frozenset(body.not_nodes)
    kept = None if within is None else frozenset(expand("nodes", within))
    hosts = [
        host
        for host in capacity.usable(body.partition, only, unwanted)
        if (not types or host.may_be_of(types))
        and (kept is None or host.name in kept)
        and holds(wanted, host.features)
    ]
    where = _kind(body, within, capacity.mixed(types, only))
    least = body.min_gpus if body.min_gpus is not None else body.gpus
    needs = sorted(body.layout or (), reverse=True)
    if body.gpus_by_type:
        hosts = _with_types(hosts, by_type_of(body.gpus_by_type), len(needs))
    _check_gpus(needs, least, [host.gpus for host in hosts], where)
    _check_host(body, needs, least, hosts)


def _kind(body: JobBody, within: str | None, mixed: str) -> str:
    """What a job asks of its nodes and GPUs, as an error says it; empty: nothing.

    Args:
        body: of the job.
        within: as of `check_fits`.
        mixed: nodes that do not count, and why.
    """
    alternatives = (
        " and ".join("Apptainer or enroot" if name == CONTAINER else name for name in names)
        for names in alternatives_of(body.constraint)
    )
    said = (
        ("", " or ".join(body.gpu_types)),
        ("on ", fold(body.only_nodes)),
        ("not on ", fold(body.not_nodes)),
        ("in partition ", body.partition),
        ("with ", ", or ".join(alternatives)),
        ("reserved: ", within or ""),
    )
    words = ", ".join(f"{what}{value}" for what, value in said if value)
    return f" of that kind ({'; '.join(filter(None, (words, mixed)))})" if words else ""


def _check_gpus(needs: Sequence[int], least: int, gpus: Sequence[int], where: str) -> None:
    """Refuse what the nodes' GPUs can never give."""
    there = sorted(gpus, reverse=True)
    if not needs:
        if sum(there) < least or not there:
            raise BadInput(
                f"needs {plural(least, 'GPU')}, and the cluster has {sum(there)}{where} "
                "(--open-ended waits for more)"
            )
        return
    if len(needs) > len(there) or any(a > b for a, b in zip(needs, there, strict=False)):
        raise BadInput(
            f"needs {plural(len(needs), 'node')} with {plural(needs[0], 'GPU')} each at most; "
            f"the cluster has {plural(len(there), 'node')}{where}, the largest "
            f"with {there[0] if there else 0} (--open-ended waits for others)"
        )


def _with_types(hosts: Sequence[Host], wanted: ByType, nodes: int) -> list[Host]:
    """The hosts that have so many GPUs of each type, or do not say; refused where too few do."""
    fits = [host for host in hosts if host.may_give(wanted)]
    if len(fits) >= nodes:
        return fits
    types = [kind for kind, _ in wanted]
    having: dict[str, list[str]] = {}  # names of hosts by what they have of these types
    for host in hosts:
        if some := tuple((kind, n) for kind in types if (n := host.of_type(kind))):
            having.setdefault(by_type_words(some), []).append(host.name)
    told = [f"{fold(names)} {_has(names)} {what}" for what, names in having.items()]
    told = told or [f"no node has any {' or '.join(types)}"]
    if len(told) > MOST_TOLD:
        told[MOST_TOLD:] = [f"{len(told) - MOST_TOLD} others have other numbers of them"]
    asked = by_type_words(wanted)
    few = f"no node has {asked}" if nodes == 1 else f"needs {plural(nodes, 'node')} with {asked}"
    raise BadInput(f"{few}; {'; '.join(told)} (--open-ended waits for others)")


def _has(names: Sequence[str]) -> str:
    return "has" if len(names) == 1 else "have"


def _check_host(body: JobBody, needs: Sequence[int], least: int, hosts: Sequence[Host]) -> None:
    """Refuse what the nodes' processors and memory can never give; `hosts` have the GPUs."""
    nodes, gpus = len(needs) or 1, body.gpus
    cpus_each = (body.cpus or 0) / (gpus or nodes)  # of a GPU, or of a node where it has none

    def on_node(count: int) -> int:
        return math.ceil(cpus_each * (count if gpus else 1) - 1e-9)

    fits = hosts
    for row in ROWS.values():
        if row.need:
            fits = _with_bytes(fits, row, getattr(body, row.need), nodes)
    counts = needs or (1 if gpus else 0,)
    big = [host for host in fits if host.cpus is None or host.cpus >= on_node(counts[0])]
    if len(big) < sum(count == counts[0] for count in counts):
        best = max(fits, key=lambda host: host.cpus or 0)
        raise BadInput(
            f"node {best.name} has {plural(best.cpus or 0, 'CPU')}, {on_node(counts[0])} are "
            f"asked for{_more(nodes)}"
        )
    if not needs and gpus and cpus_each:
        usable = [
            host.gpus if host.cpus is None else min(host.gpus, int(host.cpus / cpus_each + 1e-9))
            for host in fits
        ]
        if sum(usable) < least:
            raise BadInput(
                f"needs {plural(least, 'GPU')} with {cpus_each:g} CPUs each, and the processors of "
                f"the cluster suffice for {sum(usable)}"
            )


def _with_bytes(hosts: Sequence[Host], row: Row, asked: int | None, nodes: int) -> Sequence[Host]:
    """The hosts that have enough bytes of something, or do not say; refused where too few do."""
    if asked is None:
        return hosts
    fits = [host for host in hosts if (host.has.get(row.name) or asked) >= asked]
    if len(fits) < nodes:
        best = max(hosts, key=lambda host: host.has.get(row.name) or 0)
        has = best.has.get(row.name) or 0
        raise BadInput(
            f"node {best.name} has {memory_text(has)} of {row.label}, "
            f"{memory_text(asked)} is asked for{_more(nodes)}"
        )
    return fits


def _more(nodes: int) -> str:
    """How a need for each of several nodes is told, and the way out."""
    return f"{' on each node' if nodes > 1 else ''} (--open-ended waits for others)"
