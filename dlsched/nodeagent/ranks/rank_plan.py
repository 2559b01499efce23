"""What a `dlsched run` starts: which ranks go to which node, and which GPUs they see."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field, replace

from dlsched.core.errors import plural
from dlsched.job.messages import EVERY_RANK
from dlsched.protocol.messages import GpuId, NodeName, Share

MAX_RANKS = 4096  # of one call


class CannotPlace(Exception):
    """The ranks do not fit; the text tells the caller why."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RankPlace:
    """Where one rank runs, and with which GPUs."""

    rank: int
    local_rank: int
    gpus: tuple[GpuId, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class RankCommand:
    """What all ranks of one `dlsched run` have in common."""

    call: int  # its number among those of the run, from 1
    argv: tuple[str, ...]
    environment: dict[str, str] = field(repr=False)
    working_directory: str
    world: int  # ranks on all nodes
    nodes: tuple[NodeName, ...]  # that have ranks
    master_address: str  # of the first of them
    master_port: int
    tasks_per_node: str  # as Slurm writes it
    cpus_per_task: int = 0  # 0: as the job has it
    changed: tuple[str, ...] = ()  # variables of the runtime that the script has set anew
    input_to: int | None = None  # the rank that reads the call's input, or EVERY_RANK; None: none
    input_file: str = ""  # that each rank reads instead, with %N, %n, %t

    def reads(self, rank: int) -> bool:
        """Whether a rank reads the input of the call."""
        return self.input_to in (rank, EVERY_RANK)


def part_of(
    layout: Sequence[Share],
    nodes: Sequence[str],
    gpus: int | None,
    taken: Collection[GpuId],
    *,
    alone: bool = False,
) -> list[Share] | None:
    """Return the part of an allocation that one call gets; None while other calls have its GPUs.

    Args:
        layout: of the allocation.
        nodes: some of its nodes; empty: all.
        gpus: on each node, which no other such call has; None: all that the node has.
        taken: the GPUs that other calls have.
        alone: no other such call has any of all that the nodes have.

    Raises:
        CannotPlace: when the allocation has no such part.
    """
    check_count("GPUs on each node", gpus or 0)
    own = {str(share.node): share for share in layout}
    for name in nodes:
        if name not in own:
            raise CannotPlace(f"node {name} is not of this allocation ({', '.join(own)})")
    found = []
    for share in [own[name] for name in dict.fromkeys(nodes)] or layout:
        if gpus is None:
            if alone and any(each in taken for each in share.gpus):
                return None
            found.append(share)
            continue
        if gpus > len(share.gpus):
            raise CannotPlace(
                f"{plural(gpus, 'GPU')} on each node: node {share.node} has {len(share.gpus)}"
            )
        free = tuple(each for each in share.gpus if each not in taken)
        if gpus > len(free):
            return None
        found.append(replace(share, gpus=free[:gpus]))
    return found


def ranks_per_node(
    layout: Sequence[Share],
    ntasks: int,
    per_node: int,
    *,
    overcommit: bool = False,
    gpus_per_task: int = 0,
    plane: int = 0,
) -> list[int]:
    """Return how many ranks each node gets.

    `ntasks` is ranks in all, 0 for `per_node` on each node or one for each GPU; `per_node` is ranks
    on each node, filled in order, 0 to spread them evenly. With `overcommit`, they may be more than
    GPUs; not with `gpus_per_task`, which each of them has. With `plane`, so many of them go to each
    node in turn, until there are no more.

    Raises:
        CannotPlace: when they do not fit.
    """
    check_count("ranks", ntasks)
    check_count("ranks on each node", per_node)
    room = [max(1, len(share.gpus)) for share in layout]
    if overcommit and gpus_per_task:
        room = [len(share.gpus) // gpus_per_task for share in layout]
    if not ntasks:
        return [per_node] * len(layout) if per_node else room
    if per_node:
        if ntasks > per_node * len(layout):
            raise CannotPlace(
                f"{ntasks} ranks do not fit on {plural(len(layout), 'node')} with {per_node} each"
            )
        full, rest = divmod(ntasks, per_node)
        found = [per_node] * full + ([rest] if rest else [])
        return found + [0] * (len(layout) - len(found))
    if plane > 1:
        turns, rest = divmod(ntasks, plane * len(layout))
        return [
            turns * plane + min(max(rest - place * plane, 0), plane) for place in range(len(layout))
        ]
    if overcommit and not gpus_per_task:
        full, rest = divmod(ntasks, len(layout))
        return [full + (place < rest) for place in range(len(layout))]
    if overcommit and ntasks > sum(room):
        have = ", ".join(f"{share.node} {len(share.gpus)}" for share in layout)
        raise CannotPlace(
            f"{plural(ntasks, 'rank')} with {plural(gpus_per_task, 'GPU')} each: "
            f"its nodes have: {have}"
        )
    if ntasks > sum(room):
        raise CannotPlace(
            f"{ntasks} ranks for {plural(sum(room), 'GPU')}: "
            "say how many a node (--ntasks-per-node)"
        )
    found, left = [0] * len(layout), ntasks
    while left:  # one more on each node that has room
        for place, most in enumerate(room):
            if left and found[place] < most:
                found[place] += 1
                left -= 1
    return found


def plan_ranks(
    layout: Sequence[Share],
    ntasks: int,
    per_node: int,
    gpus_per_task: int,
    *,
    overcommit: bool = False,
    tasks_per_gpu: int = 0,
    gpu_masks: Sequence[int] = (),
    plane: int = 0,
) -> list[list[RankPlace]]:
    """Return the ranks of each node, in the order of the layout.

    Args:
        layout: the nodes of the allocation and their GPUs.
        ntasks: as of `ranks_per_node`.
        per_node: as of `ranks_per_node`.
        gpus_per_task: GPUs of each rank; 0: each sees all GPUs of its node.
        overcommit: as of `ranks_per_node`.
        tasks_per_gpu: so many ranks of a node, one after the other, see one GPU; 0: not said.
        gpu_masks: bits of the GPUs that ranks of a node see, one after the other, again and again.
        plane: so many ranks, one after the other, on each node in turn; 0: all of a node at once.

    Raises:
        CannotPlace: when they, or their GPUs, do not fit.
    """
    check_count("GPUs of each rank", gpus_per_task)
    check_count("ranks of one GPU", tasks_per_gpu)
    check_count("ranks in turn", plane)
    counts = ranks_per_node(
        layout,
        ntasks,
        per_node,
        overcommit=overcommit,
        gpus_per_task=gpus_per_task,
        plane=plane,
    )
    check_count("ranks", sum(counts))
    for share, count in zip(layout, counts, strict=True):
        if count * gpus_per_task > len(share.gpus):
            raise CannotPlace(
                f"{plural(count, 'rank')} with {plural(gpus_per_task, 'GPU')} each: "
                f"node {share.node} has {len(share.gpus)}"
            )
    found: list[list[RankPlace]] = [[] for _ in layout]
    for rank, at in enumerate(_nodes_of_ranks(counts, plane)):
        local, gpus = len(found[at]), layout[at].gpus
        if gpus_per_task:
            gpus = gpus[local * gpus_per_task :][:gpus_per_task]
        elif tasks_per_gpu and gpus:
            gpus = (gpus[local // tasks_per_gpu % len(gpus)],)
        elif gpu_masks:
            gpus = _masked(layout[at], gpu_masks[local % len(gpu_masks)])
        found[at].append(RankPlace(rank=rank, local_rank=local, gpus=gpus))
    return found


def _nodes_of_ranks(counts: Sequence[int], plane: int) -> Iterator[int]:
    """The place of each rank's node: all ranks of a node, or so many of each node in turn."""
    left = list(counts)
    while any(left):
        for at, most in enumerate(left):
            some = min(plane or most, most)
            left[at] -= some
            yield from [at] * some


def _masked(share: Share, mask: int) -> tuple[GpuId, ...]:
    """The GPUs of a node at the places of a mask's bits.

    Raises:
        CannotPlace: there is none at one of them.
    """
    if mask <= 0 or mask >> len(share.gpus):
        has = f"{plural(len(share.gpus), 'GPU')} here"
        raise CannotPlace(f"--gpu-bind: node {share.node} has {has}, which count from 0")
    return tuple(gpu for place, gpu in enumerate(share.gpus) if mask >> place & 1)


def check_count(what: str, count: int) -> None:
    """Refuse a number that no call has, before any work is done for it.

    Raises:
        CannotPlace: it is negative or too large.
    """
    if not 0 <= count <= MAX_RANKS:
        raise CannotPlace(f"{what}: 0 to {MAX_RANKS} are possible in one call")
