"""A library that stands in for NVIDIA's, built from a file beside the tests of the NVML reader."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

COMPILER = shutil.which("cc")
SOURCE = Path(__file__).parent / "nodeagent" / "gpus" / "stub_nvml.c"


def build_stub(folder: Path) -> Path:
    """Build the library in a folder; returns the folder."""
    assert COMPILER is not None
    target = folder / "libnvidia-ml.so.1"
    subprocess.run([COMPILER, "-shared", "-fPIC", "-o", target, SOURCE], check=True)
    return folder
