"""Calls of the keeper's event loop."""

from __future__ import annotations

import os

from dlsched.nodeagent.host.event_loop import EventLoop


def test_a_descriptor_that_has_become_another_one_is_not_called_for_the_old_one() -> None:
    """Both pipes are over; the call of one makes the other's descriptor that of a new pipe."""
    loop = EventLoop(lambda: None)
    called: list[int] = []
    first, second = ends = [pipe_that_is_over() for _ in range(2)]
    read, write = os.pipe()

    def replace(one: int, other: int) -> None:
        for fd in ends:
            loop.unwatch(fd)
        os.dup2(read, other)
        loop.watch(other, called.append)
        os.close(one)
        os.close(read)

    loop.watch(first, lambda _mask: replace(first, second))
    loop.watch(second, lambda _mask: replace(second, first))
    loop.turn(None)
    assert called == []
    os.write(write, b"now")
    loop.turn(None)
    assert len(called) == 1
    os.close(write)


def pipe_that_is_over() -> int:
    ours, theirs = os.pipe()
    os.close(theirs)
    return ours


def test_events_of_a_descriptor_that_was_closed_too_early_call_nothing() -> None:
    """The kernel reports it as long as a copy is open, and calls it by its old number."""
    loop = EventLoop(lambda: None)
    ours = pipe_that_is_over()
    copy = os.dup(ours)
    called: list[int] = []
    loop.watch(ours, called.append)
    os.close(ours)
    loop.unwatch(ours)
    loop.turn(None)
    assert called == []
    os.close(copy)
