"""The node's JSON layer reads what the daemon's writes, and what earlier versions wrote."""

from __future__ import annotations

from typing import Any

import pytest

from dlsched.core.errors import BadInput
from dlsched.nodeagent import json_values
from dlsched.nodeagent.keeper.run_files import LeaseFile, RunFile
from dlsched.protocol import json_form
from dlsched.protocol import messages as m

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
LEASE = LeaseFile(until=7.5, covers=frozenset({m.RunId("a"), m.RunId("b")}), by_leader=True)

# written by version 0.1.0
OLD_RUN = (
    b'{"desired":{"key":{"job":7,"run":2,"run_id":"7-2a"},"want":"running","epoch":3,'
    b'"boot_id":"b1","gpus":["g1"],"layout":[{"node":"n1","gpus":["g1"]}],"mode":"batch",'
    b'"limits":{"time_s":60,"memory_bytes":null,"cpus":null}},"boot_id":"b1",'
    b'"keeper":{"boot_id":"b1","pid":4,"start":99},"facts":{"user":"caf\xc3\xa9 \xff","uid":1,'
    b'"of_a_later_version":1}}'
)


@pytest.mark.parametrize("value", [EXIT, LEASE])
def test_each_layer_reads_what_the_other_writes(value: Any) -> None:
    kind = type(value)
    assert json_values.loads(kind, json_form.dumps(value).encode()) == value
    assert json_form.loads(kind, json_values.dumps(value)) == value
    assert json_values.loads(kind, json_values.dumps(value)) == value


def test_a_file_of_an_earlier_version_is_read() -> None:
    found = json_values.loads(RunFile, OLD_RUN)
    assert found.desired.key == KEY
    assert found.desired.limits.time_s == 60.0
    assert found.desired.grace_s == m.DesiredRun.__dataclass_fields__["grace_s"].default
    assert found.facts.user == "caf\u00e9 \udcff"


@pytest.mark.parametrize("data", [b"", b"[]", b'{"until":1}', b'{"until":"x","covers":[]}'])
def test_a_damaged_file_is_refused(data: bytes) -> None:
    with pytest.raises(BadInput, match="not a LeaseFile"):
        json_values.loads(LeaseFile, data)
