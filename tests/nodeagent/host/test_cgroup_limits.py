"""Limits of processors and memory that change while a job runs, in the kernel's files."""

from __future__ import annotations

from pathlib import Path

from dlsched.nodeagent.host import cgroups


def test_limits_are_written_to_the_leaf_of_the_job_and_taken_away_again(tmp_path: Path) -> None:
    leaf = tmp_path / "job"
    leaf.mkdir()
    assert cgroups.limit(str(tmp_path), 3, 5_000_000)
    assert (leaf / "cpu.max").read_text() == "300000 100000"
    assert (leaf / "memory.max").read_text() == "5000000"
    assert cgroups.limit(str(tmp_path), None, None)
    assert (leaf / "cpu.max").read_text() == "max 100000"
    assert (leaf / "memory.max").read_text() == "max"


def test_a_unit_of_systemd_has_them_itself(tmp_path: Path) -> None:
    unit = tmp_path / "dlsched-1.service"
    unit.mkdir()
    assert cgroups.limit(str(unit), 2, None)
    assert (unit / "cpu.max").read_text() == "200000 100000"


def test_where_there_is_no_cgroup_nothing_is_limited(tmp_path: Path) -> None:
    assert not cgroups.limit("", 2, None)
    assert not cgroups.limit(str(tmp_path / "gone"), 2, None)
