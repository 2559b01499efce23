from __future__ import annotations

import re
from pathlib import Path

import pytest

from dlsched.core.cluster.description import parse_cluster_spec
from dlsched.core.errors import BadInput
from simulate.clusters.event_files import read_events


@pytest.fixture
def read(tmp_path):
    def reading(text, spec="2x4:v100"):
        path = tmp_path / "events.csv"
        path.write_text(text)
        return read_events(path, parse_cluster_spec(spec))

    return reading


def test_events_come_by_time_and_in_the_files_order(read):
    _, events = read("time,event,node\n9,join,n1\n5,fail,n[1-2]\n9,join,n2\n5,join,n1\n7,fail,n1\n")
    told = [(event.time, event.kind, event.node) for event in events]
    assert told == [
        (5, "fail", 0),
        (5, "fail", 1),
        (5, "join", 0),
        (7, "fail", 0),
        (9, "join", 0),
        (9, "join", 1),
    ]


def test_a_join_brings_new_nodes_and_a_retype_new_types(read):
    cluster, events = read(
        "time,event,node,gpu_type,gpus\n5,join,m[1-2],a100,8\n6,retype,n1,h100,\n7,leave,m1,,\n"
    )
    assert cluster.names == ("n1", "n2", "m1", "m2")
    assert cluster.gpus.tolist() == [4, 4, 8, 8]
    assert cluster.gpu_types == ("v100", "a100", "h100")
    assert events[2].gpu_type == 2
    assert cluster.spec == "2x4:v100 and 2 that join"


def test_the_example_of_the_guide_is_read(read):
    guide = Path(__file__).parents[3] / "docs" / "replay.md"
    (example,) = re.findall(r"```csv\n(.*?)```", guide.read_text(), re.DOTALL)
    cluster, events = read(example, "16x8:v100")
    assert len(events) == 6
    assert cluster.total_gpus == 18 * 8


def test_a_node_that_joins_first_is_absent_before(lab, read):
    cluster, events = read("time,event,node,gpu_type,gpus\n50,join,m1,v100,8\n", "1x4:v100")
    result = lab.run([(0, 8, 10)], cluster=cluster, events=events)
    assert lab.spans(result) == {"A": (50.0, 60.0)}


def test_a_failed_node_loses_work_and_a_leaving_one_does_not(lab, read):
    for kind, end in (("fail", 160.0), ("leave", 110.0)):
        cluster, events = read(f"time,event,node\n50,{kind},n1\n60,join,n1\n", "1x4")
        result = lab.run([(0, 4, 100)], cluster=cluster, events=events)
        assert lab.spans(result)["A"][1] == end
        assert result.summary["lost_seconds"] == (50.0 if kind == "fail" else 0.0)


def test_a_retyped_node_serves_jobs_of_its_new_type(lab, read):
    cluster, events = read("time,event,node,gpu_type\n50,retype,n1,k80\n", "1x4:v100+1x4:a100")
    trace = lab.trace([(0, 4, 10), (0, 4, 100)], gpu_type=["k80", "v100"])
    result = lab.run(trace, cluster=cluster, events=events, policy="first-fit")
    assert lab.spans(result)["A"] == (50.0, 60.0)
    # suspended when its node changed, and there is no other of its type
    assert result.jobs.status.tolist() == ["completed", "unfinished"]


def test_events_after_the_last_job_do_not_matter(lab, read):
    cluster, events = read("time,event,node\n50,fail,n1\n99999,join,n1\n", "2x4")
    result = lab.run([(0, 4, 10)], cluster=cluster, events=events)
    assert result.summary["end_time"] == 10


BROKEN = {
    "": "events.csv: the file is empty; it begins with time,event,node",
    "time,node\n": "events.csv:1: the column event is missing",
    "time,event,node,why\n": "events.csv:1: column 'why' is not known",
    "time,event,node,node\n": "events.csv:1: column 'node' comes twice",
    "time,event,node\n-1,fail,n1\n": "events.csv:2: time must be seconds from 0 on, not '-1'",
    "time,event,node\nx,fail,n1\n": "events.csv:2: time must be seconds from 0 on, not 'x'",
    "time,event,node\nnan,fail,n1\n": "events.csv:2: time must be seconds",
    "time,event,node\n1,fail\n": "events.csv:2: node is missing",
    "time,event,node\n1,fail,n1,n2\n": "events.csv:2: 4 fields, but the header has 3",
    "time,event,node\n1,break,n1\n": "events.csv:2: event 'break' is not known; known: join,",
    "time,event,node\n\n1,fail,n9\n": "events.csv:3: node n9 is not in the cluster",
    "time,event,node\n1,fail,n[1\n": "events.csv:2: node: 'n[1' is not a host list",
    "time,event,node\n1,join,n1\n2,join,n1\n": "events.csv:3: node n1 joins but is in service",
    "time,event,node\n1,fail,n1\n2,leave,n1\n": "events.csv:3: leave of node n1, which is not in",
    "time,event,node\n1,fail,n1\n2,drain,n1\n": "events.csv:3: drain of node n1, which is not in",
    "time,event,node\n1,join,m1\n": "events.csv:2: node m1 is new, so its join needs gpus",
    "time,event,node\n1,retype,n1\n": "events.csv:2: a retype needs gpu_type",
    "time,event,node,gpu_type\n1,fail,n1,k80\n": "events.csv:2: fail takes no gpu_type",
    "time,event,node,gpus\n1,fail,n1,4\n": "events.csv:2: fail takes no gpus",
    "time,event,node,gpus\n1,join,m1,0\n": "events.csv:2: gpus must be a whole number",
    "time,event,node,gpus\n1,fail,n1,\n2,join,n1,8\n": "a join cannot change that",
}


@pytest.mark.parametrize("text", BROKEN)
def test_a_broken_file_is_one_line_with_its_number(read, text):
    with pytest.raises(BadInput) as refused:
        read(text)
    assert BROKEN[text] in str(refused.value)
    assert "\n" not in str(refused.value)
