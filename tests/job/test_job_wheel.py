from __future__ import annotations

import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import pytest

from dlsched import __version__

ROOT = Path(__file__).parents[2]
PROJECT = ROOT / "packaging" / "job"

TRAINING = """
import sys
sys.path.insert(0, sys.argv[1])
import dlsched.job, dlsched.job.srun
assert dlsched.job.__file__.startswith(sys.argv[1])
with dlsched.job.attach(folder=sys.argv[2], every_steps=2) as job:
    job.checkpoint.register("x", save=lambda f: f.write(b"x"), load=lambda f: f.read())
    print(job.restore())
    for _ in range(3):
        assert job.step(loss=1.0)
"""


def test_the_wheel_alone_is_enough_for_a_training(tmp_path: Path) -> None:
    pytest.importorskip("hatchling", reason="building the wheel needs hatchling")
    subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(tmp_path)],
        cwd=PROJECT,
        check=True,
        capture_output=True,
    )
    wheel = tmp_path / f"dlsched_job-{__version__}-py3-none-any.whl"
    site = tmp_path / "site"
    with zipfile.ZipFile(wheel) as content:
        content.extractall(site)
    assert not (site / "dlsched" / "__init__.py").exists()
    for expected in ("0", "2"):
        found = subprocess.run(
            [sys.executable, "-I", "-S", "-c", TRAINING, str(site), str(tmp_path / "ckpt")],
            capture_output=True,
            text=True,
            check=False,
        )
        assert (found.stdout.strip(), found.stderr, found.returncode) == (expected, "", 0)


def test_it_needs_nothing_and_has_the_version_of_the_whole() -> None:
    own, whole = (
        tomllib.loads((folder / "pyproject.toml").read_text())["project"]
        for folder in (PROJECT, ROOT)
    )
    assert own["dependencies"] == []
    assert own["requires-python"] == whole["requires-python"]
    assert own["dynamic"] == whole["dynamic"] == ["version"]
