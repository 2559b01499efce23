"""What a line of `sacctmgr` or `sreport` asks: `user where name=ann set DefaultAccount=robots`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from dlsched.core.errors import BadInput, not_known, shorten


@dataclass(slots=True)
class Request:
    """The conditions, the changes and the bare words of a line.

    Attributes:
        where: conditions by their names in small letters.
        changes: what is set, as (name as typed, `=`, `+=` or `-=`, value).
        flags: words without a value that are known.
    """

    where: dict[str, str] = field(default_factory=dict)
    changes: list[tuple[str, str, str]] = field(default_factory=list)
    flags: set[str] = field(default_factory=set)

    def names(self, *keys: str) -> list[str]:
        """The names in a condition, which has one of some names; empty: it is not there."""
        text = next((self.where[key] for key in keys if key in self.where), "")
        return [name.strip() for name in text.split(",") if name.strip()]


def read_request(
    words: Sequence[str],
    conditions: Mapping[str, str],
    flags: Iterable[str] = (),
    *,
    sets: bool = False,
    bare: str = "",
) -> Request:
    """Read the words of a line.

    Args:
        words: after the name of what is listed or changed.
        conditions: names of conditions in small letters, each with the one that it stands for.
        flags: words without a value.
        sets: everything but conditions is a change, also before `set` and without it.
        bare: the condition that words without `=` give.

    Raises:
        BadInput: a word that is not known, or without its value.
    """
    found, known_flags = Request(), set(flags)
    setting = False
    for word in words:
        name, sign, value = word.partition("=")
        low, operator = name.lower(), "="
        if not sign and low in ("where", "set"):
            setting = low == "set"
            continue
        if not sign and low in known_flags:
            found.flags.add(low)
            continue
        if not sign:
            if not bare or setting:
                raise not_known("", word, [*conditions, *known_flags])
            low, value = bare, word
        elif low[-1:] in ("+", "-"):
            operator, name, low = f"{low[-1]}=", name[:-1], low[:-1]
        value = value.strip("'\"")
        if setting or (sets and low not in conditions):
            found.changes.append((name, operator, value))
        elif low in conditions and operator == "=":
            key = conditions[low]
            before = found.where.get(key)
            found.where[key] = value if before is None else f"{before},{value}"
        else:
            raise not_known("", name, [*conditions, *known_flags])
    return found


def kind_of(word: str, known: Mapping[str, str], what: str) -> str:
    """Return what a word names, which may be cut short or in the plural: `assoc`, `users`.

    Raises:
        BadInput: nothing that is known.
    """
    low = word.lower()
    for name, kind in known.items():
        if low in (name, f"{name}s") or (len(low) > 2 and f"{name}s".startswith(low)):
            return kind
    raise BadInput(f"{what} {shorten(word)!r}: not supported; known: {', '.join(known)}")
