"""Small trace files, written by the test that reads them."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest

from simulate.traces.options import ReadOptions
from simulate.traces.status import STATUSES


@pytest.fixture
def trace_file(tmp_path):
    """Write text (or bytes) to a file, packed when its name ends in .gz; return its path."""

    def write(content: str | bytes, name: str = "trace.csv") -> Path:
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        raw = content if isinstance(content, bytes) else content.encode()
        path.write_bytes(gzip.compress(raw) if name.endswith(".gz") else raw)
        return path

    return write


@pytest.fixture
def everything():
    """Options that leave nothing out."""
    return ReadOptions(drop_cpu_jobs=False, min_duration=0, status=STATUSES, on_missing="keep")
