"""A decision tree, grown and pruned."""

from __future__ import annotations

import numpy as np

from dlsched.policies.learning.tree import grow

X = {"x": np.array([1.0, 2, 3, 4, 5, 6]), "y": np.array([0.0, 1, 0, 1, 0, 1])}


def test_a_clean_cut_is_one_question() -> None:
    tree = grow(X, np.array([0, 0, 0, 1, 1, 1]), depth=3)
    assert list(tree.lines(["low", "high"])) == ["x <= 3.5:", "  low", "x > 3.5:", "  high"]
    assert tree.answer({"x": 3.0, "y": 9.0}) == 0
    assert tree.answer({"x": 3.6, "y": 9.0}) == 1


def test_two_questions_where_one_is_not_enough() -> None:
    labels = np.array([0, 1, 0, 2, 0, 2])  # y says 0, x says which of the others
    tree = grow(X, labels, depth=2)
    assert [tree.answer({n: X[n][k] for n in X}) for k in range(6)] == labels.tolist()
    assert tree.leaves == 3


def test_pruning_drops_what_gains_too_little() -> None:
    labels = np.array([0, 0, 0, 1, 1, 0])
    assert grow(X, labels, depth=3).leaves > 2
    assert grow(X, labels, depth=3, cost=0.3).leaves == 1


def test_an_unknown_value_goes_to_the_low_side() -> None:
    tree = grow(X, np.array([0, 0, 0, 1, 1, 1]), depth=1)
    assert tree.answer({"x": np.nan, "y": 0.0}) == 0
