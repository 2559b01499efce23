"""`dlsched admin audit`, typed by an operator of a real cluster."""

from __future__ import annotations

import json

import pytest

from dlsched.torture.local_cluster import LocalCluster

pytestmark = pytest.mark.slow


def test_the_audit_has_each_act_with_its_user(small: LocalCluster) -> None:
    job = small.submit("sleep 100", gpus="1")
    small.until(job, "RUNNING")
    small.cli("drain", "n2", "--reason", "bad fan")
    small.cli("cancel", str(job))
    small.until(job, "CANCELLED")
    told = json.loads(small.cli("admin", "audit", "--json"))
    assert told["schema"] == "dlsched.audit/1"
    said = [(each["kind"], each["job_id"], each["node"]) for each in told["events"]]
    # the newest first, and nothing that the cluster did by itself
    assert said == [("cancel", job, None), ("drain", None, "n2"), ("submit", job, None)]
    assert {each["actor"] for each in told["events"]} == {"root"}
    everything = json.loads(small.cli("admin", "audit", "-a", "-j", str(job), "--json"))["events"]
    assert {"start", "end"} <= {each["kind"] for each in everything}
    text = small.cli("admin", "audit", "--kind", "drain", "-w", "n[1-2]", "--since", "1h")
    assert "bad fan" in text
    assert len(text.splitlines()) == 2
    assert small.cli("admin", "audit", "--since", "2100-01-01").count("\n") == 1
    bad = small.run("admin", "audit", "--job", "x")
    assert (bad.returncode, bad.stderr.count("\n")) == (2, 1)
