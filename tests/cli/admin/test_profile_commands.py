"""`dlsched admin profile`: list, import, export and forget."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from dlsched.rpc.v1 import control_pb2 as pb

COLUMNS = "accelerator,scale_factor,model,batch_size,co_model,co_batch_size"
TABLE = f"""{COLUMNS},steps_per_s,co_steps_per_s
v100,1,cnn,64,,,26.5,
k80,1,cnn,64,,,4,
v100,1,cnn,64,rnn,,20,3
v100,1,cnn,64,cnn,64,13,13
"""
ROWS = [
    pb.SpeedView(model="cnn", batch_size=64, gpu_type="k80", gpus=1, steps_per_s=4.0,
                 measurements=3, source="measured", at=7.0),
    pb.SpeedView(model="cnn", batch_size=64, gpu_type="v100", gpus=1, steps_per_s=26.5,
                 source="root"),
    pb.SpeedView(model="cnn", batch_size=64, gpu_type="v100", gpus=1, steps_per_s=13.0,
                 partner="cnn", partner_batch_size=64),
    pb.SpeedView(model="cnn", batch_size=64, gpu_type="v100", gpus=1, steps_per_s=20.0,
                 partner="rnn"),
    pb.SpeedView(model="rnn", gpu_type="v100", gpus=1, steps_per_s=3.0, partner="cnn",
                 partner_batch_size=64),
    pb.SpeedView(model="rnn", gpu_type="v100", gpus=1, steps_per_s=1.0, partner="gan"),
]  # fmt: skip


def test_known_speeds_are_listed(dlsched: Any, control: Any) -> None:
    control.answers["Speeds"] = pb.SpeedsReply(speeds=ROWS)
    words = "admin profile list --model cnn --batch-size 64 --gpu-type k80"
    code, out, _ = dlsched(*words.split())
    assert code == 0
    lines = out.splitlines()
    assert lines[0].split() == [
        "MODEL", "BATCH", "TYPE", "GPUS", "PARTNER", "STEPS/S", "MEASURED", "FROM"
    ]  # fmt: skip
    assert lines[1].split() == ["cnn", "64", "k80", "1", "-", "4", "3", "measured"]
    assert lines[2].split() == ["cnn", "64", "v100", "1", "-", "26.5", "-", "root"]
    asked = control.request("Speeds")
    assert (asked.model, asked.batch_size, asked.gpu_type) == ("cnn", 64, "k80")


def test_known_speeds_are_listed_as_json(dlsched: Any, control: Any) -> None:
    control.answers["Speeds"] = pb.SpeedsReply(speeds=ROWS[:1])
    found = json.loads(dlsched("admin", "profile", "list", "--json")[1])
    assert found["schema"] == "dlsched.profile/1"
    assert found["speeds"] == [
        {
            "model": "cnn", "batch_size": 64, "gpu_type": "k80", "gpus": 1, "partner": None,
            "partner_batch_size": None, "steps_per_s": 4.0, "measurements": 3,
            "source": "measured", "at": 7.0,
        }
    ]  # fmt: skip
    assert not control.request("Speeds").HasField("batch_size")


def test_a_table_of_speeds_is_imported(dlsched: Any, control: Any, tmp_path: Path) -> None:
    file = tmp_path / "speeds.csv"
    file.write_text(TABLE)
    control.answers["SetSpeeds"] = pb.SpeedsChanged(count=5)
    done = dlsched("admin", "profile", "import", str(file))
    assert done == (0, "5 speeds imported\n", "")
    sent = [
        (v.model, v.batch_size, v.gpu_type, v.partner, v.partner_batch_size, v.steps_per_s)
        for v in control.request("SetSpeeds").speeds
    ]
    assert sent == [
        ("cnn", 64, "v100", "", 0, 26.5),
        ("cnn", 64, "k80", "", 0, 4.0),
        ("cnn", 64, "v100", "rnn", 0, 20.0),
        ("rnn", 0, "v100", "cnn", 64, 3.0),
        ("cnn", 64, "v100", "cnn", 64, 13.0),
    ]


@pytest.mark.parametrize(
    ("table", "said"),
    [
        ("a,b\n1,2\n", "a table of throughputs needs a column accelerator"),
        (TABLE + "v100,1,cnn,64,,,27,\n", "has 27 steps/s here and 26.5 before"),
        (TABLE + "v100,1,gan,,,,-1,\n", "steps per second of gan must be 0 or more"),
        (TABLE + "v100,0,gan,,,,1,\n", "scale_factor must be a whole number from 1 up"),
    ],
)
def test_a_wrong_table_is_refused_as_a_whole(
    dlsched: Any, control: Any, tmp_path: Path, table: str, said: str
) -> None:
    file = tmp_path / "speeds.csv"
    file.write_text(table)
    code, _, error = dlsched("admin", "profile", "import", str(file))
    assert code == 2
    assert said in error
    assert error.count("\n") == 1
    assert not control.asked


def test_an_exported_table_can_be_imported(dlsched: Any, control: Any, tmp_path: Path) -> None:
    control.answers["Speeds"] = pb.SpeedsReply(speeds=ROWS)
    file = tmp_path / "out.csv"
    export = dlsched("admin", "profile", "export", "-o", str(file))
    assert export == (0, f"{file}: 4 rows\n", "")
    control.answers["SetSpeeds"] = pb.SpeedsChanged(count=5)
    assert dlsched("admin", "profile", "import", str(file))[0] == 0

    def key(view: Any) -> tuple[Any, ...]:
        return (
            view.model, view.batch_size, view.gpu_type, view.partner, view.partner_batch_size,
            view.steps_per_s,
        )  # fmt: skip

    sent = {key(view) for view in control.request("SetSpeeds").speeds}
    assert sent == {key(view) for view in ROWS if view.partner != "gan"}


def test_nothing_is_forgotten_by_mistake(dlsched: Any, control: Any) -> None:
    code, _, error = dlsched("admin", "profile", "forget")
    assert code == 2
    assert "say what to forget" in error
    assert not control.asked
    control.answers["ForgetSpeeds"] = pb.SpeedsChanged(count=7)
    done = dlsched("admin", "profile", "forget", "--all")
    assert done == (0, "7 speeds forgotten\n", "")
