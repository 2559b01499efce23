from __future__ import annotations

import json

import pytest

from dlsched.core.errors import BadInput
from dlsched.db.contents import JobContent
from dlsched.db.records import JobBody
from dlsched.protocol import messages as m
from dlsched.protocol.agent import AgentRecord, RunRecord
from dlsched.protocol.json_form import dumps, loads, plain, value_of
from dlsched.protocol.ledger import Terms
from dlsched.protocol.table import Table

KEY = m.RunKey(m.JobId(7), m.RunNumber(2), m.RunId("7-2a"))
EXIT = m.ExitRecord(
    key=KEY,
    node=m.NodeName("n1"),
    reason=m.ExitReason.EXITED,
    stop=m.StopReason.CANCEL,
    ran_s=3.5,
    detail="caf\u00e9 \udcff",
    nodes=(m.NodeName("n1"),),
)
RUN = RunRecord(
    desired=m.DesiredRun(
        key=KEY,
        want=m.Want.RUNNING,
        epoch=m.Epoch(3),
        boot_id=m.BootId("b1"),
        gpus=(m.GpuId("g1"), m.GpuId("g2")),
        layout=(m.Share(node=m.NodeName("n1"), gpus=(m.GpuId("g1"), m.GpuId("g2"))),),
        limits=m.Limits(time_s=60.0),
    ),
    boot_id=m.BootId("b1"),
    released=True,
    exit=EXIT,
)
BODY = JobBody(name="x", priority=0.0, gang=(2, 2))
CONTENT = JobContent(script=b"\xff\n", environment={"A": "b"})

# what version 0.1.0 wrote
OLD_EXIT = (
    '{"key":{"job":7,"run":2,"run_id":"7-2a"},"node":"n1","reason":"exited","stop":"cancel",'
    '"ran_s":3.5,"detail":"caf\\u00e9 \\udcff","nodes":["n1"]}'
)
OLD_RUN = (
    b'{"desired":{"key":{"job":7,"run":2,"run_id":"7-2a"},"want":"running","epoch":3,'
    b'"boot_id":"b1","gpus":["g1","g2"],"layout":[{"node":"n1","gpus":["g1","g2"]}],'
    b'"mode":"batch","fence":"hold","environment":"","limits":{"time_s":60.0,'
    b'"memory_bytes":null,"cpus":null},"grace_s":30.0,"suspend_level":"freeze","suspension":0,'
    b'"stop":null,"stop_step":null,"request_id":"","gpu_share":null},"boot_id":"b1",'
    b'"released":true,"exit":{"key":{"job":7,"run":2,"run_id":"7-2a"},"node":"n1",'
    b'"reason":"exited","code":0,"signal":0,"stop":"cancel","ran_s":3.5,'
    b'"detail":"caf\xc3\xa9 \xff","nodes":["n1"],"request_id":""}}'
)
OLD_BODY = (
    '{"name":"x","priority":0.0,"gang":[2,2],"gpus":1,"requeue":true,"slurm_environment":true}'
)
OLD_CONTENT = '{"script":"/wo=","environment":{"A":"b"}}'


def test_rows_and_files_of_the_first_version_are_read():
    assert loads(m.ExitRecord, OLD_EXIT, exact=True) == EXIT
    assert loads(RunRecord, OLD_RUN) == RUN
    assert loads(JobBody, OLD_BODY, exact=True) == BODY
    assert loads(JobContent, OLD_CONTENT, exact=True) == CONTENT
    assert loads(Terms, '{"limits":{},"grace_s":30,"retries":0}', exact=True) == Terms(
        limits=m.Limits(), grace_s=30.0, retries=0
    )
    assert loads(AgentRecord, b'{"term":{"epoch":0,"revision":0},"incarnation":0}') == AgentRecord()


@pytest.mark.parametrize("value", [EXIT, RUN, BODY, CONTENT, AgentRecord()])
def test_what_is_written_is_read_back_and_is_ascii(value: object):
    text = dumps(value)
    assert text.isascii()
    assert " " not in text.replace("caf\\u00e9 ", "")
    assert loads(type(value), text, exact=True) == value
    assert loads(type(value), text.encode()) == value


def test_plain_forms():
    assert plain(Table({"a": m.Want.RUNNING})) == {"a": "running"}
    assert dumps((1, b"\xff", None, {"b": (2.5,)})) == '[1,"/w==",null,{"b":[2.5]}]'
    with pytest.raises(TypeError):
        plain(object())


@pytest.mark.parametrize(
    ("kind", "data", "said"),
    [
        (m.Share, {"node": "a"}, "gpus"),
        (m.Share, {"node": 3, "gpus": []}, "node"),
        (m.Limits, {"cpus": 1.5}, "cpus"),
        (m.Limits, {"cpus": True}, "cpus"),
        (m.Limits, {"time_s": "60"}, "time_s"),
        (JobContent, {"script": "!"}, "script"),
        (m.Want, "perhaps", "perhaps"),
        (m.Share, [], "Share"),
    ],
)
def test_what_does_not_fit_is_refused_by_name(kind: type, data: object, said: str):
    with pytest.raises(BadInput, match=said):
        value_of(kind, data)
    with pytest.raises(BadInput, match="not a"):
        loads(kind, json.dumps(data)[:-1] + "?")


def test_an_unknown_field_is_dropped_or_refused():
    newer = {"term": {"epoch": 1, "revision": 2, "more": 3}, "incarnation": 4}
    known = AgentRecord(term=m.Term(m.Epoch(1), m.Revision(2)), incarnation=m.Incarnation(4))
    assert value_of(AgentRecord, newer) == known
    with pytest.raises(BadInput, match="unknown field more"):
        value_of(AgentRecord, newer, exact=True)
    shares = [{"node": "a", "gpus": []}, {"node": "b", "gpus": [], "else": 1}]
    with pytest.raises(BadInput, match="unknown field else"):
        value_of(tuple[m.Share, ...], shares, exact=True)
