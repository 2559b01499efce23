"""Throughput tables: what a file says, and how it is refused."""

from __future__ import annotations

import gzip
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dlsched.core.cluster.description import parse_cluster_spec
from dlsched.core.cluster.occupancy import Occupancy, Placement
from dlsched.core.errors import BadInput
from dlsched.core.speed.throughput_table import JobKind, TableSpeed, ThroughputTable
from dlsched.core.units import UnitTable
from dlsched.policies.scheduling.gavel.problem import all_pairs
from simulate.profiles.throughput_file import job_kind
from tests.throughputs import read_throughputs

HEADER = (
    "accelerator,consolidated,scale_factor,model,batch_size,"
    "co_model,co_batch_size,steps_per_s,co_steps_per_s"
)
ROWS = [
    "v100,1,1,ResNet-18,64,,,20,",
    "k80,1,1,ResNet-18,64,,,5,",
    "v100,1,2,ResNet-18,64,,,36,",
    "v100,0,2,ResNet-18,64,,,30,",
    "k80,1,2,ResNet-18,64,,,0,",
    "v100,1,1,A3C,,,,7,",
    "k80,1,1,A3C,,,,3.5,",
    "v100,1,1,ResNet-18,64,A3C,,15,6",
    "k80,1,1,ResNet-18,64,A3C,,0,0",
]
RESNET, A3C = JobKind("ResNet-18", 64), JobKind("A3C")


def written(folder: Path, rows: list[str], header: str = HEADER) -> Path:
    path = folder / "profile.csv"
    path.write_text("\n".join([header, *rows, ""]))
    return path


@pytest.fixture
def table(tmp_path: Path) -> ThroughputTable:
    return read_throughputs(written(tmp_path, ROWS))


def test_jobs_alone_have_a_throughput_on_every_type(table: ThroughputTable) -> None:
    kinds = table.codes([RESNET, A3C, RESNET])
    found = table.speeds(kinds, np.array([1, 1, 2]), ["v100", "k80"])
    assert found.tolist() == [[20, 5], [7, 3.5], [36, 0]]
    apart = table.speeds(kinds[2:], np.array([2]), ["v100"], spread=True)
    assert apart.tolist() == [[30]]


def test_pairs_have_a_throughput_for_each_half(table: ThroughputTable) -> None:
    kinds = table.codes([A3C, RESNET, RESNET, A3C])
    scales, types = np.array([1, 1, 2, 1]), ["k80", "v100"]
    pairs = all_pairs(scales, lambda a, b: table.pair_speeds(kinds[a], kinds[b], scales[a], types))
    found = list(zip(pairs.first.tolist(), pairs.second.tolist(), strict=True))
    assert found == [(0, 1), (1, 3)]  # two A3C were not measured, and sizes must be equal
    assert pairs.throughput.tolist() == [[[0, 0], [6, 15]], [[0, 0], [15, 6]]]


def test_packed_files_are_read_and_columns_may_be_left_out(tmp_path: Path) -> None:
    path = tmp_path / "profile.csv.gz"
    path.write_bytes(gzip.compress(b"model,accelerator,steps_per_s,scale_factor\nA,v100,2,1\n"))
    table = read_throughputs(path)
    assert table.speeds(table.codes([JobKind("A")]), np.array([1]), ["v100"]).tolist() == [[2]]


def test_a_job_runs_as_fast_as_on_its_slowest_type(table: ThroughputTable) -> None:
    occupancy = Occupancy(parse_cluster_spec("1x2:v100+1x2:k80"))
    speed, units = TableSpeed(table, [RESNET, A3C]), UnitTable(2)

    def rate(row: int, nodes: Any, partners: tuple[int, ...] = ()) -> float:
        return speed.rate(
            row, Placement(tuple(nodes), tuple(nodes.values())), units, occupancy, partners
        )

    assert rate(0, {0: 0b1}) == 20
    assert rate(0, {0: 0b11}) == 36
    assert rate(0, {0: 0b1, 1: 0b1}) == 0
    assert rate(0, {0: 0b1}, (1,)) == 15
    assert rate(1, {0: 0b1}, (0,)) == 6


def test_job_types_are_named_as_in_traces() -> None:
    assert job_kind("ResNet-18 (batch size 64)") == RESNET
    assert job_kind("A3C") == A3C
    assert [str(kind) for kind in (RESNET, A3C)] == ["ResNet-18 (batch size 64)", "A3C"]


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ("v100,1,1,B,64,,,nan,", ":11: steps per second of B .batch size 64. must be 0 or more"),
        ("v100,1,1,B,64,,,-1,", ":11: steps per second of B .batch size 64. must be 0 or more"),
        ("v100,1,1,B,64,,,inf,", "must be 0 or more, not inf"),
        ("v100,1,1,B,64,,,fast,", ":11: steps_per_s must be a number, not 'fast'"),
        ("v100,1,1,B,64,A3C,,3,", ":11: co_steps_per_s must be a number, not ''"),
        ("v100,1,0,B,64,,,3,", ":11: scale_factor must be a whole number from 1 up, not '0'"),
        ("v100,1,1,B,big,,,3,", ":11: batch_size must be a whole number"),
        ("v100,2,1,B,64,,,3,", ":11: consolidated must be 0 or 1, not '2'"),
        (",1,1,B,64,,,3,", ":11: no accelerator"),
        ("v100,1,1,,64,,,3,", ":11: no model"),
        ("v100,1,1,A3C,,,,8,", ":11: A3C on 1 v100 has 8 steps/s here and 7 before"),
        ("v100,1,1,A3C,,ResNet-18,64,6,14", "and 15 before"),
    ],
)
def test_a_bad_row_is_refused_with_its_line(tmp_path: Path, row: str, message: str) -> None:
    with pytest.raises(BadInput, match=message):
        read_throughputs(written(tmp_path, [*ROWS, row]))


def test_a_bad_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="needs a column steps_per_s"):
        read_throughputs(written(tmp_path, [], "accelerator,scale_factor,model"))
    with pytest.raises(BadInput, match="holds no throughputs"):
        read_throughputs(written(tmp_path, []))
    with pytest.raises(BadInput, match="no such file"):
        read_throughputs(tmp_path / "missing.csv")


def test_what_was_not_measured_is_refused(table: ThroughputTable) -> None:
    kinds = table.codes([RESNET])
    with pytest.raises(BadInput, match=r"no throughputs of ResNet-18 \(batch size 32\); of ResNet"):
        table.codes([JobKind("ResNet-18", 32)])
    with pytest.raises(BadInput, match="no throughputs of BERT; it has A3C, ResNet-18"):
        table.codes([JobKind("BERT")])
    with pytest.raises(BadInput, match="no throughputs on a100; it has k80, v100"):
        table.speeds(kinds, np.array([1]), ["a100"])
    with pytest.raises(BadInput, match="no throughputs on 4 GPUs; it has them on 1, 2"):
        table.speeds(kinds, np.array([4]), ["v100"])
    with pytest.raises(BadInput, match="no throughput of A3C on 2 v100"):
        table.speeds(table.codes([A3C]), np.array([2]), ["v100"])
    two = TableSpeed(table, [RESNET, A3C, A3C])
    occupancy = Occupancy(parse_cluster_spec("1x2:v100"))
    with pytest.raises(BadInput, match="not of more"):
        two.rate(0, Placement((0,), (1,)), UnitTable(3), occupancy, (1, 2))
