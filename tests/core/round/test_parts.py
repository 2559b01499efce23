"""The parts of a run, from one release to the next."""

from __future__ import annotations

from typing import Any

import pytest

from dlsched.composition.parts import build_parts
from simulate.published.profiles import semantics_of


def test_a_part_that_cannot_read_its_state_begins_anew_in_all_its_stages(
    lab: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = lab.settings("synergy")
    parts = build_parts(settings, semantics_of(settings))
    old = parts.scheduling
    assert parts.host is old  # one object fills both stages

    def half_way(part: Any, state: Any) -> None:
        part.half_read = state
        raise KeyError("what an older release did not keep")

    monkeypatch.setattr(type(old), "load_state_dict", half_way)
    wrong = parts.load_state_dict({"scheduling": {}})
    assert [(stage, type(error)) for stage, error in wrong.items()] == [("scheduling", KeyError)]
    assert parts.host is parts.scheduling is not old
    assert not hasattr(parts.scheduling, "half_read")
    assert parts.scheduling.options == old.options
