"""What a torture test submits, without a cluster."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from dlsched.rpc.v1 import control_pb2
from dlsched.torture.users import LocalSubmissions, User, Wanted


def test_a_submission_fits_the_message_that_is_sent(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Any] = []

    def ask(_self: LocalSubmissions, request: Any, _trust: Any) -> int:
        asked.append(control_pb2.SubmitRequest.FromString(request.SerializeToString()))
        return 7

    monkeypatch.setattr(LocalSubmissions, "_ask", ask)
    wanted = Wanted(script="#!/bin/sh\ntrue\n", output="/o/%j", folder="/f", gpus=3)
    users = LocalSubmissions(1, threading.Event())
    assert users.submit(User(name="ann", uid=1001), wanted) == 7
    [job] = asked[0].jobs
    assert (job.gpus, job.output, job.working_directory) == (3, "/o/%j", "/f")
    assert job.script == b"#!/bin/sh\ntrue\n"
