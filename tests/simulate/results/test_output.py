from __future__ import annotations

import csv
import gzip
import io
import json
import os
import stat
from dataclasses import replace

import numpy as np
import pytest

from dlsched.core.errors import DlschedError
from dlsched.system.output_files import appearing_whole, why_not_writable
from simulate.results.output import (
    JOB_COLUMNS,
    summary_text,
    write_jobs,
)
from tests.counting import python_calls


@pytest.fixture
def result(lab):
    return lab.run([(0, 2, 10), (1, 4, 2.5), (2, 8, 1)], user=None)


def text_of(results, **given):
    raw = io.BytesIO()
    write_jobs(results, raw, **given)
    return raw.getvalue().decode()


def test_whole_numbers_have_no_point_and_the_unknown_is_empty(lab):
    result = lab.run([(0, 2, 10), (1, 4, 2.5), (2, 8, 1)])
    assert text_of([result]).splitlines() == [
        ",".join(JOB_COLUMNS),
        "A,,,2,0,0,10,10,0,20,1,0,0,0,0,completed",
        "B,,,4,1,10,12.5,11.5,9,10,1,0,0,0,0,completed",
        "C,,,8,2,,,,,0,0,0,0,0,0,refused",
    ]


def test_numbers_read_back_exactly(lab):
    result = lab.run([(0.1, 1, 1 / 3), (0.2, 1, 1e-7), (0.3, 1, 1e17), (0.30000000000000004, 1, 7)])
    rows = list(csv.DictReader(io.StringIO(text_of([result]))))
    for name in ("submit_time", "finish_time", "jct"):
        column = getattr(result.jobs, name)
        assert [float(row[name]) for row in rows] == column.tolist()


def test_texts_are_quoted_where_they_must_be(lab):
    trace = lab.trace([(0, 1, 1)], names=['a,"b"\n'], user=["ann, bob"])
    result = lab.run(trace)
    (row,) = csv.DictReader(io.StringIO(text_of([result]), newline=""))
    assert (row["job_id"], row["user"]) == ('a,"b"\n', "ann, bob")


def test_runs_are_distinguished_and_a_policys_own_column_is_empty_elsewhere(lab):
    one, other = (lab.run([(0, 1, 1)], policy, load=2.0) for policy in ("fifo", "las"))
    jobs = replace(other.jobs, extra={"promotions": np.array([3])})
    text = text_of([one, replace(other, jobs=jobs)], tagged=("policy", "load", "seed"))
    header, first, second = text.splitlines()
    assert header == "policy,load,seed," + ",".join(JOB_COLUMNS) + ",promotions"
    assert first.startswith("fifo,2,0,A,")
    assert first.endswith(",completed,")
    assert second.endswith(",completed,3")


def test_a_packed_file_has_the_same_bytes_whenever_it_is_written(lab, tmp_path):
    result = lab.run([(0, 1, 1)])
    write_jobs([result], tmp_path / "a.csv.gz")
    write_jobs([result], tmp_path / "b.csv.gz")
    packed = (tmp_path / "a.csv.gz").read_bytes()
    assert packed[4:8] == bytes(4)  # where gzip's header has the time of writing
    assert packed == (tmp_path / "b.csv.gz").read_bytes()
    assert gzip.decompress(packed).decode() == text_of([result])


def test_a_file_appears_whole_or_not_at_all(tmp_path):
    path = tmp_path / "x.csv"
    path.write_text("before")

    def fail():
        with appearing_whole(path) as part:
            part.write_text("half")
            raise RuntimeError

    with pytest.raises(RuntimeError):
        fail()
    assert path.read_text() == "before"
    with appearing_whole(path) as part:
        part.write_text("whole")
    assert path.read_text() == "whole"
    assert list(tmp_path.iterdir()) == [path]


def test_a_file_that_cannot_be_written_is_refused(lab, tmp_path):
    with pytest.raises(DlschedError, match="cannot be written"):
        write_jobs([lab.run([(0, 1, 1)])], tmp_path / "none" / "x.csv")


def test_a_pipe_is_written_and_never_replaced(lab, tmp_path):
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    assert not why_not_writable(pipe)
    write_jobs([lab.run([(0, 1, 1)])], pipe)
    assert os.read(reader, 10).decode() == "job_id,use"
    os.close(reader)
    assert stat.S_ISFIFO(pipe.stat().st_mode)


def test_a_link_keeps_pointing_where_it_did(lab, tmp_path):
    (tmp_path / "there").mkdir()
    link = tmp_path / "x.csv"
    link.symlink_to(tmp_path / "there" / "y.csv")
    assert not why_not_writable(link)
    write_jobs([lab.run([(0, 1, 1)])], link)
    assert link.is_symlink()
    assert (tmp_path / "there" / "y.csv").read_text().startswith("job_id")


def test_whether_a_file_can_be_written_is_known_before(tmp_path):
    assert not why_not_writable(tmp_path / "x.csv")
    assert not list(tmp_path.iterdir())
    for path, why in (
        (tmp_path, "a folder; name a file"),
        (tmp_path / "none" / "x.csv", "does not exist"),
        (tmp_path / ("x" * 300), "cannot be written"),
    ):
        assert why in why_not_writable(path)


def test_a_summary_is_an_object_and_those_of_a_study_are_a_list(lab):
    summary = lab.run([(0, 9, 1)]).summary  # refused: nothing can be known of its JCT
    assert json.loads(summary_text([summary], several=False))["avg_jct"] is None
    assert [s["refused"] for s in json.loads(summary_text([summary], several=True))] == [1]
    with pytest.raises(ValueError, match="not JSON compliant"):
        summary_text([{"load": float("nan")}], several=False)


def test_writing_many_jobs_calls_few_functions_for_each(lab, tmp_path):
    def calls(count: int) -> int:
        """Python calls that writing `count` rows takes."""
        jobs = lab.run([(0, 1, 1)]).jobs
        rng = np.random.default_rng(0)
        columns = {
            name: np.repeat(getattr(jobs, name), count)
            for name in ("job_id", "user", "vc", "num_gpus", "gpu_seconds", "starts", "preemptions",
                         "migrations", "resizes", "lost_seconds", "status", "reason", "duration")
        }  # fmt: skip
        columns["submit_time"] = np.floor(rng.uniform(0, 1e7, count))
        columns["first_start_time"] = columns["submit_time"] + rng.exponential(100.0, count)
        columns["finish_time"] = columns["first_start_time"] + rng.exponential(1000.0, count)
        result = replace(lab.run([(0, 1, 1)]), jobs=replace(jobs, **columns, extra={}))
        return python_calls(lambda: write_jobs([result], tmp_path / "big.csv"))

    few, many = calls(100), calls(5_100)
    assert (many - few) / 5_000 < 2.0
