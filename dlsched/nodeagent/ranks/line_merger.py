"""Whole lines of several ranks in one file: each line of one rank only, after the rank's label.

What a rank writes is held back until its line is complete, at most `FLUSH_S` seconds and `LONGEST`
bytes. A line that is written before it is complete goes on in the file as long as no other rank
writes; then it is ended there, and the rest becomes a line of its own.

A progress bar writes its line anew after each carriage return: the label is repeated there, so that
a terminal shows it. Nothing else is added and nothing is left out.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

FLUSH_S = 1.0
LONGEST = 64 * 1024
_LINE_ANEW = re.compile(rb"\r(?=[^\r\n])")


def label_of(rank: int) -> bytes:
    """Return what the lines of a rank begin with, as `srun --label` has it."""
    return b"%d: " % rank


class LineMerger:
    """The lines of one file. Sources are numbered as their labels are."""

    def __init__(self, labels: Sequence[bytes], *, only_whole: bool = False) -> None:
        """Begin at the start of a line.

        `only_whole` ends a line whenever it is written: others append to the file too.
        """
        self._labels = list(labels)
        self._only_whole = only_whole
        self._waiting = [bytearray() for _ in labels]  # an unfinished line that is not written yet
        self._open: int | None = None  # source of the unfinished last line of the file
        self._rewinds = False  # that line ends with a carriage return

    def take(self, source: int, data: bytes) -> bytes:
        """Take bytes of a source; return what is to be written now."""
        if source == self._open:
            return self._written(source, data)
        waiting = self._waiting[source]
        end = data.rfind(b"\n") + 1
        whole = bytes(waiting) + data[:end] if end else b""
        if end:
            waiting.clear()
        waiting += data[end:]
        found = self._written(source, whole) if whole else b""
        return found + self.flush(source) if len(waiting) >= LONGEST else found

    def flush(self, source: int) -> bytes:
        """Return what is to be written of an unfinished line, so that it waits no longer."""
        waiting = self._waiting[source]
        if not waiting:
            return b""
        text = self._written(source, bytes(waiting))
        waiting.clear()
        return text + (self.end() if self._only_whole else b"")

    def is_waiting(self, source: int) -> bool:
        """Whether an unfinished line of a source is held back."""
        return bool(self._waiting[source])

    def end(self) -> bytes:
        """Return what ends the last line of the file."""
        if self._open is None:
            return b""
        self._open = None
        return b"\n"

    def _written(self, source: int, data: bytes) -> bytes:
        """Bytes of one source with its labels, after the end of another's line."""
        label, goes_on = self._labels[source], source == self._open
        before = b"" if goes_on else self.end() + label
        if goes_on and self._rewinds and data[:1] not in (b"\r", b"\n"):
            before = label
        is_line = data.endswith(b"\n")
        text = (data[:-1] if is_line else data).replace(b"\n", b"\n" + label)
        if b"\r" in text:
            text = _LINE_ANEW.sub(b"\r" + label, text)
        self._open, self._rewinds = None if is_line else source, data.endswith(b"\r")
        return before + text + (b"\n" if is_line else b"")
