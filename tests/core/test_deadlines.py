"""Lists of deadlines of falling value."""

from __future__ import annotations

import pytest

from dlsched.core.deadlines import deadline_steps


def test_a_list_is_read() -> None:
    assert deadline_steps("60:10 120.5:8 300:8") == ((60.0, 10.0), (120.5, 8.0), (300.0, 8.0))


@pytest.mark.parametrize(
    "text", ["", "10", "10:", ":5", "10:a", "20:2 10:1", "10:1 10:1", "10:1 20:2", "10:1:2", "0:1"]
)
def test_anything_else_is_refused(text: str) -> None:
    with pytest.raises(ValueError):  # noqa: PT011 - any reason
        deadline_steps(text)
