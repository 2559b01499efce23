from __future__ import annotations

import gzip
import sys

import numpy as np
import pytest

from dlsched.core.errors import BadInput
from simulate.traces.open import open_trace
from simulate.traces.trace import Trace
from simulate.traces.write import write_trace


def texts(*values):
    return np.array(values, dtype=object)


@pytest.fixture
def trace():
    return Trace(
        name="t",
        source="test",
        job_id=texts("a", "b,c", "d"),
        submit_time=np.array([0.0, 0.1, 1e6]),
        num_gpus=np.array([1.0, 0.25, 8.0]),
        duration=np.array([3600.0, 1 / 3, 1e12 + 0.5]),
        user=texts("u", "", 'say "x"'),
        vc=texts("", "", ""),
        status=texts("completed", "", "failed"),
        columns={
            "priority": np.array([np.nan, 2.0, 1e300]),
            "deadline": np.full(3, np.nan),
            "model": texts("bert", "", ""),
        },
    )


TEXT = (
    "job_id,submit_time,num_gpus,duration,user,status,priority,model\n"
    "a,0,1,3600,u,completed,,bert\n"
    '"b,c",0.1,0.25,0.3333333333333333,,,2,\n'
    'd,1000000,8,1000000000000.5,"say ""x""",failed,1e+300,\n'
)


def test_numbers_are_shortest_exact_and_unknowns_empty(trace, tmp_path):
    write_trace(trace, tmp_path / "t.csv")
    assert (tmp_path / "t.csv").read_text() == TEXT


def test_gzip_bytes_depend_on_nothing_but_the_trace(trace, tmp_path):
    for name in ("one.csv.gz", "two.csv.gz"):
        write_trace(trace, tmp_path / name)
    packed = (tmp_path / "one.csv.gz").read_bytes()
    assert packed == (tmp_path / "two.csv.gz").read_bytes()
    assert packed[4:8] == bytes(4)  # no time of writing
    assert gzip.decompress(packed).decode() == TEXT


@pytest.mark.parametrize("name", ["t.csv", "t.csv.gz", "t.parquet"])
def test_what_is_written_reads_back(trace, tmp_path, name):
    if name.endswith(".parquet"):
        pytest.importorskip("polars")
    write_trace(trace, tmp_path / name)
    again = open_trace(tmp_path / name)
    for field in ("job_id", "submit_time", "num_gpus", "duration", "user", "status"):
        assert getattr(again, field).tolist() == getattr(trace, field).tolist()
    assert again.columns["model"].tolist() == ["bert", "", ""]
    np.testing.assert_array_equal(again.columns["priority"], trace.columns["priority"])


def test_a_failed_write_leaves_nothing_behind(trace, tmp_path):
    with pytest.raises(BadInput, match=r"ends in \.csv"):
        write_trace(trace, tmp_path / "t.xlsx")
    with pytest.raises(BadInput, match="can't be written"):
        write_trace(trace, tmp_path / "nowhere" / "t.csv")
    assert list(tmp_path.iterdir()) == []


def test_parquet_without_polars_says_what_to_install(trace, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "polars", None)
    with pytest.raises(BadInput, match=r"install dlsched\[parquet\]"):
        write_trace(trace, tmp_path / "t.parquet")


def test_a_damaged_parquet_file_is_refused(tmp_path):
    pytest.importorskip("polars")
    (tmp_path / "t.parquet").write_bytes(b"PAR1 nothing of the kind")
    with pytest.raises(BadInput, match="not a readable Parquet file"):
        open_trace(tmp_path / "t.parquet")
    with pytest.raises(BadInput, match="no such file"):
        open_trace(tmp_path / "none.parquet")


def test_parquet_rows_are_checked_like_those_of_csv(tmp_path):
    polars = pytest.importorskip("polars")
    path = tmp_path / "t.parquet"
    frame = {"job_id": [1, 2], "submit_time": [0, 1], "num_gpus": [1, None], "duration": [1.5, 2.5]}
    polars.DataFrame(frame).write_parquet(path)
    with pytest.raises(BadInput, match=r":2: num_gpus is empty"):
        open_trace(path)
    polars.DataFrame(frame | {"num_gpus": [1, 4]}).write_parquet(path)
    assert open_trace(path).job_id.tolist() == ["1", "2"]
    polars.DataFrame({"job_id": [1]}).write_parquet(path)
    with pytest.raises(BadInput, match="no column submit_time, num_gpus"):
        open_trace(path)
