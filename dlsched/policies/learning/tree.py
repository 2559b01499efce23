"""A decision tree that is grown by Gini impurity and pruned by the cost of its size.

Source: Breiman, Friedman, Olshen, Stone, "Classification and Regression Trees", 1984.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from dlsched.core.arrays import Floats, Ints


@dataclass(slots=True)
class Node:
    """A node of a tree.

    Attributes:
        label: the answer of this node if it is a leaf.
        impurity: Gini impurity × the part of all rows that reach it.
        feature: what is asked; "" in a leaf.
        limit: rows with at most so much go to `low`; unknown values go there, too.
        low: the subtree of small values.
        high: the other one.
    """

    label: int
    impurity: float
    feature: str = ""
    limit: float = 0.0
    low: Node | None = None
    high: Node | None = None

    @property
    def leaves(self) -> int:
        """How many leaves it has."""
        if self.low is None or self.high is None:
            return 1
        return self.low.leaves + self.high.leaves

    @property
    def leaf_impurity(self) -> float:
        """The impurity of its leaves together."""
        if self.low is None or self.high is None:
            return self.impurity
        return self.low.leaf_impurity + self.high.leaf_impurity

    def answer(self, row: Mapping[str, float]) -> int:
        """The label of one row."""
        if self.low is None or self.high is None:
            return self.label
        is_low = not row[self.feature] > self.limit
        return (self.low if is_low else self.high).answer(row)

    def lines(self, names: Sequence[str], depth: int = 0) -> Iterator[str]:
        """The tree in words, a line a node; `names` are those of the labels."""
        before = "  " * depth
        if self.low is None or self.high is None:
            yield f"{before}{names[self.label]}"
            return
        yield f"{before}{self.feature} <= {self.limit:g}:"
        yield from self.low.lines(names, depth + 1)
        yield f"{before}{self.feature} > {self.limit:g}:"
        yield from self.high.lines(names, depth + 1)


def grow(features: Mapping[str, Floats], labels: Ints, *, depth: int, cost: float = 0.0) -> Node:
    """Learn a tree of at most some depth, and prune what gains less impurity than `cost` a leaf.

    Args:
        features: a column of known numbers by name.
        labels: from 0, by row.
        depth: most questions from the root to a leaf.
        cost: of cost-complexity pruning.
    """
    root = _grown(features, labels, len(labels), int(labels.max()) + 1, depth)
    return _pruned(root, cost)


def _gini(counts: Floats) -> Floats:
    """Gini impurity × rows, of each row of label counts."""
    rows = counts.sum(axis=-1)
    squares = (counts**2).sum(axis=-1)
    return np.asarray(rows - np.divide(squares, rows, out=np.zeros_like(rows), where=rows > 0))


def _grown(
    features: Mapping[str, Floats], labels: Ints, all_rows: int, kinds: int, depth: int
) -> Node:
    counts = np.bincount(labels, minlength=kinds).astype(np.float64)
    node = Node(int(counts.argmax()), float(_gini(counts)) / all_rows)
    best = (node.impurity * all_rows, "", 0.0)
    if depth > 0:
        for name, column in features.items():
            order = np.argsort(column, kind="stable")
            ones = np.eye(kinds)[labels[order]]
            below = np.cumsum(ones, axis=0)[:-1]
            impurity = _gini(below) + _gini(counts - below)
            values = column[order]
            impurity[values[1:] == values[:-1]] = np.inf
            if impurity.size and impurity.min() < best[0] - 1e-12:
                place = int(impurity.argmin())
                best = (float(impurity[place]), name, float(values[place : place + 2].mean()))
    _, node.feature, node.limit = best
    if node.feature:
        is_low = features[node.feature] <= node.limit
        halves = [
            _grown(
                {n: c[side] for n, c in features.items()}, labels[side], all_rows, kinds, depth - 1
            )
            for side in (is_low, ~is_low)
        ]
        node.low, node.high = halves
    return node


def _pruned(node: Node, cost: float) -> Node:
    """Replace subtrees by leaves, from the bottom, where they gain too little for their size."""
    if node.low is None or node.high is None:
        return node
    node.low, node.high = _pruned(node.low, cost), _pruned(node.high, cost)
    if (node.impurity - node.leaf_impurity) / (node.leaves - 1) <= cost:
        return Node(node.label, node.impurity)
    return node
