"""Maximum-weight matching in a general graph: which two of many go together best.

The blossom algorithm is rustworkx' (decision 0049).
"""

from __future__ import annotations

import numpy as np

from dlsched.core.arrays import Floats

EXACT = 2.0**40  # weights are whole numbers there: a part in a million millions


def best_pairs(weight: Floats) -> list[tuple[int, int]]:
    """The pairs of largest total weight, each (lower, higher), ascending by the higher.

    Args:
        weight: of each pair, [n, n], symmetric; a pair of weight 0 or less is never formed.
    """
    import rustworkx  # noqa: PLC0415 - only where jobs are grouped

    higher, lower = np.nonzero(np.tril(weight, -1) > 0)
    scaled = np.rint(weight[higher, lower] * (EXACT / max(float(weight.max()), 1e-300)))
    graph = rustworkx.PyGraph(multigraph=False)
    graph.add_nodes_from(range(len(weight)))
    edges = zip(higher.tolist(), lower.tolist(), scaled.astype(np.int64).tolist(), strict=True)
    graph.extend_from_weighted_edge_list(list(edges))
    found = rustworkx.max_weight_matching(graph, weight_fn=int)
    pairs = [(min(pair), max(pair)) for pair in found]
    return sorted(pairs, key=lambda pair: pair[1])
