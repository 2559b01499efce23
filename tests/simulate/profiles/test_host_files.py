"""Profiles of processors and memory: what is read, and one line for what cannot be."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from dlsched.core.allocation import HostShare
from dlsched.core.errors import BadInput
from simulate.profiles.open import open_profiles

MEASURED = "model,cpus_per_gpu,memory_gb_per_gpu,steps_per_s\n"
DEMANDS = (
    "cluster_cpu_per_gpu,model,ideal_cpu_per_gpu,ideal_mem_gb_per_gpu,iteration_s_at_fair_share,"
    "speedup_at_ideal\n"
)
MATRIX = "cluster_cpu_per_gpu,model,cpu_per_gpu,mem_gb_per_gpu,normalized_throughput\n"
FAIR = HostShare(3.0, 62.5)


@pytest.fixture
def profile(tmp_path: Path) -> Any:
    def write(text: str, name: str = "host.csv") -> str:
        (tmp_path / name).write_text(text)
        return str(tmp_path / name)

    return write


def test_measured_speeds_become_gains_over_the_proportional_share(profile: Any) -> None:
    tables = open_profiles(profile(MEASURED + "a,2,,1\na,4,,2\na,8,,2.5\n")).host
    assert tables is not None
    found = tables.for_servers(FAIR)["a"].relative_to(FAIR)
    assert found.at(HostShare(8.0, 1.0)) == pytest.approx(2.5 / 1.5)
    assert found.step_s == pytest.approx(1 / 1.5)
    assert found.ideal.cpus == 8.0


def test_a_matrix_has_the_gains_and_demands_have_the_seconds(profile: Any, tmp_path: Path) -> None:
    profile(MATRIX + "3,a,3,62.5,1\n3,a,6,62.5,1.5\n", "sensitivity.csv")
    profile(DEMANDS + "3,a,6,62.5,0.5,1.4\n", "demands.csv")
    tables = open_profiles(str(tmp_path)).host
    assert tables is not None
    found = tables.for_servers(FAIR)["a"]
    assert (found.at(HostShare(6.0, 62.5)), found.step_s) == (1.5, 0.5)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (MEASURED + "a,2,,nan\n", r":2: steps_per_s is 'nan'; a number above 0"),
        (MEASURED + "a,2,,0\n", r":2: steps_per_s is '0'"),
        (MEASURED + "a,-2,,1\n", r":2: cpus_per_gpu is '-2'"),
        (MEASURED + ",2,,1\n", r":2: no model"),
        (MEASURED + "a,2,,1\na,2,,3\n", r":3: steps_per_s .* is 3 here and 1 before"),
        (DEMANDS + "3,a,6,62.5,x,1.4\n", r":2: iteration_s_at_fair_share is 'x'"),
        (DEMANDS + "3,a,6,62.5,1,1.4\n3,a,6,62.5,1,1.4\n", r":3: model a is there twice"),
    ],
)
def test_what_cannot_be_names_file_and_line(profile: Any, text: str, says: str) -> None:
    with pytest.raises(BadInput, match=says):
        open_profiles(profile(text))


def test_holes_and_other_servers_are_refused(profile: Any) -> None:
    tables = open_profiles(profile(MEASURED + "a,2,10,1\na,4,20,2\n")).host
    assert tables is not None
    with pytest.raises(BadInput, match="a was not measured with 2 processors and 20 GB"):
        tables.for_servers(FAIR)
    tables = open_profiles(profile(DEMANDS + "6,a,6,62.5,1,1.4\n")).host
    assert tables is not None
    with pytest.raises(BadInput, match="with 6 processors for each GPU; the cluster has 3"):
        tables.for_servers(FAIR)
