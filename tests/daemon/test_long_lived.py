"""A daemon's search for unreachable objects looks only at what is new, and is undone at its end."""

from __future__ import annotations

import gc

from dlsched.daemon.long_lived import SOME, LongLivedObjects


def searched() -> int:
    """How many objects a full search would look at now."""
    return len(gc.get_objects())


def make_old(objects: int) -> list[list[int]]:
    """So many new objects that `settle` finds some to do."""
    made: list[list[int]] = []
    while len(made) < objects or gc.get_count()[2] < SOME:
        made.append([0])
    return made


def test_what_the_process_had_at_the_start_is_never_searched() -> None:
    had = make_old(100_000)
    objects = LongLivedObjects()
    try:
        assert searched() < len(had)
        held = make_old(50_000)
        assert searched() > len(held)
        objects.settle()
        assert searched() < 10_000  # what is old by now is out of the search
        assert len(had) + len(held) >= 150_000
    finally:
        objects.close()
    assert searched() > len(had)


def test_the_last_end_restores_the_thresholds() -> None:
    before = gc.get_threshold()
    first = LongLivedObjects()
    second = LongLivedObjects()
    first.close()
    assert gc.get_threshold()[2] > before[2]
    second.close()
    assert gc.get_threshold() == before
