"""The shares with the greatest sum of gains (section 4.2's optimum), as an integer program.

Each row gets one entry of its menu; what rows get fits into their nodes. With one node that holds
the whole cluster's processors and memory this is the paper's first program. Its second one splits
jobs over nodes so that the first one's answer fits; here GPUs are whole and chosen before, and each
node has limits of its own.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from dlsched.core.arrays import Floats, Ints
from dlsched.core.errors import PolicyFailed
from dlsched.policies.highs import Limits, MixedProgram

EXACT = Limits(gap=1e-9, nodes=1_000_000)


def best_shares(
    menus: Sequence[Floats], gains: Sequence[Floats], gpus: Floats, capacity: Floats
) -> list[int]:
    """Choose an entry for each row.

    Args:
        menus: of each row, [entry, (processors, GB)] for each GPU.
        gains: the speed of each row with each entry, over that with its proportional share.
        gpus: that each row has on each node, [row, node].
        capacity: of nodes, [(processors, GB), node]; NaN: not counted.

    Returns:
        the entry of each row.

    Raises:
        PolicyFailed: no choice fits into the nodes.
    """
    program = MixedProgram()
    kept = [_worthwhile(menu, gain) for menu, gain in zip(menus, gains, strict=True)]
    columns = [
        [program.column(gain.item(entry), 0.0, 1.0, whole=True) for entry in entries]
        for gain, entries in zip(gains, kept, strict=True)
    ]
    for numbers in columns:
        program.row(1.0, 1.0, dict.fromkeys(numbers, 1.0))
    for node in range(gpus.shape[1]):
        here = np.flatnonzero(gpus[:, node]).tolist()
        for kind in range(2):
            limit = capacity.item(kind, node)
            if here and not np.isnan(limit):
                entries = {
                    number: gpus.item(row, node) * menus[row].item(entry, kind)
                    for row in here
                    for number, entry in zip(columns[row], kept[row], strict=True)
                }
                program.row(-np.inf, limit, entries)
    found = program.solve(EXACT, None)
    if found is None:
        raise PolicyFailed("the proportional shares of the jobs on a node do not fit into it")
    x = found[0]
    return [
        entries[int(np.argmax(x[numbers]))] for entries, numbers in zip(kept, columns, strict=True)
    ]


def _worthwhile(menu: Floats, gain: Floats) -> list[int]:
    """Entries for which there is none as fast with as few processors and as little memory."""
    order: Ints = np.lexsort((menu[:, 1], menu[:, 0], -gain))
    kept: list[int] = []
    for entry in order.tolist():
        if not any((menu[other] <= menu[entry]).all() for other in kept):
            kept.append(entry)
    return kept
