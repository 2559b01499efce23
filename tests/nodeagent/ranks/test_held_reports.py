"""Whatever ranks report, the agent gets a few reports at a time, and the newest of each rank."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dlsched.nodeagent.ranks import held_reports
from dlsched.nodeagent.ranks.held_reports import (
    AT_ONCE,
    EVERY_S,
    MOST_NAMES,
    MOST_WAITING,
    HeldReports,
    merged,
)

REPORTS = st.one_of(
    st.builds(lambda rank, step: {"rank": rank, "step": step, "not_finite": []},
              st.integers(0, 5), st.integers(0, 99)),
    st.builds(lambda rank, name: {"rank": rank, "metrics": {name: 1.0}},
              st.integers(0, 5), st.sampled_from("abc")),
    st.builds(lambda rank: {"rank": rank, "ignored": 1}, st.integers(0, 5)),
    st.builds(lambda rank, what: {"rank": rank, "doing": what},
              st.integers(0, 5), st.sampled_from(["", "save"])),
)  # fmt: skip
PAUSES = st.sampled_from([0.0, 0.01, EVERY_S / 2, 2 * EVERY_S])


class Held(HeldReports):
    """With a clock and an agent of the test."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.now, self.sent, self.stands_still = 100.0, [], False
        patch.setattr(held_reports.clock, "boottime", lambda: self.now)
        super().__init__(self._take, lambda: self.stands_still)

    sent: list[tuple[float, dict[str, Any]]]

    def _take(self, report: dict[str, Any]) -> bool:
        self.sent.append((self.now, report))
        return True

    def wait(self, seconds: float) -> None:
        until = self.now + seconds
        while (due := self.deadline) is not None and due <= until:
            self.now = max(self.now, due)
            self.wake(self.now)
        self.now = until


@given(steps=st.lists(st.tuples(REPORTS, PAUSES), max_size=60), stands_still=st.booleans())
def test_nothing_newest_is_lost_and_the_agent_gets_a_few_at_a_time(
    steps: list[tuple[dict[str, Any], float]], stands_still: bool
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        held = Held(patch)
        held.stands_still = stands_still
        for report, pause in steps:
            held.add(dict(report))
            held.wait(pause)
        assert not (stands_still and held.sent)
        held.stands_still = False
        held.wait(5 * EVERY_S)
    times = sorted({at for at, _ in held.sent})
    assert all(after - before >= EVERY_S * 0.999 for before, after in pairwise(times))
    assert all(sum(at == each for at, _ in held.sent) <= AT_ONCE for each in times)
    for rank in {report["rank"] for report, _ in steps}:
        given_ = [report for report, _ in steps if report["rank"] == rank]
        got = [report for _, report in held.sent if report["rank"] == rank]
        count = sum(each.get("ignored", 0) for each in given_)
        assert sum(each.get("ignored", 0) for each in got) == count
        assert newest(got, "step") == newest(given_, "step")
        names = {name for each in given_ for name in each.get("metrics", ())}
        assert {name for each in got for name in each.get("metrics", ())} == names


def newest(reports: list[dict[str, Any]], name: str) -> Any:
    return [None, *(each[name] for each in reports if name in each)][-1]


def test_a_flood_under_many_names_takes_bounded_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    held = Held(monkeypatch)
    held.stands_still = True
    for k in range(10 * MOST_WAITING):
        held.add({"rank": k, "metrics": {f"m{n}": 1.0 for n in range(k, k + 60)}})
        held.add({"rank": 0, "metrics": {f"m{n}": 1.0 for n in range(k, k + 60)}})
    held.send_all()
    assert len(held.sent) == MOST_WAITING
    assert all(len(report["metrics"]) <= MOST_NAMES for _, report in held.sent)


def test_a_step_ends_what_the_rank_was_doing() -> None:
    doing = {"rank": 0, "doing": "save", "ignored": 1}
    step = {"rank": 0, "step": 3, "not_finite": [], "ignored": 2}
    assert merged(doing, step) == {"rank": 0, "step": 3, "not_finite": [], "ignored": 3}
