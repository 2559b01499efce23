"""The cells of a cluster: the worked examples of HiveD, what it refuses, and bad machines."""

from __future__ import annotations

from typing import Any

import pytest

from dlsched.core.cluster.cell_tables import grants_of, plan_from_tables
from dlsched.core.errors import BadInput
from dlsched.policies.placement.hived.cluster_cells import ClusterCells
from dlsched.policies.placement.hived.gangs import Gang, Placed, Request, Waits, pod_sizes
from dlsched.policies.placement.hived.stored import restore, stored

TINY = {
    "cell_types": {
        "PAIR": {"child": "GPU", "count": 2},
        "NODE": {"child": "PAIR", "count": 2, "node": True},
        "RACK": {"child": "NODE", "count": 2},
    },
    "physical_cells": [
        {"type": "RACK", "address": "r0", "children": [{"address": "n0"}, {"address": "n1"}]}
    ],
}
A_NODE_AND_B_PAIR = {"A": {"RACK.NODE": 1}, "B": {"RACK.NODE.PAIR": 1}}


def cells_for(
    owned: dict[str, dict[str, int]] = A_NODE_AND_B_PAIR,
    *,
    document: dict[str, Any] = TINY,
    pinned: dict[str, list[str]] | None = None,
) -> ClusterCells:
    plan = plan_from_tables(document, where="test")
    assert plan is not None
    owners = {
        vc: (
            grants_of([{"type": kind, "count": count} for kind, count in cells.items()], vc),
            tuple((pinned or {}).get(vc, ())),
        )
        for vc, cells in owned.items()
    }
    plan.check_owners(owners, where="test")
    return ClusterCells(plan, owners)


def request(name: str, vc: str, *pods: int, priority: int = 0, **more: Any) -> Request:
    return Request(name=name, vc=vc, priority=priority, pods=pod_sizes(pods), **more)


def start(cells: ClusterCells, name: str, vc: str, *pods: int, **more: Any) -> Gang:
    asked = request(name, vc, *pods, **more)
    found = cells.find(asked)
    assert isinstance(found, Placed), found
    assert not found.victims
    return cells.commit(asked, found)


def where(gang: Gang) -> list[tuple[str, list[int]]]:
    return [(pod[0].node, [gpu.index for gpu in pod]) for pod in gang.pods]


def free(cells: ClusterCells, chain: str = "RACK") -> dict[int, list[str]]:
    lists = enumerate(cells.ledgers[chain].free)
    return {level: sorted(cell.address for cell in found) for level, found in lists if found}


def test_cells_are_split_for_small_jobs_and_merged_when_they_end() -> None:
    cells = cells_for()
    assert free(cells) == {4: ["r0"]}
    first = start(cells, "a1", "A", 1)
    assert (where(first), free(cells)) == ([("n0", [0])], {3: ["r0/n1"]})
    second = start(cells, "a2", "A", 2)
    assert (where(second), free(cells)) == ([("n0", [2, 3])], {3: ["r0/n1"]})
    third = start(cells, "b1", "B", 1)
    assert (where(third), free(cells)) == ([("n1", [0])], {2: ["r0/n1/1"]})
    fourth = start(cells, "b2", "B", 1)
    assert (where(fourth), free(cells)) == ([("n1", [1])], {2: ["r0/n1/1"]})
    for gang in (first, second):
        cells.release(gang)
    assert free(cells) == {3: ["r0/n0"], 2: ["r0/n1/1"]}
    for gang in (third, fourth):
        cells.release(gang)
    assert free(cells) == {4: ["r0"]}


def test_a_small_job_of_one_cannot_block_the_node_of_the_other() -> None:
    cells = cells_for()
    assert where(start(cells, "b", "B", 2)) == [("n0", [0, 1])]
    assert where(start(cells, "a", "A", 4)) == [("n1", [0, 1, 2, 3])]


def test_a_virtual_cluster_waits_when_its_cells_are_used_and_others_do_not() -> None:
    cells = cells_for()
    start(cells, "a1", "A", 4)
    assert cells.find(request("a2", "A", 1)) == Waits(reason="insufficient capacity in vc A")
    start(cells, "b", "B", 1)


def test_opportunistic_jobs_use_what_is_idle_and_are_victims_as_whole_gangs() -> None:
    cells = cells_for()
    lent = start(cells, "o", "B", 4, 4, priority=-1)
    assert {gpu.node for gpu in lent.gpus} == {"n0", "n1"}
    asked = request("a", "A", 1)
    found = cells.find(asked)
    assert isinstance(found, Placed)
    assert found.victims == (lent,)
    gang = cells.reserve(asked, found)
    assert (gang.state, lent.state) == ("Preempting", "BeingPreempted")
    cells.release(lent)
    assert cells.victims_of(gang) == []
    cells.start(gang)
    cells.release(gang)
    assert free(cells) == {4: ["r0"]}


