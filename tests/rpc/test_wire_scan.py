"""The scan of a message before it is decoded: its counts, its refusals, and what decoding says."""

from __future__ import annotations

from typing import Any

import pytest
from google.protobuf.message import DecodeError
from hypothesis import example, given, settings
from hypothesis import strategies as st

from dlsched.core.errors import BadInput
from dlsched.rpc.v1 import control_pb2, node_pb2
from dlsched.rpc.wire_scan import scan
from tests.counting import python_calls

FINE = 1 << 30


def refusal(raw: bytes, kind: Any, most: dict[str, int] | None = None, values: int = FINE) -> str:
    """The line with which a message is refused; empty: it is not."""
    try:
        scan(raw, kind.DESCRIPTOR, lambda field: (most or {}).get(field, FINE), values)
    except BadInput as error:
        return str(error)
    return ""


def test_elements_are_counted_over_the_whole_message() -> None:
    variable = control_pb2.EnvironmentVariable(name="A", value="1")
    job = control_pb2.JobRequest(environment=[variable] * 3, extra={"a": "1", "b": "2"})
    raw = control_pb2.SubmitRequest(jobs=[job] * 4, environment=[variable] * 5).SerializeToString()
    for field, count in {
        "SubmitRequest.jobs": 4,
        "SubmitRequest.environment": 5,
        "JobRequest.environment": 12,
        "JobRequest.extra": 8,
    }.items():
        assert refusal(raw, control_pb2.SubmitRequest, {field: count}) == ""
        why = refusal(raw, control_pb2.SubmitRequest, {field: count - 1})
        assert why == f"{field}: more than {count - 1} in one call"


def test_numbers_that_stand_packed_are_counted_each() -> None:
    ids = control_pb2.Filter(jobs=[1, 300, 1 << 40, 0])
    raw = control_pb2.ShowRequest(filter=ids).SerializeToString()
    assert refusal(raw, control_pb2.ShowRequest, {"Filter.jobs": 4}) == ""
    assert "Filter.jobs: more than 3" in refusal(raw, control_pb2.ShowRequest, {"Filter.jobs": 3})
    curve = control_pb2.MetricCurve(at=[1.0, 2.0]).SerializeToString()
    assert "more than 1" in refusal(curve, control_pb2.MetricCurve, {"MetricCurve.at": 1})
    singly = b"\x08\x05" * 3  # the same field, not packed
    assert "more than 2" in refusal(singly, control_pb2.Filter, {"Filter.jobs": 2})


def test_a_flood_of_empty_elements_costs_no_more_than_its_bound() -> None:
    bound = {"SubmitRequest.jobs": 100}
    short, long = b"\x12\x00" * 1_000, b"\x12\x00" * 2_000_000
    calls = [
        python_calls(lambda raw=raw: refusal(raw, control_pb2.SubmitRequest, bound))  # type: ignore[misc]
        for raw in (short, long)
    ]
    assert calls[0] == calls[1] < 1_000
    junk = b"\x98\x06\x00" * 1_000_000  # a field that no version has
    assert (
        refusal(junk, control_pb2.SubmitRequest, values=50) == "SubmitRequest: more than 50 values"
    )


@pytest.mark.parametrize(
    ("raw", "why"),
    [
        (b"\x12", "at byte 1: a number that does not end"),
        (b"\x12\x05ab", "at byte 0: a length of 5 bytes, and 2 follow"),
        (b"\x18\x01\x12\xff\xff\xff\xff\x7f", "at byte 2: a length of 34359738367 bytes"),
        (b"\x0a\x02\xff\xfe", "at byte 2: SubmitRequest.request_id is not UTF-8"),
        (b"\x12\x03\x0a\x01\x80", "at byte 4: JobRequest.name is not UTF-8"),
        (b"\x00\x01", "at byte 0: no field has the number 0"),
        (b"\x80\x80\x80\x80\x10\x00", "at byte 0: no field has the number 536870912"),
        (b"\x17", "at byte 0: a value of the unknown kind 7"),
        (b"\x99\x06abc", "at byte 0: a value that is cut off"),
        (b"\x18" + b"\x80" * 11, "a number that does not end"),
    ],
)
def test_malformed_bytes_are_named_with_their_place(raw: bytes, why: str) -> None:
    assert why in refusal(raw, control_pb2.SubmitRequest)
    with pytest.raises(DecodeError):
        control_pb2.SubmitRequest.FromString(raw)


SEEDS = [
    control_pb2.SubmitRequest(
        request_id="r",
        jobs=[
            control_pb2.JobRequest(name="é", argv=["a", ""], gpus=3, share=0.5, extra={"k": "v"}),
            control_pb2.JobRequest(
                dependencies=[control_pb2.Dependency(kind="after", job=1 << 40)]
            ),
        ],
    ),
    control_pb2.QueueRequest(
        filter=control_pb2.Filter(
            jobs=[1, 2, 300],
            elements=[control_pb2.ArrayElements(array_job=7, tasks=[1, 2])],
        )
    ),
    node_pb2.SyncRequest(node="n1", held=node_pb2.HeldSet(), renewed_sequence=-1),
]


@settings(max_examples=300, deadline=None)
@given(
    place=st.integers(0, len(SEEDS) - 1),
    edits=st.lists(st.tuples(st.integers(0, 200), st.integers(0, 255)), max_size=4),
    cut=st.integers(0, 200),
    more=st.binary(max_size=12),
)
@example(place=0, edits=[], cut=200, more=b"")
@example(place=0, edits=[], cut=0, more=b"\x12\x00" * 6)
def test_fuzzed_bytes_are_refused_in_one_line_exactly_where_decoding_fails(
    place: int, edits: list[tuple[int, int]], cut: int, more: bytes
) -> None:
    seed = SEEDS[place]
    raw = bytearray(seed.SerializeToString()[:cut] + more)
    for at, value in edits:
        if at < len(raw):
            raw[at] = value
    why = refusal(bytes(raw), type(seed))
    try:
        type(seed).FromString(bytes(raw))
    except DecodeError:
        assert why
        assert "\n" not in why
    else:
        # groups are the one thing that decodes and is refused: no message of ours has any
        assert why == "" or "unknown kind 3" in why
