"""`dlsched replay --snapshot` of a file that an older release has made."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from dlsched.daemon.round.forecasts.later_arrivals import later_of
from dlsched.daemon.round.snapshot_builder import take_snapshot
from tests.daemon.ledger_walk import LiveLab


@pytest.mark.parametrize("holders", [{}, {0: [["user", "ann"]]}])
def test_quotas_that_are_not_kept_are_told(
    dlsched: Any, tmp_path: Path, holders: dict[int, Any]
) -> None:
    lab = LiveLab((4,))
    lab.submit(0.0, 1, expected_s=60.0)
    limits = {"most": {("user", "ann"): 2}, "holders": holders}
    later = later_of(lab.live, 1.0) | {"gpu_limits": limits}
    snapshot = replace(take_snapshot(lab.state, "full", 1.0), later=later)
    file = tmp_path / "now"
    file.write_bytes(snapshot.to_bytes())
    called = dlsched("replay", "--snapshot", file)
    assert called.code == 0
    told = f"dlsched: warning: {file} is of an older release: its quotas on GPUs are not kept"
    assert called.err.splitlines() == ([told] if holders else [])


def test_a_policy_with_options_that_left_is_not_continued_and_others_are(
    dlsched: Any, tmp_path: Path
) -> None:
    lab = LiveLab((4,))
    lab.submit(0.0, 1, expected_s=60.0)
    options = ("jump=whole", "limits=1000,2000")
    lab.state.settings = lab.state.settings.with_policy({"scheduling": "tiresias"}, options)
    file = tmp_path / "now"
    file.write_bytes(take_snapshot(lab.state, "full", 1.0).to_bytes())
    why = f"{file}: policy tiresias no longer has jump=whole"
    alone = dlsched("replay", "--snapshot", file)
    assert alone.code == 2
    assert f"{why}: name a policy to go on with (--policy)" in alone.err
    for flag, name in (("--policy", "fifo"), ("--placement", "best-fit")):
        called = dlsched("replay", "--snapshot", file, flag, name)
        assert called.code == 0, called.err
        assert called.err == f"dlsched: warning: {why}: it is not continued as it is\n"
        assert "under tiresias" in called.out
        assert name in called.out
        assert "as it is" not in called.out
    values = ("--option", "limits=3000,4000")
    called = dlsched("replay", "--snapshot", file, *values)
    assert called.code == 0, called.err
    assert "other options" in called.out