def test_a_reservation_keeps_equals_away_and_yields_to_higher_priority() -> None:
    cells = cells_for({"A": {"RACK.NODE": 1}})
    held = start(cells, "low", "A", 4)
    middle = request("middle", "A", 4, priority=1)
    found = cells.find(middle)
    assert isinstance(found, Placed)
    waiting = cells.reserve(middle, found)
    assert isinstance(cells.find(request("equal", "A", 1, priority=1)), Waits)
    high = request("high", "A", 4, priority=2)
    found = cells.find(high)
    assert isinstance(found, Placed)
    assert (found.victims, found.rivals) == ((held,), (waiting,))
    cells.cancel(waiting)
    cells.reserve(high, found)
    assert list(cells.gangs) == ["low", "high"]


def test_a_withdrawn_reservation_gives_the_victims_their_cells_back() -> None:
    cells = cells_for()
    held = start(cells, "low", "A", 4)
    before = free(cells)
    asked = request("high", "A", 2, priority=1)
    found = cells.find(asked)
    assert isinstance(found, Placed)
    cells.cancel(cells.reserve(asked, found))
    assert free(cells) == before
    assert isinstance(cells.find(request("other", "A", 1)), Waits)
    cells.release(held)
    assert free(cells) == {4: ["r0"]}


def test_a_lazy_job_runs_on_as_an_opportunistic_one() -> None:
    cells = cells_for()
    held = start(cells, "low", "A", 4, lazy=True)
    moved = start(cells, "high", "A", 4, priority=1)
    assert where(held) == [("n0", [0, 1, 2, 3])]
    assert where(moved) == [("n1", [0, 1, 2, 3])]
    assert (held.virtual, held.downgraded_by) == (None, "high")
    asked = request("b", "B", 2)
    found = cells.find(asked)
    assert isinstance(found, Placed)
    assert found.victims == (held,), "B's pair is safe: an opportunistic job leaves it"


def test_a_downgrade_is_undone_when_the_search_is_given_up() -> None:
    cells = cells_for()
    held = start(cells, "low", "A", 4, lazy=True)
    before = stored(cells)
    found = cells.find(request("high", "A", 4, priority=1))
    assert isinstance(found, Placed)
    assert held.virtual is None
    cells.undo(found)
    assert held.virtual is not None
    assert stored(cells)["gangs"] == before["gangs"]
    assert stored(cells)["bound"] == before["bound"]


def test_a_pinned_cell_is_its_owners_alone() -> None:
    document = {
        **TINY,
        "physical_cells": [
            {
                "type": "RACK",
                "address": "r0",
                "children": [{"address": "n0", "pinned": "fast"}, {"address": "n1"}],
            }
        ],
    }
    cells = cells_for({"A": {}, "B": {"RACK.NODE": 1}}, document=document, pinned={"A": ["fast"]})
    assert free(cells) == {3: ["r0/n1"]}
    assert where(start(cells, "b", "B", 4)) == [("n1", [0, 1, 2, 3])]
    assert where(start(cells, "a", "A", 4, pin="fast")) == [("n0", [0, 1, 2, 3])]
    assert isinstance(cells.find(request("a2", "A", 1)), Waits), "A owns nothing else"
    assert isinstance(cells.find(request("a3", "A", 1, pin="fast")), Waits)


@pytest.mark.parametrize(
    ("asked", "why"),
    [
        (request("x", "C", 1), "vc C owns no cells; those that do: A, B"),
        (request("x", "A", 1, pin="p"), "vc A: pinned cell 'p' is not known; known: none"),
        (request("x", "A", 1, priority=1001), "priority must be -1 .* to 1000 .*not 1001"),
        (request("x", "A", 1, priority=-2), "priority must be -1"),
        (request("x", "A", 1, gpu_type="k80"), "GPU type 'k80' is not known; known: GPU"),
    ],
)
def test_what_can_never_be_placed_is_refused(asked: Request, why: str) -> None:
    with pytest.raises(BadInput, match=why):
        cells_for().check(asked)


def test_an_opportunistic_job_may_not_use_a_pinned_cell() -> None:
    document = {**TINY, "physical_cells": [{"type": "RACK", "nodes": "n[0-1]", "pinned": "p"}]}
    cells = cells_for({"A": {}}, document=document, pinned={"A": ["p"]})
    with pytest.raises(BadInput, match="opportunistic job cannot use the pinned cell 'p'"):
        cells.check(request("x", "A", 1, priority=-1, pin="p"))


