"""Constraints on nodes in words: `a100&nvlink|h100`.

Names are features of nodes and GPU types, in small letters; `&` binds closer than `|`, as in most
languages, and parentheses group. A constraint is kept as alternatives of names that a node must all
have.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from itertools import product

from dlsched.core.errors import BadInput, not_known, shorten

Alternatives = tuple[tuple[str, ...], ...]
CONTAINER = "container"  # a feature of each node that has a program for containers
MOST = 64  # alternatives
_WORD = re.compile(r"\s*([A-Za-z0-9][A-Za-z0-9_.+-]{0,63}|[&|()])", re.ASCII)


def parse_constraint(what: str, text: str) -> Alternatives:
    """The alternatives of a constraint; none of an empty text.

    Raises:
        BadInput: it is malformed, or uses brackets or counts.
    """
    words: list[str] = []
    at, text = 0, text.strip()
    while at < len(text):
        match = _WORD.match(text, at)
        if match is None:
            raise BadInput(
                f"{what}: {shorten(text)!r}: names joined by & and |, and parentheses; no brackets "
                "and counts"
            )
        words.append(match[1].lower())
        at = match.end()
    if not words:
        return ()
    found, rest = _either(what, text, words)
    if rest:
        raise BadInput(f"{what}: {shorten(text)!r}: {rest[0]!r} is one too many")
    if len(found) > MOST:
        raise BadInput(f"{what}: {shorten(text)!r}: more than {MOST} alternatives")
    return tuple(dict.fromkeys(found))


def _either(what: str, text: str, words: list[str]) -> tuple[list[tuple[str, ...]], list[str]]:
    found, words = _both(what, text, words)
    while words and words[0] == "|":
        more, words = _both(what, text, words[1:])
        found += more
    return found, words


def _both(what: str, text: str, words: list[str]) -> tuple[list[tuple[str, ...]], list[str]]:
    found, words = _one(what, text, words)
    while words and words[0] == "&":
        more, words = _one(what, text, words[1:])
        if len(found) * len(more) > MOST:
            raise BadInput(f"{what}: {shorten(text)!r}: more than {MOST} alternatives")
        found = [tuple(dict.fromkeys((*a, *b))) for a, b in product(found, more)]
    return found, words


def _one(what: str, text: str, words: list[str]) -> tuple[list[tuple[str, ...]], list[str]]:
    if not words or words[0] in ("&", "|", ")"):
        raise BadInput(f"{what}: {shorten(text)!r}: a name is missing")
    if words[0] != "(":
        return [(words[0],)], words[1:]
    found, rest = _either(what, text, words[1:])
    if not rest or rest[0] != ")":
        raise BadInput(f"{what}: {shorten(text)!r}: a ) is missing")
    return found, rest[1:]


def constraint_text(alternatives: Alternatives) -> str:
    """The constraint in its one spelling."""
    return "|".join("&".join(sorted(names)) for names in alternatives)


def with_feature(text: str, name: str) -> str:
    """A constraint that also asks for a feature."""
    wanted = alternatives_of(text) or ((),)
    return constraint_text(tuple(tuple(dict.fromkeys((*names, name))) for names in wanted))


def alternatives_of(text: str) -> Alternatives:
    """The alternatives of a text that `constraint_text` wrote."""
    return tuple(tuple(part.split("&")) for part in text.split("|")) if text else ()


def holds(alternatives: Alternatives, features: Collection[str]) -> bool:
    """Does a node with these features, its GPU type among them, meet a constraint?"""
    if not alternatives:
        return True
    return any(all(name in features for name in names) for names in alternatives)


def features_of(features: Collection[str], gpu_type: str) -> frozenset[str]:
    """What constraints may name of a node."""
    return frozenset(name.lower() for name in (*features, gpu_type) if name)


def refuse_unknown(what: str, alternatives: Alternatives, known: Collection[str]) -> None:
    """Refuse names that no node has.

    Raises:
        BadInput: with the known ones.
    """
    for names in alternatives:
        for name in names:
            if name not in known:
                raise not_known(f"{what}: feature", name, sorted(known))
