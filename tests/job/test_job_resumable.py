from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

import pytest

if importlib.util.find_spec("torch") is None:
    pytest.skip("PyTorch is not installed", allow_module_level=True)

pytestmark = pytest.mark.slow
PROGRAM = (Path(__file__).parent / "loader_program.py").read_text()
IMPORTED = ("torch", "torch._dynamo")  # the second by the first optimiser


@pytest.mark.parametrize(
    "kind",
    ["shuffle", "workers", "generator", "sampler", "batch-sampler", "stream", "stateful"],
)
def test_a_loader_continues_after_the_batch_that_was_given_last(ranks: Any, kind: str) -> None:
    if kind == "stateful" and importlib.util.find_spec("torchdata") is None:
        pytest.skip("torchdata is not installed: pip install 'dlsched[frameworks]'")
    code, whole, err = ranks.end(ranks.start(PROGRAM, kind, "--stop", "-1"))
    assert (code, err, len(whole)) == (0, "", 15)
    parts: list[str] = []
    for stop in (2, 5, 8):  # within an epoch, at its end, within the next one
        code, out, err = ranks.end(ranks.start(PROGRAM, kind, "--stop", str(stop)))
        assert (code, err) == (143, "")
        parts += out
    code, out, err = ranks.end(ranks.start(PROGRAM, kind))
    assert (code, err) == (0, "")
    assert parts + out == whole


@pytest.mark.parametrize("kind", ["shuffle", "generator", "stateful"])
def test_a_loader_continues_between_two_epochs(ranks: Any, kind: str) -> None:
    if kind == "stateful" and importlib.util.find_spec("torchdata") is None:
        pytest.skip("torchdata is not installed: pip install 'dlsched[frameworks]'")
    code, whole, err = ranks.end(ranks.start(PROGRAM, kind, "--step-between", "--stop", "-1"))
    assert (code, err, len(whole)) == (0, "", 15)
    code, first, err = ranks.end(ranks.start(PROGRAM, kind, "--step-between", "--stop", "1"))
    assert (code, err, len(first)) == (143, "", 5)
    code, rest, err = ranks.end(ranks.start(PROGRAM, kind, "--step-between"))
    assert (code, err) == (0, "")
    assert first + rest == whole


@pytest.mark.parametrize(
    ("kind", "why"),
    [
        ("no-state", "Stream is iterable without state_dict and load_state_dict; add them"),
        ("stream-workers", "has 2 workers; use StatefulDataLoader of torchdata"),
        ("no-batches", "a DataLoader with batch_size=None gives no batches to count"),
    ],
)
def test_a_loader_without_a_position_is_refused_in_one_line(
    ranks: Any, kind: str, why: str
) -> None:
    code, _, err = ranks.end(ranks.start(PROGRAM, kind))
    assert code == 1
    assert why in err.splitlines()[-1]


def test_another_number_of_ranks_is_refused(ranks: Any, free_port: int) -> None:
    assert ranks.end(ranks.start(PROGRAM, "shuffle", "--stop", "2"))[0] == 143
    gang = ranks.gang(PROGRAM, 2, free_port, "shuffle")
    for code, _, err in [ranks.end(process) for process in gang]:
        assert code == 1
        assert "is that of 1 rank and this run has 2" in err
