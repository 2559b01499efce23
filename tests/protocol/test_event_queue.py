"""One event at a time, whatever a step brings."""

from __future__ import annotations

import pytest

from dlsched.protocol.event_queue import EventQueue


def test_what_a_step_brings_waits_until_it_is_done() -> None:
    seen: list[str] = []

    def step(event: int) -> None:
        seen.append(f"begin {event}")
        if event == 1:
            queue.take(2)
            queue.take(3)
        seen.append(f"end {event}")

    queue = EventQueue(step)
    queue.take(1)
    assert seen == ["begin 1", "end 1", "begin 2", "end 2", "begin 3", "end 3"]


def test_after_an_error_the_waiting_events_come_with_the_next_one() -> None:
    seen: list[int] = []

    def step(event: int) -> None:
        if event == 1:
            queue.take(2)
            raise ValueError
        seen.append(event)

    queue = EventQueue(step)
    with pytest.raises(ValueError):  # noqa: PT011  # it has no text
        queue.take(1)
    queue.take(3)
    assert seen == [2, 3]
