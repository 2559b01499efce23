"""Numbers on the pages of the live cluster, and the code that they describe."""

from __future__ import annotations

from pathlib import Path

import pytest

from dlsched.core.scenarios import SCENARIOS, SURE
from dlsched.daemon.control import tokens
from dlsched.daemon.control.submission.rate_limit import RateLimit
from dlsched.daemon.round.forecasts.answering import MOST_JOBS
from dlsched.daemon.rpc_errors import TooMuch
from dlsched.daemon.settings import LimitsSection, ShadowSection, WhatIfSection
from dlsched.daemon.supposing.what_if import IN_LINE_S
from dlsched.daemon.turns import TURN_S
from dlsched.db import backup, leadership, schema, store
from dlsched.protocol.timing import Timing
from dlsched.rpc import bounded_http, request_bounds, server
from dlsched.rpc.authorisation import RULES
from dlsched.rpc.authority import LIFE_S
from dlsched.rpc.endpoint import MAX_MESSAGE_BYTES
from dlsched.rpc.tls import ALARM_S
from dlsched.rpc.tokens import LOCAL_S
from dlsched.rpc.v1 import attach_pb2, control_pb2, node_pb2, run_pb2
from tests.protocol.simulation.schedules import THEMES

DOCS = Path(__file__).resolve().parent.parent / "docs"


def page(name: str) -> str:
    """A page of the documents, with single spaces between its words."""
    return " ".join((DOCS / name).read_text().split())


def test_the_limits_on_the_security_page_are_those_of_the_code() -> None:
    text, bounds, limits = page("security.md"), dict(server.BOUNDS), LimitsSection()
    assert f"at most {MAX_MESSAGE_BYTES // 2**20} MiB on both sides" in text
    assert f"at most {bounds['grpc.max_concurrent_streams']} calls at a time" in text
    assert f"closed after {bounds['grpc.server_handshake_timeout_ms'] // 1000} s" in text
    assert f"after {bounds['grpc.max_connection_idle_ms'] // 60_000} minutes" in text
    assert f"makes at most {tokens.MADE_BY_ONE} in {tokens.WITHIN_S / 86_400:.0f} days" in text
    assert f"valid for {LOCAL_S / 60:.0f} minutes" in text
    assert f"in the last {ALARM_S / 86_400:.0f} days" in text
    assert LIFE_S == 365 * 86_400
    assert "Certificates are valid for a year." in text
    assert f"by default {limits.submits_per_s:g} and {limits.submit_burst}" in text


def test_the_bounds_on_questions_are_those_of_the_code() -> None:
    text, bounds = page("security.md"), WhatIfSection()
    assert f"at most {bounds.alternatives} alternatives and {bounds.within_s:g} s" in text
    assert f"waits for at most {IN_LINE_S:g} s" in text
    assert f"at most {MOST_JOBS:,}" in page("what-if.md")
    table = [f"| {factor:g} | {weight:g} |" for factor, weight in SCENARIOS]
    assert " ".join(table) in page("what-if.md")
    assert f"from {SURE:.0%}".replace("%", " %") in page("what-if.md")
    shadow = ShadowSection()
    row = f"| {shadow.every_s:g}, {shadow.within_s:g}, {shadow.share:g} |"
    assert f"| `shadow.every_s`, `within_s`, `share` {row}" in page("daemon.md")


def size_text(number: int) -> str:
    """Bytes as the pages write them."""
    return f"{number >> 20} MiB" if number >= 1 << 20 else f"{number >> 10} KiB"


def test_the_security_page_has_the_page_of_bounds() -> None:
    text, bounds = page("security.md"), request_bounds
    rows = [f"| {method} | {size_text(most)} |" for method, most in bounds.BYTES.items()]
    rows.append(f"| every other one | {size_text(bounds.OTHER_METHODS)} |")
    assert " ".join(rows) in text
    rows = [f"| {field} | {most:,} |" for field, most in bounds.ELEMENTS.items()]
    rows.append(f"| every other one | {bounds.OTHER_FIELDS:,} |")
    assert " ".join(rows) in text
    assert f"most {bounds.VALUES:,} values of all its fields" in text
    assert f"at most {bounds.GANG_NODES:,} nodes together" in text
    assert f"take {bounded_http.MOST} connections at a time" in text
    assert f"each for at most {bounded_http.LONGEST_S:g} s" in text
    names, values = bounds.COLUMNS_OF_ONE, bounds.COLUMN_VALUES_OF_ONE
    assert f"at most {names} names of them and {values:,} values" in text
    assert f"those of all users {bounds.COLUMNS} names" in text
    assert f"counts, {bounds.NODES_OF_A_JOB:,} in one job" in text
    assert f"{size_text(bounds.ENVIRONMENT_BYTES)} of environments" in text
    assert f"at most {bounds.WORD_BYTES} bytes, and a pattern {bounds.PATTERN_STARS} stars" in text
    assert f"after every {TURN_S * 1000:g} ms of CPU time" in text
    window = dict(server.BOUNDS)["grpc.http2.lookahead_bytes"]
    assert f"one window of flow control ({size_text(window)})" in text
    assert f"at most {bounds.CALLS_OF_ONE} calls at a time" in text
    assert f"received within {bounds.ARRIVAL_S:g} s" in text
    assert f"takes nothing for {bounds.TAKEN_S:g} s is cut off" in text
    assert f"At most {bounds.UNDECODED} messages of users" in text
    assert f"at a time, {bounds.UNDECODED_OF_ONE} of one user" in text
    assert f"a message of up to {size_text(bounds.SMALL)}" in text
    assert f"more than {size_text(bounds.SMALL)} in a thread" in text


def test_every_bounded_method_and_field_is_there() -> None:
    methods = {name.rpartition(".")[2] for name in RULES}
    assert set(request_bounds.BYTES) <= methods
    for field in request_bounds.ELEMENTS:
        message, _, name = field.partition(".")
        files = (control_pb2, node_pb2, run_pb2, attach_pb2)
        kind = next(getattr(file, message) for file in files if hasattr(file, message))
        assert kind.DESCRIPTOR.fields_by_name[name].is_repeated


def test_a_user_who_submits_too_often_is_refused_as_the_security_page_says() -> None:
    limits, rate = LimitsSection(), RateLimit()

    def submit(now: float) -> None:
        rate.take("alice", limits.submits_per_s, limits.submit_burst, now)

    for _ in range(limits.submit_burst):
        submit(0.0)
    with pytest.raises(TooMuch):
        submit(0.0)
    for _ in range(round(limits.submits_per_s)):
        submit(1.0)
    with pytest.raises(TooMuch):
        submit(1.0)
    rate.take("bob", limits.submits_per_s, limits.submit_burst, 1.0)


def test_the_numbers_on_the_database_page_are_those_of_the_code() -> None:
    text = page("database.md")
    assert f"this program needs {schema.VERSION}" in text
    assert f"up to {store.ATTEMPTS} times and {store.PATIENCE_S:.0f} s" in text
    assert f"without a heartbeat for {leadership.STALE_S:.0f} s" in text
    assert f"increases the next job id by {backup.JUMP}" in text


def test_the_numbers_on_the_protocol_page_are_those_of_the_code() -> None:
    text, timing = page("protocol.md"), Timing()
    assert f"window of {timing.window_s:.0f} s" in text
    assert f"own {timing.prepare_s:.0f} s timer" in text
    assert f"gives up after {timing.unkillable_s:.0f} s" in text
    words = {12: "twelve", 13: "thirteen", 14: "fourteen", 15: "fifteen", 16: "sixteen"}
    assert f"in {words[len(THEMES)]} themes" in text
