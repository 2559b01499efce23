"""Virtual clusters that are parts of others, in a live cluster."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from dlsched.core.errors import BadInput
from dlsched.daemon.settings import load_settings
from dlsched.daemon.site_rules.vc_tree import check_tree
from dlsched.daemon.tenants import Tenants
from dlsched.db.records import TenantSet
from dlsched.tenants.fields import Vc

from .cluster_of_tests import Caller, Running, job, settings_of
from .scripted_agent import ScriptedAgent
from .test_daily import ends, play, reaches, refused
from .test_tenants import Operator, waits


def test_a_part_borrows_from_its_siblings_and_not_beyond_its_parent(tmp_path: Path) -> None:
    async def scene(running: Running, caller: Caller, agent: ScriptedAgent) -> None:
        root = Operator(running)
        told = await root.set("vc", name="lab", gpus=4, borrow=False)
        assert told == ["vc lab: added, gpus 4, borrow no"]
        assert await root.set("vc", name="speech", gpus=2, borrow=True, parent="lab") == [
            "vc speech: added, gpus 2, borrow yes, parent lab"
        ]
        await root.set("vc", name="vision", gpus=2, borrow=True, parent="lab")
        assert (await root.all("vc"))["vision"].vc.parent == "lab"

        def one(vc: str) -> Any:
            return job(gpus=2, vc=vc, expected_s=1000)

        own, lent, more = await caller.submit(*(one("speech") for _ in range(3)))
        await reaches(caller, own, "RUNNING")
        await reaches(caller, lent, "RUNNING")  # what vision leaves idle
        reason = await waits(caller, more, "Quota")  # 4 GPUs are idle, and lab may not have them
        assert "lab: 4 of 4 GPUs used" in reason
        [theirs] = await caller.submit(one("vision"))
        await reaches(caller, theirs, "RUNNING")
        assert (await caller.show(lent)).job.state == "PENDING"
        assert (await caller.state(own)) == "RUNNING"
        await ends(agent, theirs)
        await reaches(caller, lent, "RUNNING")
        _, text = await refused(root.remove("vc", "lab"))
        assert text == "vc lab: vc speech names it"
        _, text = await refused(root.set("vc", create=False, name="lab", guaranteed=3))
        assert text == "vc lab: its parts are guaranteed 4 GPUs, it has 3"
        _, text = await refused(root.set("vc", create=False, name="lab", parent="vision"))
        assert "would be a part of itself, through" in text
        _, text = await refused(root.set("vc", name="x", gpus=1, parent="nothing"))
        assert text == ("vc x: parent vc 'nothing' is not known; known: lab, speech, vision")

    play(tmp_path, scene, gpus=8, round={"interval_s": 0.3, "policy": "srtf"})


WRONG = [
    ((Vc(name="a", gpus=1, parent="b"),), "vc a: is a part of b, which does not exist"),
    (
        (Vc(name="a", gpus=1, parent="b"), Vc(name="b", gpus=1, parent="a")),
        "vc a: would be a part of itself, through a",
    ),
    (
        (Vc(name="a", gpus=1, parent="b"), Vc(name="b", nodes="n1")),
        "vc a: b has no gpus; only quotas have parts",
    ),
    (
        (Vc(name="a", gpus=3, parent="b"), Vc(name="b", gpus=8, guaranteed=2)),
        "vc b: its parts are guaranteed 3 GPUs, it has 2",
    ),
]


@pytest.mark.parametrize(("vcs", "said"), WRONG)
def test_impossible_virtual_clusters_are_refused(
    vcs: tuple[Vc, ...], said: str, tmp_path: Path
) -> None:
    with pytest.raises(BadInput) as raised:
        check_tree({vc.name: vc for vc in vcs})
    assert str(raised.value) == said
    file = tmp_path / "dlsched.toml"
    lines = []
    for vc in vcs:
        lines += ["[[vcs]]"]
        for name in ("name", "gpus", "nodes", "guaranteed", "parent"):
            value = getattr(vc, name)
            if value not in (None, ""):
                lines.append(f"{name} = {value!r}")
    file.write_text("\n".join(lines) + "\n")
    with pytest.raises(BadInput) as raised:
        load_settings(file)
    assert str(raised.value) == f"{file}: vcs: {said}"


def test_parts_whose_parent_left_the_configuration_stand_alone(tmp_path: Path) -> None:
    tenants = Tenants(settings_of(tmp_path))
    mine = Vc(name="a", gpus=1, guaranteed=1, parent="gone")
    tenants.take(TenantSet(tenant=mine, actor="root", at=1.0))
    [found] = tenants.in_force()
    assert (found.name, found.gpus, found.parent) == ("a", 1, "")
