"""`dlsched admin user`, `account`, `vc`, `quota`: what is asked, and what is printed."""

from __future__ import annotations

import json

import pytest

from dlsched.rpc.v1 import control_pb2 as pb


@pytest.mark.parametrize(
    ("words", "tenant", "fields"),
    [
        ("vc add speech --gpus 8 --guaranteed 4 --borrow",
         pb.Tenant(vc=pb.TenantVc(name="speech", gpus=8, guaranteed=4, borrow=True)),
         {"gpus", "guaranteed", "borrow"}),
        ("vc set speech --no-borrow --guaranteed none",
         pb.Tenant(vc=pb.TenantVc(name="speech", borrow=False)), {"borrow", "guaranteed"}),
        ("account add robots --parent lab --weight 2.5 --vc speech",
         pb.Tenant(account=pb.TenantAccount(name="robots", parent="lab", weight=2.5, vc="speech")),
         {"parent", "weight", "vc"}),
        ("user set ann --account robots --accounts lab,staff --vc none",
         pb.Tenant(user=pb.TenantUser(name="ann", account="robots", accounts=["lab", "staff"])),
         {"account", "accounts", "vc"}),
        ("user add carl", pb.Tenant(user=pb.TenantUser(name="carl")), set()),
        ("quota add user * --gpus 4 --jobs none --gpu-hours 100 --window 7d",
         pb.Tenant(quota=pb.TenantQuota(
             kind="user", name="*", gpus=4, gpu_hours=100, window_s=604800)),
         {"gpus", "jobs", "gpu_hours", "window_s"}),
    ],
)  # fmt: skip
def test_a_tenant_is_added_or_changed(dlsched, control, words, tenant, fields):
    control.answers["SetTenant"] = pb.TenantReply(lines=["vc speech: gpus 4 -> 8"])
    done = dlsched("admin", *words.split())
    assert done == (0, "vc speech: gpus 4 -> 8\n", "")
    request = control.request("SetTenant")
    assert request.tenant == tenant
    assert set(request.fields) == fields
    assert request.create == (words.split()[1] == "add")


def test_a_tenant_is_removed(dlsched, control):
    control.answers["RemoveTenant"] = pb.TenantReply(lines=["gone"])
    assert dlsched("admin", "quota", "remove", "account", "lab").out == "gone\n"
    request = control.request("RemoveTenant")
    assert (request.kind, request.name) == ("quota", "account lab")
    control.asked.clear()
    dlsched("admin", "vc", "remove", "speech")
    request = control.request("RemoveTenant")
    assert (request.kind, request.name) == ("vc", "speech")


@pytest.mark.parametrize(
    ("words", "line"),
    [
        ("vc set speech", "nothing to change: give at least one option"),
        ("account add x --weight heavy", "--weight: 'heavy' is not a number"),
        ("quota add user ann --window x", "--window: 'x' is not a duration"),
        ("vc add x --gpus some", "--gpus: 'some'"),
    ],
)
def test_wrong_values_are_refused_before_a_request_is_sent(dlsched, control, words, line):
    done = dlsched("admin", *words.split())
    assert (done.code, done.out, done.err.count("\n")) == (2, "", 1)
    assert done.err.startswith(f"dlsched: {line}")
    assert not control.asked


def test_tenants_are_listed_with_what_they_use(dlsched, control):
    quota = pb.TenantQuota(kind="user", name="ann", gpus=4, gpu_hours=100, window_s=2592000)
    control.answers["Tenants"] = pb.TenantsReply(
        tenants=[
            pb.Tenant(
                quota=quota, source="operator", set_by="root", set_at=1795242340.0, gpu_parts_now=3,
                jobs_now=7, gpu_hours_now=12.5,
            )
        ]
    )  # fmt: skip
    done = dlsched("admin", "quota", "list")
    assert done.code == 0
    assert done.out.splitlines()[1].split() == [
        "user", "ann", "4", "-", "100", "30-00:00:00", "3", "7", "12.5", "root",
    ]  # fmt: skip
    assert control.request("Tenants").kind == "quota"
    [found] = json.loads(dlsched("admin", "quota", "list", "--json").out)["tenants"]
    assert (found["jobs"], found["gpus"], found["gpu_hours_now"]) == (None, 4, 12.5)
    control.answers["Tenants"] = pb.TenantsReply(
        tenants=[
            pb.Tenant(
                account=pb.TenantAccount(name="lab", users=["ann", "bob"]), source="operator"
            ),
            pb.Tenant(account=pb.TenantAccount(name="robots", parent="lab", weight=2.0)),
        ]
    )
    out = dlsched("admin", "account", "list").out.splitlines()
    assert out[1].split()[:5] == ["lab", "-", "-", "-", "ann,bob"]
    assert out[2].split()[:3] == ["robots", "lab", "2"]
