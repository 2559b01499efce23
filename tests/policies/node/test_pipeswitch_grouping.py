"""Groups of layers in which a model is copied: by hand, against exhaustive search, properties."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import combinations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dlsched.core.errors import BadInput
from dlsched.policies.node.pipeswitch.grouping import Model, best_groups
from tests.policies.node.switched_run import finish_time, one_group, per_layer


def model(size: list[float], compute: list[float], **more: float) -> Model:
    given_ = {"bandwidth": 12.0, **more}
    return Model(size=np.array(size), compute=np.array(compute), **given_)


def groupings(count: int) -> Iterator[list[int]]:
    """All of them: fewer groups first, then by their ends."""
    for groups in range(1, count + 1):
        for ends in combinations(range(count - 1), groups - 1):
            yield [*ends, count - 1]


def test_two_layers_by_hand() -> None:
    two = model([12, 12], [1, 1])
    assert finish_time(two, [1]) == 4
    assert finish_time(two, [0, 1]) == 3
    assert best_groups(two) == [0, 1]
    dear = replace(two, call=1.5)
    assert finish_time(dear, [1]) == 5.5
    assert finish_time(dear, [0, 1]) == 6
    assert best_groups(dear) == [1]


LAYERS = st.lists(st.tuples(st.integers(0, 40), st.integers(0, 20)), min_size=1, max_size=9)
COSTS = st.tuples(st.integers(1, 20), st.sampled_from([0, 1, 3]), st.sampled_from([0, 1, 2]))


@given(layers=LAYERS, costs=COSTS)
def test_of_all_groupings_the_best_is_found_with_the_stated_ties(
    layers: list[tuple[int, int]], costs: tuple[int, int, int]
) -> None:
    bandwidth, call, sync = costs
    made = model(
        [s for s, _ in layers], [c for _, c in layers], bandwidth=bandwidth, call=call, sync=sync
    )  # fmt: skip
    times = [(finish_time(made, ends), ends) for ends in groupings(len(layers))]
    best = min(time for time, _ in times)
    found = best_groups(made)
    assert finish_time(made, found) == pytest.approx(best, rel=1e-9)
    assert found == next(ends for time, ends in times if time <= best * (1 + 1e-9) + 1e-9)


@given(layers=LAYERS, costs=COSTS)
def test_what_holds_of_every_model(
    layers: list[tuple[int, int]], costs: tuple[int, int, int]
) -> None:
    bandwidth, call, sync = costs
    made = model(
        [s for s, _ in layers], [c for _, c in layers], bandwidth=bandwidth, call=call, sync=sync
    )  # fmt: skip
    ends = best_groups(made)
    best = finish_time(made, ends)
    assert (
        best <= min(finish_time(made, one_group(made)), finish_time(made, per_layer(made))) + 1e-9
    )
    faster = replace(made, bandwidth=bandwidth * 2.0)
    assert finish_time(faster, best_groups(faster)) <= best + 1e-9
    free = replace(made, call=0.0, sync=0.0)
    optimum = finish_time(free, best_groups(free))
    assert finish_time(free, per_layer(free)) == pytest.approx(optimum)
    copied = len(ends) * call + made.size.sum() / bandwidth
    first = call + made.size[: ends[0] + 1].sum() / bandwidth
    assert best >= max(copied, made.compute.sum() + first) - 1e-9


def test_a_model_of_150_layers_is_grouped() -> None:
    chance = np.random.default_rng(1)
    made = Model(
        size=chance.uniform(0.1, 5, 150),
        compute=chance.uniform(0.05, 0.5, 150),
        bandwidth=12.0,
        call=0.02,
        sync=0.02,
    )
    ends = best_groups(made)
    assert 1 < len(ends) < 150
    assert finish_time(made, ends) < finish_time(made, one_group(made))


@pytest.mark.parametrize(
    ("size", "compute", "more", "said"),
    [
        ([], [], {}, "a model of 0 sizes"),
        ([1.0], [1.0, 2.0], {}, "a model of 1 sizes and 2 computing times"),
        ([float("nan")], [1.0], {}, "layer 0: size is nan"),
        ([1.0], [-1.0], {}, "layer 0: compute is -1"),
        ([1.0], [1.0], {"bandwidth": 0.0}, "bandwidth must be above 0"),
    ],
)
def test_models_that_cannot_be_are_refused(
    size: list[float], compute: list[float], more: dict[str, float], said: str
) -> None:
    with pytest.raises(BadInput, match=said):
        model(size, compute, **more)


def test_groups_of_other_layers_are_refused() -> None:
    for ends in ([], [0], [1, 0], [0, 0, 1], [0, 2]):
        with pytest.raises(BadInput, match="layers in ascending order are needed, up to 1"):
            finish_time(model([1, 1], [1, 1]), ends)
