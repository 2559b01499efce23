"""The checker can fail: each broken rule is noticed, and each situation is fine when none is."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

import pytest

from dlsched.core.errors import InvariantBroken

_spec = importlib.util.spec_from_file_location(
    "protocol_sabotage", Path(__file__).parent / "sabotage.py"
)
assert _spec is not None
assert _spec.loader is not None
sabotage = importlib.util.module_from_spec(_spec)
sys.modules[_spec.name] = sabotage
_spec.loader.exec_module(sabotage)

SEEDS = 150  # few schedules need some of the rules


@pytest.mark.parametrize("name", sorted(sabotage.SITUATIONS))
def test_with_every_rule_in_force_a_situation_ends_well(name: str) -> None:
    world = sabotage.play(name, 0)
    assert all(job.status.is_terminal for job in world.database.ledger.jobs.values())


@pytest.mark.slow
@pytest.mark.parametrize("broken", sabotage.ALL, ids=lambda broken: broken.name)
def test_the_checker_notices_a_broken_rule(
    broken: sabotage.Sabotage, monkeypatch: pytest.MonkeyPatch
) -> None:
    broken.apply(monkeypatch)
    seeds = 1 if broken.theme in sabotage.SITUATIONS else SEEDS
    with pytest.raises(InvariantBroken) as found:  # noqa: PT012  # the first seed that shows it
        for seed in range(seeds):
            sabotage.play(broken.theme, broken.first_seed + seed)
    assert str(found.value).startswith(tuple(broken.promises)), str(found.value)
