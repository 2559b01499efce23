"""scipy's linear algebra starts no threads beside this one."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from dlsched.policies.blas import THREADS, one_thread

LOADING = """
import os
import numpy
threads = lambda: len(os.listdir("/proc/self/task"))
before = threads()
{load}
import scipy.linalg
print(threads() - before)
"""
LOADS = {
    "a fit": """
from simulate.goodput.published_fit import published_fit
from dlsched.core.goodput.fitting import Observations
published_fit(Observations(*(numpy.array([each]) for each in (1, 1, 128, 0.306, 0.306))))
""",
    "an assignment": """
from dlsched.policies.scheduling.apollo.matching import at_best
at_best(numpy.eye(2))
""",
}


@pytest.mark.parametrize("load", LOADS.values(), ids=LOADS)
def test_no_threads_come_with_scipy(load: str) -> None:
    unset = {name: value for name, value in os.environ.items() if name not in THREADS}
    done = subprocess.run(
        [sys.executable, "-c", LOADING.format(load=load)],
        env=unset, capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert done.stdout == "0\n"


def test_a_number_that_the_user_chose_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in THREADS:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("OMP_NUM_THREADS", "3")
    with one_thread():
        assert [os.environ[name] for name in THREADS] == ["1", "1", "1", "3"]
    assert [os.environ.get(name) for name in THREADS] == [None, None, None, "3"]
