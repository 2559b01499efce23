"""Networks as plain arrays: what they compute, what is drawn, and their files."""

from __future__ import annotations

import io
import json
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dlsched.composition.network_files import network_bytes, read_network
from dlsched.core.errors import BadInput
from dlsched.policies.learning.network import Network, draw


def network(*sizes: int, seed: int = 0, schema: str = "tests/1") -> Network:
    rng = np.random.default_rng(seed)
    shapes = list(pairwise(sizes))
    return Network(
        "made.npz",
        schema,
        [rng.normal(size=shape).astype(np.float32) for shape in shapes],
        [rng.normal(size=shape[1]).astype(np.float32) for shape in shapes],
        {"seed": seed, "hidden": list(sizes[1:-1])},
    )


def test_layers_follow_each_other_with_a_maximum_between() -> None:
    weights = [np.array([[1, -1]], np.float32), np.array([[2], [3]], np.float32)]
    made = Network("", "", weights, [np.zeros(2, np.float32), np.ones(1, np.float32)])
    assert made(np.array([5], np.float32)).tolist() == [11]  # 2·5 + 3·0 + 1
    assert made(np.array([[5], [-2]], np.float32)).tolist() == [[11], [7]]


@given(
    scores=st.lists(st.floats(-500, 500, width=32), min_size=1, max_size=20),
    chance=st.floats(0, 1, exclude_max=True),
    data=st.data(),
)
def test_what_is_not_allowed_is_never_drawn(
    scores: list[float], chance: float, data: st.DataObject
) -> None:
    size = len(scores)
    allowed = np.array(data.draw(st.lists(st.booleans(), min_size=size, max_size=size)))
    allowed[data.draw(st.integers(0, size - 1))] = True
    assert allowed[draw(np.array(scores, np.float32), allowed, chance)]


def test_draws_follow_the_scores() -> None:
    scores, allowed = np.log(np.array([1, 5, 3], np.float32)), np.array([True, False, True])
    rng = np.random.default_rng(0)
    drawn = [draw(scores, allowed, rng.random()) for _ in range(4000)]
    assert np.bincount(drawn) / 4000 == pytest.approx([0.25, 0, 0.75], abs=0.03)


def test_a_file_brings_back_the_same_network(tmp_path: Path) -> None:
    made, path = network(4, 7, 3), tmp_path / "model"
    path.write_bytes(network_bytes(made))
    read = read_network(str(path))
    assert (read.schema, read.settings) == (made.schema, made.settings)
    assert (read.inputs, read.outputs, str(read)) == (4, 3, str(path))
    inputs = np.random.default_rng(1).normal(size=4).astype(np.float32)
    assert read(inputs).tolist() == made(inputs).tolist()
    assert network_bytes(read) == path.read_bytes()


def changed(made: Network, **header: Any) -> bytes:
    with np.load(io.BytesIO(network_bytes(made))) as arrays:
        content = {name: arrays[name] for name in arrays.files}
    known = json.loads(content["header"].tobytes())
    content["header"] = np.frombuffer(json.dumps({**known, **header}).encode(), np.uint8)
    out = io.BytesIO()
    np.savez(out, **content)
    return out.getvalue()


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"text", "is no trained network; dlsched train makes one"),
        (b"PK\x03\x04", "is no trained network"),
        (network_bytes(network(4, 3))[:200], "is no trained network"),
        (
            changed(network(4, 3), format="dlsched.network/9"),
            "of format 'dlsched.network/9'; this version of dlsched reads dlsched.network/1",
        ),
        (changed(network(4, 3), layers=2), "is no trained network"),
        (changed(network(4, 3), layers=0), "do not fit together"),
        (
            network_bytes(Network("", "", [np.zeros((4, 3), np.float32)] * 2, [np.zeros(3)] * 2)),
            "do not fit together",
        ),
        (
            network_bytes(Network("", "", [np.full((1, 1), np.nan)], [np.zeros(1)])),
            "are not finite",
        ),
    ],
)
def test_what_is_no_network_is_refused_in_one_line(
    tmp_path: Path, content: bytes, message: str
) -> None:
    path = tmp_path / "model"
    path.write_bytes(content)
    with pytest.raises(BadInput, match=message) as refused:
        read_network(str(path))
    assert str(path) in str(refused.value)


def test_a_file_that_is_not_there_is_named() -> None:
    with pytest.raises(BadInput, match=r"/no/such: cannot be read: No such file"):
        read_network("/no/such")
