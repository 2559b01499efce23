"""Requests to a job that switches, in pieces as they come."""

from __future__ import annotations

import json

import pytest

from dlsched.switch.client_protocols import MOST_BYTES, Http, Lines

POST = b'POST /bert HTTP/1.1\r\nHost: h\r\nContent-Length: 13\r\n\r\n{"input":[1]}'


def test_lines_are_taken_when_they_are_complete() -> None:
    protocol = Lines()
    assert protocol.fed(b'{"a"') == []
    assert protocol.fed(b': 1}\n{"b": 2}\n{') == [("", b'{"a": 1}'), ("", b'{"b": 2}')]
    assert protocol.answer({"output": [1]}) == b'{"output": [1]}\n'


@pytest.mark.parametrize("cut", [1, 20, 50, len(POST) - 1])
def test_a_request_of_http_names_its_service_in_its_path(cut: int) -> None:
    protocol = Http()
    assert protocol.fed(POST[:cut]) == []
    assert protocol.fed(POST[cut:]) == [("bert", b'{"input":[1]}')]
    head, _, body = protocol.answer({"output": [1]}).partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 200 OK")
    assert json.loads(body) == {"output": [1]}
    assert protocol.answer({"error": "no"}).startswith(b"HTTP/1.1 400")


@pytest.mark.parametrize(
    "sent",
    [
        b"GET / HTTP/1.1\r\n\r\n",
        b"POST /a HTTP/1.1\r\nContent-Length: x\r\n\r\n",
        b"x" * (MOST_BYTES + 1),
    ],
)
def test_what_is_no_request_is_an_error(sent: bytes) -> None:
    with pytest.raises(ValueError, match=r"."):
        Http().fed(sent)
