"""A folder of two small applications with numbers that can be followed by hand."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

SHAPES = {"1": 0.0, "2": 0.02, "11": 0.1, "4": 0.04, "22": 0.2, "112": 0.3, "13": 0.4}
LOCALS = (4, 8, 16, 32)


def step_s(shape: str, local: int) -> float:
    """A pass takes 0.1 s and 0.01 s a sample; then it synchronises."""
    return 0.1 + 0.01 * local + (SHAPES[shape] or 1e-5)


def files() -> dict[str, list[str]]:
    """The tables, line by line."""
    placements = [
        f"{name},{shape},{local},{step_s(shape, local)!r},{SHAPES[shape] or 1e-5!r}"
        for name in ("toy", "fixed")
        for shape in SHAPES
        for local in LOCALS
    ]
    validation = [
        f"{name},{size},{epoch},{100.0 * (epoch + 1)},{(epoch + 1) * 1600 // size},1.0,32.0"
        for name in ("toy", "fixed")
        for size in (16, 32, 64, 128)
        for epoch in range(3)
    ]
    return {
        "applications.csv": [
            "application,init_batch_size,max_batch_size,min_local_bsz,max_local_bsz,max_epochs,"
            "fixed_batch_size",
            "toy,16,128,4,32,3,",
            "fixed,16,128,4,32,3,64",
        ],
        "placements.csv": ["application,placement,local_bsz,step_time,sync_time", *placements],
        "scalability.csv": [
            "application,num_nodes,num_replicas,local_bsz,step_time,sync_time",
            "toy,4,8,4,0.9,0.7",
            "toy,4,8,32,1.2,0.8",
            "toy,4,16,4,1.0,0.8",
            "toy,4,16,32,1.3,0.9",
        ],
        "validation.csv": [
            "application,batch_size,epoch_index,progress,iteration,grad_sqr,grad_var",
            *validation,
        ],
    }


@pytest.fixture
def profile_folder(tmp_path: Path) -> Callable[..., Path]:
    """Write the folder, with some lines put in the place of others."""

    def write(**changed: Callable[[list[str]], list[str] | None]) -> Path:
        folder = tmp_path / "profiles"
        folder.mkdir(exist_ok=True)
        for name, lines in files().items():
            change = changed.get(name.removesuffix(".csv"))
            kept = lines if change is None else change(lines)
            if kept is not None:
                (folder / name).write_text("\n".join(kept) + "\n")
        return folder

    return write
