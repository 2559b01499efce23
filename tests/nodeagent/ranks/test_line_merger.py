"""Lines of several ranks in one file: whole, in order, with nothing lost, and found again."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dlsched.nodeagent.agent.log_reader import RankLines
from dlsched.nodeagent.ranks.line_merger import LONGEST, LineMerger, label_of

RANKS = 3
LABELS = [label_of(rank) for rank in range(RANKS)]
# few letters, so that labels, line ends and carriage returns meet
PIECES = st.lists(
    st.tuples(
        st.integers(0, RANKS - 1),
        st.lists(st.sampled_from([b"\n", b"\r", b"1: ", b"x", b"\xff", b"0"]), max_size=8).map(
            b"".join
        ),
        st.booleans(),  # whether it waited so long that its line is written
    ),
    max_size=30,
)


def merged(pieces: list[tuple[int, bytes, bool]], *, only_whole: bool = False) -> list[bytes]:
    merger = LineMerger(LABELS, only_whole=only_whole)
    written = []
    for rank, data, late in pieces:
        written.append(merger.take(rank, data))
        if late:
            written.append(merger.flush(rank))
    written += [merger.flush(rank) for rank in range(RANKS)]
    return [*written, merger.end()]


def of_rank(text: bytes, rank: int) -> bytes:
    """What a rank has written, by the definition: labels at starts of lines and after returns."""
    label = LABELS[rank]
    lines = [line for line in text.split(b"\n")[:-1] if line.startswith(label)]
    return b"".join(
        re.sub(rb"\r" + re.escape(label), b"\r", line[len(label) :]) + b"\n" for line in lines
    )


def said(pieces: list[tuple[int, bytes, bool]], rank: int) -> bytes:
    return b"".join(data for each, data, _ in pieces if each == rank)


@given(PIECES, st.booleans())
def test_every_line_is_of_one_rank_and_nothing_is_lost(
    pieces: list[tuple[int, bytes, bool]], only_whole: bool
) -> None:
    text = b"".join(merged(pieces, only_whole=only_whole))
    assert not text or text.endswith(b"\n")
    assert all(line.startswith(tuple(LABELS)) for line in text.split(b"\n")[:-1])
    for rank in range(RANKS):
        wanted = said(pieces, rank)
        assert of_rank(text, rank).replace(b"\n", b"") == wanted.replace(b"\n", b"")
        if not any(late for _, _, late in pieces):  # then lines are ended nowhere else
            end = b"" if not wanted or wanted.endswith(b"\n") else b"\n"
            assert of_rank(text, rank) == wanted + end


@given(PIECES, st.lists(st.integers(1, 9), min_size=1, max_size=9))
def test_any_chunks_give_the_same_lines(
    pieces: list[tuple[int, bytes, bool]], sizes: list[int]
) -> None:
    pieces = [(rank, data, False) for rank, data, _ in pieces]
    cut = []
    for rank, data, _ in pieces:
        place = 0
        while place < len(data):
            size = sizes[(place + len(cut)) % len(sizes)]
            cut.append((rank, data[place : place + size], False))
            place += size
    whole, chunked = b"".join(merged(pieces)), b"".join(merged(cut))
    for rank in range(RANKS):
        assert of_rank(chunked, rank) == of_rank(whole, rank)


@given(PIECES)
def test_only_whole_lines_are_written_where_others_append_too(
    pieces: list[tuple[int, bytes, bool]],
) -> None:
    assert all(not each or each.endswith(b"\n") for each in merged(pieces, only_whole=True))


@given(PIECES, st.lists(st.integers(1, 9), min_size=1, max_size=9), st.integers(0, RANKS - 1))
def test_the_lines_of_a_rank_are_found_however_the_file_is_read(
    pieces: list[tuple[int, bytes, bool]], sizes: list[int], rank: int
) -> None:
    text = b"".join(merged(pieces))
    lines, found, place, k = RankLines(LABELS[rank]), b"", 0, 0
    while place < len(text):
        found += lines.take(text[place : place + sizes[k % len(sizes)]])
        place, k = place + sizes[k % len(sizes)], k + 1
    assert found + lines.end() == of_rank(text, rank)


def test_a_progress_bar_goes_on_in_its_line_until_another_rank_writes() -> None:
    merger = LineMerger(LABELS)
    assert merger.take(0, b"\r 10%") == b""
    assert merger.flush(0) == b"0: \r0:  10%"
    assert merger.take(0, b"\r") + merger.take(0, b" 20%") == b"\r0:  20%"
    assert merger.take(1, b"saved\n") == b"\n1: saved\n"
    assert merger.take(0, b"\r 30%") + merger.flush(0) == b"0: \r0:  30%"
    assert merger.take(0, b"\r\nend\n") == b"\r\n0: end\n"


@pytest.mark.parametrize("size", [1, 4096])
def test_a_line_without_an_end_is_written_in_bounded_parts(size: int) -> None:
    merger, written = LineMerger(LABELS), []
    for _ in range(3 * LONGEST // size):
        written.append(merger.take(2, b"y" * size))
        written.append(merger.take(1, b""))
    text = b"".join(written)
    assert len(text) >= 2 * LONGEST
    assert max(map(len, written)) <= LONGEST + size + len(LABELS[2])
    assert b"".join([text, merger.flush(2)]) == b"2: " + b"y" * 3 * LONGEST
