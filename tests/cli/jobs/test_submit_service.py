"""The terms of a service as text, and which options go to which of its jobs."""

from __future__ import annotations

from typing import Any

import pytest

from dlsched.client.submission.services import Terms, plan_service, read_terms
from dlsched.core.errors import BadInput


def test_terms_are_read_and_written() -> None:
    terms = read_terms("within=0.2,share=0.99,most=8,window=5")
    assert terms == Terms(within=0.2, share=0.99, most=8, window=5.0)
    assert read_terms(str(terms)) == terms


def test_the_leader_has_no_gpus_and_replicas_have_all_that_the_server_needs() -> None:
    options = {"gpus": "a100:1", "mem": "8G", "partition": "p", "dependency": "afterok:3"}
    planned = plan_service(options, "server")
    assert planned.leader == {
        "gpus": "0",
        "name": "server",
        "partition": "p",
        "dependency": "afterok:3",
        "retries": "10",
    }
    assert planned.replica == {"gpus": "a100:1", "mem": "8G", "partition": "p", "name": "server"}


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--service", "within=1,share=0.9", "--", "a"), "--service: most is missing"),
        (("--service", "within=1,share=2,most=1", "--", "a"), "share is '2'; a number from 0.001"),
        (("--service", "within=1,share=0.9,most=x", "--", "a"), "most is 'x'; a whole number"),
        (("--service", "with=1", "--", "a"), "did you mean 'within'"),
        (("--service", "within", "--", "a"), "KEY=VALUE once each"),
        (
            ("--service", "within=1,share=0.9,most=1,least=2", "--", "a"),
            "least is 2, above most, 1",
        ),
        (
            ("--service", "within=1,share=0.9,most=1", "--array", "1-3", "--", "a"),
            "--array: not with --service",
        ),
        (
            ("--service", "within=1,share=0.9,most=1", "--gpus", "x", "--", "a"),
            "--gpus",
        ),
        (("--service", "within=1,share=0.9,most=1", "script.sh"), "a command after --"),
    ],
)
def test_wrong_terms_are_told_before_anything_is_submitted(
    dlsched: Any, words: tuple[str, ...], message: str
) -> None:
    refused = dlsched("submit", *words)
    assert refused.code == 2
    assert message in refused.err


def test_an_option_that_a_service_cannot_have_is_named() -> None:
    with pytest.raises(BadInput, match="--deadline: not with --service"):
        plan_service({"deadline": "now+1h"}, "server")
