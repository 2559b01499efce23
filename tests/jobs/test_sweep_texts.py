"""`{column}` in texts, names of columns, and the rungs of a rule."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dlsched.jobs.sweep import Halving, column_fault, columns_in, filled, text_fault

VALUES = {"lr": "0.1", "note": "{lr} }}"}


@pytest.mark.parametrize(
    ("text", "made"),
    [
        ("--lr={lr}", "--lr=0.1"),
        ("{lr}{lr}", "0.10.1"),
        ("{{lr}} {lr}", "{lr} 0.1"),
        ('{{"a": {{}}}}', '{"a": {}}'),
        ("{note}", "{lr} }}"),  # a value is not read again
        ("plain", "plain"),
    ],
)
def test_columns_are_replaced_once_and_doubled_braces_are_braces(text: str, made: str) -> None:
    assert text_fault(text, VALUES) == ""
    assert filled(text, VALUES) == made


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("{wd}", "{wd} is no column; columns: lr, note (write {{ and }} for braces)"),
        ("{}", "{} is no column; columns: lr, note (write {{ and }} for braces)"),
        ("{lr", "a single {; write {{ for a brace (columns: lr, note)"),
        ("lr}", "a single }; write }} for a brace (columns: lr, note)"),
    ],
)
def test_what_is_no_column_is_told_with_those_that_there_are(text: str, fault: str) -> None:
    assert text_fault(text, VALUES) == fault


@given(st.text(alphabet="{}lrx", max_size=12))
def test_filling_never_fails_and_leaves_no_column_of_a_right_text(text: str) -> None:
    made = filled(text, {"lr": "1"})
    if not text_fault(text, ["lr"]):
        doubled = text.replace("{{", "").replace("}}", "")
        assert made.count("1") == len(columns_in(text, ["lr"])) <= doubled.count("{lr") + 1


@pytest.mark.parametrize("name", ["lr", "LR", "rank", "_x", "OMP_NUM_THREADS", "seed2"])
def test_columns_may_be_called_as_variables(name: str) -> None:
    assert column_fault(name) == ""


@pytest.mark.parametrize(
    "name",
    [
        *("RANK", "WORLD_SIZE", "CUDA_VISIBLE_DEVICES", "CUDA_X", "DLSCHED_JOB_ID", "SLURM_X"),
        *("PATH", "LD_PRELOAD", "HOME", "", "a b", "1x", "a-b", "é", "x" * 65),
    ],
)
def test_columns_that_would_replace_the_jobs_own_variables_are_refused(name: str) -> None:
    assert column_fault(name)


def test_rungs_grow_by_eta_up_to_a_bound() -> None:
    assert Halving(rung=100).rungs_up_to(1000) == [100, 300, 900]
    assert Halving(rung=100).rungs_up_to(99) == []
    assert Halving(rung=100, eta=2, most=200).rungs_up_to(10**9) == [100, 200]
    assert Halving(rung=5, eta=4).rungs_text == "5:4"
    assert Halving(rung=5, most=80).rungs_text == "5:3:80"
