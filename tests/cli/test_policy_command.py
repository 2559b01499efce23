from __future__ import annotations

import json
import os
import subprocess
import sys

from dlsched.policies.registry import STAGES, names


def test_the_list_has_every_part_with_a_line_about_it(dlsched):
    called = dlsched("policy", "list")
    assert called.code == 0
    for stage in STAGES:
        assert f"\n{stage}\n" in f"\n{called.out}"
        for name in names(stage):
            assert any(line.startswith(f"  {name} ") for line in called.out.splitlines()), name


def test_the_list_of_one_stage_as_json(dlsched):
    called = dlsched("policy", "list", "--stage", "placement", "--json")
    told = json.loads(called.out)
    assert told["schema"] == "dlsched.policies/1"
    assert [entry["name"] for entry in told["policies"]] == names("placement")
    assert all(entry["summary"] and entry["error"] is None for entry in told["policies"])


def test_a_policy_shows_its_options_needs_and_semantics(dlsched):
    called = dlsched("policy", "show", "srtf")
    assert called.code == 0
    assert called.out.startswith("srtf (scheduling): ")
    assert "preemptive  yes" in called.out
    assert "needs       predicted_work" in called.out
    assert "  guard_s=inf " in called.out
    assert "  blox sets " in called.out


def test_a_policy_is_found_by_its_other_name(dlsched):
    assert dlsched("policy", "show", "fjf").out.startswith("first-fit (scheduling)")


def test_a_policy_shows_what_only_the_semantics_of_its_simulator_know(dlsched):
    out = dlsched("policy", "show", "gavel").out
    assert "queue=by-type  " not in out
    assert (
        "  gavel sets queue=by-type, mechanism=published, resolve_s=1920, settle=published" in out
    )


def test_a_sheet_as_json_has_types_defaults_and_docs(dlsched):
    told = json.loads(dlsched("policy", "show", "tiresias", "--json").out)
    (sheet,) = told["parts"]
    limits = next(option for option in sheet["options"] if option["name"] == "limits")
    assert limits["default"] == "3250,7200"
    assert limits["kind"]
    assert limits["doc"]
    assert sheet["preemptive"] is True


def test_an_unknown_name_or_stage_is_one_line(dlsched):
    called = dlsched("policy", "show", "nope")
    assert (called.code, called.err.count("\n")) == (2, 1)
    assert "policy 'nope' is not known; known: fifo, " in called.err
    called = dlsched("policy", "list", "--stage", "nope")
    assert (called.code, called.err.count("\n")) == (2, 1)


PART = '''"""Backwards: last come, first served."""

import numpy as np

from dlsched.core.allocation import Ranking
from dlsched.core.scheduling import SchedulingPolicy


class Lifo(SchedulingPolicy):
    """Start the youngest first."""

    name = "lifo"
    summary = "last come, first served"

    def rank(self, units, ctx):
        return Ranking(order=np.argsort(-units.submit_time, kind="stable"), misfit="skip")
'''


def test_an_installed_package_brings_its_own_policy(tmp_path, trace):
    site = tmp_path / "site"
    info = site / "backwards-1.0.dist-info"
    info.mkdir(parents=True)
    (site / "backwards.py").write_text(PART)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: backwards\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(
        "[dlsched.scheduling]\nlifo = backwards:Lifo\nbroken = nowhere:Nothing\n"
    )

    def call(*words):
        return subprocess.run(
            [sys.executable, "-m", "dlsched", *map(str, words)], capture_output=True, text=True,
            check=False, env={**os.environ, "PYTHONPATH": str(site)},
        )  # fmt: skip

    listed = call("policy", "list", "--stage", "scheduling").stdout
    assert "  lifo " in listed
    assert "[backwards]" in listed
    assert "broken " in listed
    assert "cannot be loaded: ModuleNotFoundError(\"No module named 'nowhere'\")" in listed
    assert call("policy", "show", "lifo").stdout.startswith("lifo (scheduling): last come")
    # two runs, so that the workers have to find it too
    ran = call(
        "replay", trace, "--cluster", "1x4", "--policy", "fifo,lifo", "--executor", "processes:2"
    )
    assert ran.returncode == 0, ran.stderr
    assert "\nlifo " in ran.stdout
    refused = call("replay", trace, "--cluster", "1x4", "--policy", "broken")
    assert refused.returncode == 2
    assert refused.stderr.count("\n") == 1
    assert "nowhere" in refused.stderr
