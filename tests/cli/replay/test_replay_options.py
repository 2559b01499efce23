"""The table of replay's options: its documentation, and the words that it must agree with."""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest

from dlsched.cli.replay.call import WITH_SNAPSHOT, ReplayCall, given_beside
from dlsched.cli.trace import FormatOption
from dlsched.cli.typer_commands import option_hints
from simulate.sweep import PARTS
from simulate.traces.open import FORMATS

PAGE = Path(__file__).parents[3] / "docs" / "replay.md"
HINTS: dict[str, Any] = option_hints(ReplayCall)


def words_of(name: str) -> list[str]:
    option = HINTS[name].__metadata__[0]
    words = [option.default, *(option.param_decls or ())]
    return [word for word in words if isinstance(word, str)]


@pytest.mark.parametrize("name", [field.name for field in fields(ReplayCall)])
def test_the_page_about_replays_has_every_option(name: str) -> None:
    words = words_of(name) or ["TRACE…"]
    assert any(f"`{word}" in PAGE.read_text() for word in words)


def test_every_part_of_a_run_has_an_option() -> None:
    assert set(PARTS) <= {field.name for field in fields(ReplayCall)}


def test_the_help_of_format_names_every_format() -> None:
    told = FormatOption.__metadata__[0].more["help"].partition(";")[0].replace(" or ", ", ")
    assert told.split(", ") == ["auto", *FORMATS]


def test_an_option_without_effect_on_a_snapshot_is_found() -> None:
    assert given_beside(ReplayCall(snapshot="now", policy="las"), WITH_SNAPSHOT) is None
    assert given_beside(ReplayCall(snapshot="now", seed="1"), WITH_SNAPSHOT) == "--seed"
    assert given_beside(ReplayCall(snapshot="now", traces=["t.csv"]), WITH_SNAPSHOT) == "TRACE"
