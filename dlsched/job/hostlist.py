"""Host lists as Slurm writes them: `n[1-3,7]`, `n[01-10]`, `a[1-2]b[3-4]`."""

from __future__ import annotations

import re
from collections.abc import Iterator

from dlsched.job.errors import JobError

PIECE = re.compile(r"\[([^][]*)\]")
ITEM = re.compile(r"(\d+)(?:-(\d+))?")
MOST = 100_000  # hosts in one list


def expand(text: str) -> list[str]:
    """Return the hosts of a list, in its order.

    Raises:
        JobError: when the list is malformed or too long.
    """
    hosts: list[str] = []
    for word in _words(text):
        for host in _expand_word(word, text):
            hosts.append(host)
            if len(hosts) > MOST:
                raise JobError(f"host list {text[:60]!r}: more than {MOST} hosts")
    return hosts


def _words(text: str) -> Iterator[str]:
    """Give the parts between the commas that are outside brackets."""
    depth, begin = 0, 0
    for place, sign in enumerate(text):
        depth += (sign == "[") - (sign == "]")
        if depth not in (0, 1):
            raise JobError(f"host list {text!r}: brackets do not match")
        if sign == "," and depth == 0:
            yield text[begin:place]
            begin = place + 1
    if depth:
        raise JobError(f"host list {text!r}: brackets do not match")
    if text:
        yield text[begin:]


def _expand_word(word: str, text: str) -> Iterator[str]:
    if not word:
        raise JobError(f"host list {text!r}: an empty name")
    match = PIECE.search(word)
    if match is None:
        yield word
        return
    before, after = word[: match.start()], word[match.end() :]
    for item in match[1].split(","):
        found = ITEM.fullmatch(item)
        if found is None:
            raise JobError(f"host list {text!r}: {item!r} is neither a number nor a range")
        first, last = found[1], found[2] or found[1]
        if int(last) < int(first) or int(last) - int(first) > MOST:
            raise JobError(f"host list {text!r}: {item!r} is no range")
        for number in range(int(first), int(last) + 1):
            for rest in _expand_word(after, text) if after else ("",):
                yield f"{before}{number:0{len(first)}d}{rest}"
