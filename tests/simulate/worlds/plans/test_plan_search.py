"""Plans of a training: replicas, what they pass on, and the best plan that is found."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dlsched.core.errors import BadInput
from simulate.worlds.plans.deployment import Choice, graph_of, proportional_replicas
from simulate.worlds.plans.devices import Devices, devices_of
from simulate.worlds.plans.model import Model, ModelOperation
from simulate.worlds.plans.search import Search, throughputs


def devices(said: str, **memory_bytes: int) -> Devices:
    return devices_of(said, link_gbps=80, nic_gbps=50, memory_bytes=memory_bytes)


def layer(number: int, us: int, parameters: int = 0, taken: int = 0) -> ModelOperation:
    return ModelOperation(
        name=f"f{number}",
        us={"fast": us, "slow": 2 * us},
        parameter_bytes=parameters,
        gradient_bytes=parameters,
        inputs={f"f{number - 1}": taken} if number else {},
        group=f"f{number}",
    )


def model(*layers: ModelOperation) -> Model:
    return Model("net", 32, layers)


def test_a_slow_gpu_with_an_even_part_gains_nothing_and_with_a_proportional_one_a_third() -> None:
    search = Search(model(layer(0, 9_000)), devices("1xfast,1xslow"))
    times = {name: each.iteration_us for name, each in search.uniform().items()}
    assert times["fast-0"] == 9_000
    assert times["even, all-reduce"] == 9_000  # no gradients
    assert times["proportional, all-reduce"] == 6_000


def test_replicas_are_by_speed() -> None:
    assert proportional_replicas(model(layer(0, 100)), devices("1xslow,2xfast")) == (0, 1, 1, 2, 2)


@given(st.integers(1, 7), st.integers(1, 7), st.integers(0, 10**9))
def test_replicas_pass_on_all_bytes_but_for_rounding(n: int, m: int, size: int) -> None:
    plan = {"f0": Choice(tuple(range(n))), "f1": Choice(tuple(range(m)))}
    graph = graph_of(model(layer(0, 1), layer(1, 1, taken=size)), plan, devices("8xfast"))
    assert size - len(graph.edges) < sum(edge.bytes or 0 for edge in graph.edges) <= size
    assert len(graph.edges) <= n + m - 1


@given(
    st.lists(
        st.tuples(st.integers(1, 9_000), st.integers(0, 10**8), st.integers(0, 10**7)),
        min_size=1,
        max_size=5,
    ),
    st.sampled_from(["1xfast,1xslow", "2xfast,2xslow", "1xslow"]),
    st.sampled_from(["upward", "source", "fifo"]),
)
def test_no_uniform_plan_is_better_than_the_one_found(
    layers: list[tuple[int, int, int]], gpus: str, order: str
) -> None:
    net = model(*(layer(n, *each) for n, each in enumerate(layers)))
    search = Search(net, devices(gpus), order=order, exhaustive=40, steps=20)  # type: ignore[arg-type]
    best = search.best()
    assert best.iteration_us <= min(each.iteration_us for each in search.uniform().values())
    assert best.iteration_us == search.run(best.plan).iteration_us


def test_the_search_finds_what_trying_all_plans_finds() -> None:
    net = model(layer(0, 4_000, 10**6), layer(1, 9_000, 8 * 10**6, 600_000),
                layer(2, 3_000, 6 * 10**7, 200_000))  # fmt: skip
    by_all = Search(net, devices("1xfast,1xslow"))
    by_steps = Search(net, devices("1xfast,1xslow"), exhaustive=0, steps=100)
    assert by_steps.best().iteration_us == by_all.best().iteration_us
    assert by_steps.tried < by_all.tried
    again = Search(net, devices("1xfast,1xslow"), exhaustive=0, steps=100)
    assert again.best().plan == by_steps.best().plan


def test_a_plan_that_fits_is_taken_before_a_faster_one_that_does_not() -> None:
    net = model(layer(0, 1_000, 100), layer(1, 1_000, 100, 10))
    fits = Search(net, devices("1xfast,1xslow", fast=150)).best()
    assert fits.fits
    assert {fits.plan["f0"].devices, fits.plan["f1"].devices} != {(0,)}
    with pytest.raises(BadInput, match="no plan fits the memory of the GPUs; the best needs"):
        Search(net, devices("1xfast,1xslow", fast=50, slow=50)).best()


def test_speeds_are_of_each_type_alone() -> None:
    net = model(layer(0, 8_000))
    found = throughputs(lambda on: Search(net, on), devices("2xfast,3xslow"))
    assert found == [
        ("fast", 1, 125.0), ("fast", 2, 250.0),
        ("slow", 1, 62.5), ("slow", 2, 125.0), ("slow", 3, 1e6 / (16_000 // 3)),
    ]  # fmt: skip
