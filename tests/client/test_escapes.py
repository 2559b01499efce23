"""What a user types for the client itself while a job has the terminal."""

from __future__ import annotations

import pytest

from dlsched.client.attaching.local_terminal import Escapes


@pytest.mark.parametrize(
    ("typed", "passed", "detaches"),
    [
        ([b"~."], b"", True),
        ([b"~", b"."], b"", True),
        ([b"ls\r~."], b"ls\r", True),
        ([b"\x03~."], b"\x03", True),
        ([b"ls ~.ssh\r"], b"ls ~.ssh\r", False),
        ([b"~/bin/x\r"], b"~/bin/x\r", False),
        ([b"~~."], b"~.", False),
        ([b"~~\r~", b"a"], b"~\r~a", False),
        ([b"a~", b"."], b"a~.", False),
    ],
)
def test_a_tilde_at_the_beginning_of_a_line_is_for_the_client(
    typed: list[bytes], passed: bytes, detaches: bool
) -> None:
    escapes = Escapes()
    assert b"".join(map(escapes.take, typed)) == passed
    assert escapes.detach == detaches


def test_help_is_asked_for_and_the_line_still_begins() -> None:
    escapes = Escapes()
    assert escapes.take(b"~?") == b""
    assert escapes.help
    assert escapes.take(b"~.") == b""
    assert (escapes.help, escapes.detach) == (False, True)
