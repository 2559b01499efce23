"""What `dlsched logs` writes to a terminal: nothing upon which the terminal would act."""

from __future__ import annotations

import os
import pty
import unicodedata
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dlsched.cli.jobs.logs import visible
from dlsched.rpc.v1 import control_pb2 as pb

ACTED_UPON = {"Cc", "Cf", "Zl", "Zp"}
HOSTILE = [
    (b"\x1b[2J\x1b]0;title\x07", r"\x1b[2J\x1b]0;title\x07"),
    (b"\x1bP+q544e\x1b\\", r"\x1bP+q544e\x1b" + "\\"),
    (b"\x9b31m", r"\x9b31m"),  # one byte that begins a sequence, outside UTF-8
    ("\x9b31m".encode(), r"\x9b31m"),
    ("\u202egnp.exe".encode(), r"\u202egnp.exe"),
    ("3 %\r4 %\tüber\n".encode(), "3 %\r4 %\tüber\n"),
]


@pytest.mark.parametrize(("written", "seen"), HOSTILE)
def test_control_sequences_are_text_however_the_output_is_cut(written: bytes, seen: str) -> None:
    for cut in range(len(written)):
        assert b"".join(visible([written[:cut], written[cut:]])).decode() == seen


@given(st.binary(), st.lists(st.integers(0, 50)))
def test_no_output_reaches_a_terminal_as_more_than_text(data: bytes, cuts: list[int]) -> None:
    ends = sorted({0, len(data), *(min(cut, len(data)) for cut in cuts)})
    found = b"".join(visible(data[a:b] for a, b in pairwise(ends))).decode()
    assert not {unicodedata.category(each) for each in found if each not in "\n\t\r"} & ACTED_UPON


def test_what_is_shown_does_not_wait_for_the_end() -> None:
    def endless() -> Iterator[bytes]:
        while True:
            yield b"step\n"

    assert next(visible(endless())) == b"step\n"


def test_a_terminal_gets_text_and_a_pipe_or_raw_the_bytes(
    dlsched: Any, control: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    control.answers["Logs"] = [pb.LogChunk(data=b"\x1b[31mred\n")]
    screen, stdout = pty.openpty()
    with open(stdout, "w", encoding="utf-8") as terminal, (tmp_path / "out").open("w") as file:
        monkeypatch.setattr("sys.stdout", terminal)
        assert dlsched("logs", 7).code == 0
        assert os.read(screen, 1000) == b"\\x1b[31mred\r\n"
        assert dlsched("logs", 7, "--raw").code == 0
        assert os.read(screen, 1000) == b"\x1b[31mred\r\n"
        monkeypatch.setattr("sys.stdout", file)
        assert dlsched("logs", 7).code == 0
    os.close(screen)
    assert (tmp_path / "out").read_bytes() == b"\x1b[31mred\n"
