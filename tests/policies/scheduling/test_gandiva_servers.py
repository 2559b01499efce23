"""Gandiva's rules for servers and turns, worked by hand, and what holds of any jobs."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from dlsched.policies.scheduling.gandiva.servers import Move, Servers, turns


def anywhere(job: int, server: int) -> bool:
    return True


def any_job(job: int) -> bool:
    return True


def test_jobs_find_servers_by_affinity_and_take_turns_where_there_is_no_room() -> None:
    servers = Servers({0: 4, 1: 4})
    assert servers.assign(1, 4, (0, 1))
    assert servers.assign(2, 1, (0, 1))
    assert servers.affinity == {0: 4, 1: 1}
    assert servers.assign(3, 4, (0, 1)), "no affinity-4 room, none empty, three free on the other"
    assert servers.of[3] == {0: 4}
    assert servers.height(0) == 2
    assert servers.assign(4, 2, (0, 1))
    assert servers.of[4] == {1: 2}, "two of its three free GPUs, whatever the affinity"
    servers.leave(1)
    assert servers.height(0) == 1
    assert servers.of[3] == {0: 4}


def test_a_job_without_servers_of_its_size_waits() -> None:
    servers = Servers({0: 4})
    assert servers.assign(1, 4, [0])
    assert not servers.assign(2, 2, [0])
    servers.leave(1)
    assert 0 not in servers.affinity
    assert servers.assign(2, 2, [0])


def test_a_large_gang_takes_empty_servers_and_shares_all_of_them_with_its_like() -> None:
    servers = Servers({0: 4, 1: 4, 2: 4})
    assert servers.assign(1, 8, (0, 1, 2))
    assert servers.of[1] == {0: 4, 1: 4}
    assert servers.assign(2, 8, (0, 1, 2))
    assert servers.of[2] == {0: 4, 1: 4}
    assert turns([1, 2], servers.of, servers.gpus) == [1], "never rank by rank"


def test_free_gpus_of_several_servers_make_a_gang() -> None:
    servers = Servers({0: 4, 1: 4})
    for job in (1, 2):
        assert servers.assign(job, 3, (0, 1))
    assert servers.assign(3, 2, (0, 1))
    assert servers.of[3] == {0: 1, 1: 1}
    servers.leave(1)
    assert servers.gathering(anywhere, any_job) == Move(3, 0)


def test_a_full_server_gives_a_job_to_one_that_was_left() -> None:
    servers = Servers({0: 4, 1: 4})
    assert servers.assign(1, 4, [0])
    assert servers.assign(2, 4, [0])
    assert servers.assign(3, 4, [1])
    assert servers.relieving(anywhere) is None
    servers.leave(3)
    assert servers.relieving(anywhere) == Move(2, 1)
    servers.move(2, 1)
    assert not servers.is_overloaded


def test_the_emptiest_server_in_use_gives_its_jobs_to_the_fullest_that_fits() -> None:
    """Used are 1, 3 and 2 of 4: the first is emptied into the second; then 2 free are few."""
    servers = Servers({0: 4, 1: 4, 2: 4})
    servers.of = {1: {0: 1}, 2: {1: 1}, 3: {1: 1}, 4: {1: 1}, 5: {2: 1}, 6: {2: 1}}
    assert servers.defragmenting(0.75, anywhere, any_job) == Move(1, 1)
    servers.move(1, 1)
    assert servers.demand(0) == 0
    assert servers.defragmenting(0.75, anywhere, any_job) is None


sizes = st.lists(st.sampled_from([1, 1, 2, 4, 8]), min_size=1, max_size=12)


@given(sizes, st.lists(st.sampled_from([2, 4]), min_size=1, max_size=4), st.data())
def test_no_turn_gives_a_server_more_than_it_has(
    gangs: list[int], gpus: list[int], data: st.DataObject
) -> None:
    servers = Servers(dict(enumerate(gpus)))
    for job, gang in enumerate(gangs):
        if servers.assign(job, gang, servers.gpus):
            assert sum(servers.of[job].values()) == gang
    order = data.draw(st.permutations(list(servers.of)))
    chosen = turns(order, servers.of, servers.gpus)
    for server, size in servers.gpus.items():
        assert sum(servers.of[job].get(server, 0) for job in chosen) <= size
    if order and all(
        count <= servers.gpus[server] for server, count in servers.of[order[0]].items()
    ):
        assert order[0] in chosen, "the first always has its turn"


@given(sizes, st.integers(1, 4))
def test_nothing_moves_where_no_gpu_is_idle(gangs: list[int], count: int) -> None:
    servers = Servers(dict.fromkeys(range(count), 4))
    for job, gang in enumerate(gangs):
        servers.assign(job, gang, servers.gpus)
    if not any(servers.free(server) for server in servers.gpus):
        assert servers.relieving(anywhere) is None
        assert servers.defragmenting(0.75, anywhere, any_job) is None