# -- bad machines ---------------------------------------------------------------------------------


def test_a_bad_machine_is_hidden_while_enough_healthy_cells_are_left() -> None:
    cells = cells_for({"A": {"RACK.NODE": 1}})
    cells.set_bad("n0")
    assert not any(each for levels in cells.ledgers["RACK"].doomed.values() for each in levels)
    assert where(start(cells, "a", "A", 4)) == [("n1", [0, 1, 2, 3])]


def test_a_cell_is_doomed_when_no_healthy_one_is_left_for_it() -> None:
    cells = cells_for({"A": {"RACK.NODE": 2}})
    cells.set_bad("n0")
    (root, other) = cells.roots["A"]
    assert root.bound is not None
    assert root.bound.address == "r0/n0"
    assert other.bound is None
    assert where(start(cells, "a", "A", 4)) == [("n1", [0, 1, 2, 3])]
    waits = cells.find(request("b", "A", 4))
    assert isinstance(waits, Waits)
    assert waits.reason == "would need node n0, which is bad in vc A"
    cells.set_healthy("n0")
    assert root.bound is None or root.bound.healthy
    assert where(start(cells, "b", "A", 4)) == [("n0", [0, 1, 2, 3])]


def test_a_job_on_a_machine_that_turns_bad_keeps_its_cells_until_it_ends() -> None:
    cells = cells_for()
    gang = start(cells, "a", "A", 4)
    cells.set_bad("n0")
    assert gang.state == "Allocated"
    cells.release(gang)
    cells.set_healthy("n0")
    assert free(cells) == {4: ["r0"]}


def test_an_opportunistic_job_that_ends_on_a_doomed_cell_leaves_it_doomed() -> None:
    cells = cells_for({"A": {"RACK.NODE": 2}, "B": {}})
    lent = start(cells, "o", "B", 4, priority=-1)
    assert {gpu.node for gpu in lent.gpus} == {"n0"}
    cells.set_bad("n0")
    cells.release(lent)
    assert [root.bound is not None for root in cells.roots["A"]] == [True, False]
    assert free(cells) == {3: ["r0/n1"]}
    cells.set_healthy("n0")
    assert free(cells) == {4: ["r0"]}


def test_a_doomed_cell_whose_healthy_part_is_used_is_free_after_both_end() -> None:
    cells = cells_for({"A": {"RACK": 1}})
    cells.set_bad("n0")
    gang = start(cells, "a", "A", 4)
    assert where(gang) == [("n1", [0, 1, 2, 3])]
    cells.set_healthy("n0")
    assert cells.ledgers["RACK"].doomed["A"][4] == []
    cells.release(gang)
    assert free(cells) == {4: ["r0"]}


# -- other cells than before ----------------------------------------------------------------------


def test_a_restored_state_answers_as_the_stored_one_would() -> None:
    cells = cells_for()
    start(cells, "a1", "A", 1)
    start(cells, "b1", "B", 2)
    start(cells, "o1", "B", 1, priority=-1)
    cells.set_bad("n1")
    again = cells_for()
    assert restore(again, stored(cells))
    assert stored(again) == stored(cells)
    for each in (cells, again):
        assert each.ledgers["RACK"].is_safe()
    assert cells.ledgers["RACK"].left == again.ledgers["RACK"].left
    assert cells.ledgers["RACK"].vc_free == again.ledgers["RACK"].vc_free
    answers = [each.find(request("a2", "A", 1)) for each in (cells, again)]
    assert all(isinstance(answer, Placed) for answer in answers)
    assert str(answers[0]) == str(answers[1])


def test_a_gang_that_no_longer_fits_its_virtual_cluster_runs_on_opportunistically() -> None:
    cells = cells_for()
    gang = start(cells, "a", "A", 4)
    smaller = cells_for({"A": {"RACK.NODE.PAIR": 1}, "B": {"RACK.NODE": 1}})
    assert not restore(smaller, stored(cells))
    gpus = [[smaller.gpus_of[gpu.node][gpu.index] for gpu in pod] for pod in gang.pods]
    adopted = smaller.adopt(gang.request, gpus, [[3] * 4])
    assert (adopted.virtual, adopted.downgraded_by) == (None, "a")
    assert where(adopted) == where(gang)
    assert where(start(smaller, "b", "B", 4)) == [("n1", [0, 1, 2, 3])]
