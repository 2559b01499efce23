from __future__ import annotations

from dataclasses import fields, replace

import numpy as np
import pytest

from dlsched.core.cluster.description import parse_cluster_spec
from dlsched.core.errors import BadInput
from simulate.clusters.cluster_events import ClusterEvent
from simulate.results.tables import Trajectories
from simulate.settings import RunSettings
from simulate.sweep import Inputs, Run, Store, conduct
from simulate.sweep.digest import Digests
from simulate.sweep.executor import InProcess
from simulate.sweep.run import execute

RUN = Run(number=0, trace=0, settings=RunSettings(policy="las", clock="events"))


@pytest.fixture
def inputs(lab):
    trace = lab.trace(
        [(0, 3, 10), (1, 4, 2.5), (2, 8, 1)], user=["ann", "", "bob\0"], vc=["α", "β,", '"']
    )
    return Inputs(traces=(trace,), cluster=parse_cluster_spec("1x4"))


def equal(one, other):
    if isinstance(one, np.ndarray):
        return one.dtype == other.dtype and np.array_equal(
            one, other, equal_nan=one.dtype.kind == "f"
        )
    return one == other


@pytest.mark.parametrize("record", [True, False])
def test_a_stored_result_comes_back_as_it_was(inputs, tmp_path, record):
    run = replace(RUN, settings=replace(RUN.settings, record=record))
    result = execute(inputs, run)
    jobs = replace(result.jobs, extra={"promotions": np.array([1, 2, 3])})
    had = Trajectories(
        job=np.array([0, 0]),
        time=np.array([0.0, 10.0]),
        gpus=np.array([3, 0]),
        batch_size=np.array([64.0, np.nan]),
        goodput=np.array([np.nan, np.nan]),
    )
    result = replace(result, jobs=jobs, warnings=("a note",), trajectories=had if record else None)
    store = Store(tmp_path / "runs", inputs)
    assert store.load(run) is None
    store.save(run, result)
    again = store.load(run)
    assert again is not None
    assert dict(again.summary) == dict(result.summary)
    assert again.warnings == ("a note",)
    for table in ("jobs", "timeline", "cluster", *(["segments", "trajectories"] if record else [])):
        before, after = getattr(result, table), getattr(again, table)
        for field in fields(before):
            if field.name != "extra":
                assert equal(getattr(before, field.name), getattr(after, field.name)), field.name
    assert again.jobs.extra["promotions"].tolist() == [1, 2, 3]
    assert (again.segments is None) == (again.trajectories is None) == (not record)


def test_a_stored_run_may_have_another_label_in_another_study(inputs, tmp_path):
    store = Store(tmp_path / "runs", inputs)
    store.save(RUN, execute(inputs, RUN))
    renamed = replace(RUN, settings=replace(RUN.settings, name="las/count"))
    found = store.load(renamed)
    assert found is not None
    assert found.label == "las/count"


def test_a_damaged_file_counts_as_missing(inputs, tmp_path):
    store = Store(tmp_path / "runs", inputs)
    store.save(RUN, execute(inputs, RUN))
    path = store.path_of(RUN)
    whole = path.read_bytes()
    for broken in (b"", whole[: len(whole) // 2], b"x" * 100):
        path.write_bytes(broken)
        assert store.load(RUN) is None


def test_everything_that_a_result_depends_on_is_in_its_digest(inputs, lab, tmp_path):
    sample = tmp_path / "sample.csv"
    sample.write_text("1\n2\n")
    trace, cluster = inputs.traces[0], inputs.cluster
    longer = replace(trace, duration=trace.duration + 1)
    with_column = replace(trace, columns={"priority": np.ones(3)})
    fail = ClusterEvent(time=1.0, kind="fail", node=0)
    changed = [
        (inputs, RUN),
        (replace(inputs, traces=(longer,)), RUN),
        (replace(inputs, traces=(with_column,)), RUN),
        (replace(inputs, cluster=parse_cluster_spec("2x4")), RUN),
        (replace(inputs, events=(fail,)), RUN),
        *(
            (inputs, replace(RUN, settings=replace(RUN.settings, **change)))
            for change in (
                {"seed": 1},
                {"load": 2.0},
                {"policy": "tiresias"},
                {"policy": "tiresias", "options": (f"sample={sample}",)},
                {"mtbf_s": 5.0},
                {"record": False},
            )
        ),
    ]
    digests = [Digests(given).of(run) for given, run in changed]
    sample.write_text("1\n3\n")
    digests.append(Digests(inputs).of(changed[-3][1]))
    assert len(set(digests)) == len(digests)
    assert Digests(replace(inputs, cluster=cluster)).of(RUN) == digests[0]


def test_a_folder_that_cannot_be_made_is_refused(inputs, tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(BadInput, match="not a folder"):
        Store(tmp_path / "file", inputs)
    with pytest.raises(BadInput, match=r"--resume .*none/x: the folder .* does not exist"):
        Store(tmp_path / "none" / "x", inputs)


def test_a_folder_that_goes_away_costs_the_storing_and_not_the_study(inputs, tmp_path):
    store = Store(tmp_path / "runs", inputs)
    (tmp_path / "runs").write_text("")
    outcome = conduct(inputs, [RUN], lambda missing: InProcess(), store=store)
    assert len(outcome.finished) == 1
    assert outcome.unsaved.startswith(f"--resume {tmp_path / 'runs'}: cannot be written")


def test_a_stop_whose_exception_is_lost_ends_the_sweep_after_the_run(inputs):
    runs = [RUN, replace(RUN, number=1), replace(RUN, number=2)]
    finished = []
    outcome = conduct(
        inputs,
        runs,
        lambda missing: InProcess(),
        on_finished=finished.append,
        is_stopped=lambda: len(finished) == 2,
    )
    assert outcome.interrupted
    assert sorted(outcome.results) == [0, 1]
