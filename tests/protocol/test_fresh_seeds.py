"""Fresh seeds: the same content draws the same, and what goes wrong is told with its seed."""

from __future__ import annotations

import time
from itertools import islice

import pytest

from dlsched.core.errors import InvariantBroken
from tests.protocol import fresh_seeds
from tests.protocol.simulation import schedules

THEMES = ["again", "calm"]


def test_each_content_draws_its_own_seeds_and_always_the_same() -> None:
    first, again, other = (
        list(islice(fresh_seeds.draw(origin, THEMES), 20)) for origin in ("a", "a", "b")
    )
    assert first == again
    assert [theme for theme, _ in first] == THEMES * 10
    assert not {seed for _, seed in first} & {seed for _, seed in other}
    assert min(seed for _, seed in first) >= fresh_seeds.FIRST, "none that a test has"


def test_a_failure_is_told_with_the_line_that_plays_it_again(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def play(theme: str, seed: int) -> None:
        played.append(seed)
        if len(played) == 2:
            raise InvariantBroken("P2: job 1 is alive twice\nits story")
        if len(played) == 3:
            raise KeyError(7)
        if len(played) == 5:
            monkeypatch.setattr(time, "monotonic", lambda: 2.0)

    played: list[int] = []
    monkeypatch.setattr(time, "monotonic", lambda: 0.0)
    monkeypatch.setattr(schedules, "play", play)
    found = fresh_seeds.play_for("a", ["calm"], (1, 2), until=1.0, most=None)
    mine = [seed for _, seed in islice(fresh_seeds.draw("a", ["calm"]), 1, 11, 2)]
    assert [(theme, seed) for theme, seed, _ in found] == [("calm", seed) for seed in mine]
    assert [bool(wrong) for *_, wrong in found] == [False, True, True, False, False]
    told = capsys.readouterr().out
    assert f"fresh_seeds --theme 'calm' --play {mine[1]}\n  P2: job 1 is alive twice" in told
    assert "KeyError: 7" in found[2][2]


def test_a_number_of_schedules_is_the_same_set_on_any_number_of_processes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(schedules, "play", lambda *_: None)
    until, most = time.monotonic() + 3600.0, 25
    for processes in (1, 2, 7):
        played = [
            each[:2]
            for k in range(processes)
            for each in fresh_seeds.play_for("a", THEMES, (k, processes), until, most)
        ]
        assert sorted(played) == sorted(islice(fresh_seeds.draw("a", THEMES), most))
