"""A caution is given about a sample that does not describe the trace, and about no other."""

from __future__ import annotations

import numpy as np
import pytest

from simulate.results.summary import distribution_distance


def test_distance_is_the_largest_gap_between_the_distributions():
    assert distribution_distance(np.array([1.0, 2, 3, 4]), np.array([1.0, 2, 3, 4])) == 0
    assert distribution_distance(np.array([1.0, 2]), np.array([3.0, 4])) == 1
    assert distribution_distance(np.array([1.0, 2, 3, 4]), np.array([2.0, 3, 4, 5])) == 0.25


@pytest.mark.parametrize(("sample", "said"), [("10,20,30,40", False), ("10000,20000", True)])
def test_gittins_with_a_sample_of_another_trace_gets_a_caution(lab, sample, said):
    jobs = [(0, 1, 10), (1, 1, 20), (2, 1, 30), (3, 1, 40)]
    options = ("variant=gittins", f"sample={sample}")
    run = lab.run(jobs, "tiresias", options=options)
    assert any("does not describe" in text for text in run.warnings) == said
