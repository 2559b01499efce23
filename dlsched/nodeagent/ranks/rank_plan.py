"""What a `dlsched run` starts: which ranks go to which node, and which GPUs they see."""

from __future__ import annotations

from collections.abc import Collection, Sequence
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
    layout: Sequence[Share], nodes: Sequence[str], gpus: int | None, taken: Collection[GpuId]
) -> list[Share] | None:
    """Return the part of an allocation that one call gets; None while other calls have its GPUs.

    Args:
        layout: of the allocation.
        nodes: some of its nodes; empty: all.
        gpus: on each node, which no other such call has; None: all that the node has.
        taken: the GPUs that other calls have.

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
    layout: Sequence[Share], ntasks: int, per_node: int, *, overcommit: bool = False
) -> list[int]:
    """Return how many ranks each node gets.

    `ntasks` is ranks in all, 0 for `per_node` on each node or one for each GPU; `per_node` is ranks
    on each node, filled in order, 0 to spread them evenly. With `overcommit`, they may be more than
    GPUs.

    Raises:
        CannotPlace: when they do not fit.
    """
    check_count("ranks", ntasks)
    check_count("ranks on each node", per_node)
    room = [max(1, len(share.gpus)) for share in layout]
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
    if overcommit:
        full, rest = divmod(ntasks, len(layout))
        return [full + (place < rest) for place in range(len(layout))]
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
) -> list[list[RankPlace]]:
    """Return the ranks of each node, in the order of the layout.

    Args:
        layout: the nodes of the allocation and their GPUs.
        ntasks: as of `ranks_per_node`.
        per_node: as of `ranks_per_node`.
        gpus_per_task: GPUs of each rank; 0: each sees all GPUs of its node.
        overcommit: as of `ranks_per_node`.

    Raises:
        CannotPlace: when they, or their GPUs, do not fit.
    """
    check_count("GPUs of each rank", gpus_per_task)
    found: list[list[RankPlace]] = []
    rank = 0
    counts = ranks_per_node(layout, ntasks, per_node, overcommit=overcommit)
    check_count("ranks", sum(counts))
    for share, count in zip(layout, counts, strict=True):
        if count * gpus_per_task > len(share.gpus):
            raise CannotPlace(
                f"{plural(count, 'rank')} with {plural(gpus_per_task, 'GPU')} each: "
                f"node {share.node} has {len(share.gpus)}"
            )
        here = []
        for local in range(count):
            own = share.gpus[local * gpus_per_task :][:gpus_per_task]
            here.append(
                RankPlace(rank=rank, local_rank=local, gpus=own if gpus_per_task else share.gpus)
            )
            rank += 1
        found.append(here)
    return found


def check_count(what: str, count: int) -> None:
    """Refuse a number that no call has, before any work is done for it.

    Raises:
        CannotPlace: it is negative or too large.
    """
    if not 0 <= count <= MAX_RANKS:
        raise CannotPlace(f"{what}: 0 to {MAX_RANKS} are possible in one call")
