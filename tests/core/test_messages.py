"""The words of errors: counts with their nouns, and names that are not known."""

from __future__ import annotations

import numpy as np
import pytest

from dlsched.core.allocation import Refused
from dlsched.core.errors import not_known, plural


@pytest.mark.parametrize(
    ("count", "text"),
    [(0, "0 GPUs"), (1, "1 GPU"), (np.int64(2), "2 GPUs"), (12_000, "12,000 GPUs")],
)
def test_a_count_comes_with_its_noun_in_the_right_number(count, text):
    assert plural(count, "GPU") == text


def test_a_refusal_for_too_few_free_gpus_is_right_for_one():
    assert str(Refused.too_few_free(1, 0)) == "Resources: needs 1 GPU, 0 are free"
    assert str(Refused.too_few_free(4, 1)) == "Resources: needs 4 GPUs, 1 is free"


def test_a_name_that_is_not_known_is_answered_with_the_nearest():
    assert str(not_known("policy", "lass", ["fifo", "las", "las"])) == (
        "policy 'lass' is not known; known: fifo, las (did you mean 'las'?)"
    )
    assert str(not_known("", "x" * 80, [])) == f"'{'x' * 57}...' is not known; known: none"
