"""What a site says of its tenants to policies: accounts, priority classes, and how usage fades.

The same values in a cluster file, in the daemon's configuration and in a snapshot.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Literal

from dlsched.core.errors import BadInput, not_known
from dlsched.tenants.field import Form, Row, rows_of
from dlsched.tenants.fields import Account, PriorityClass

__all__ = [
    "LEVELS",
    "WEEK_S",
    "Account",
    "Level",
    "PriorityClass",
    "SiteRules",
    "for_rounds",
    "live_only",
    "refuse_mutual",
    "rules_from_tables",
]

WEEK_S = 7 * 86400.0
Level = Literal["account", "vc", "user"]
LEVELS: tuple[Level, ...] = ("account", "vc", "user")


def for_rounds(account: Account) -> Account:
    """An account without what only a live cluster applies."""
    rows = rows_of(Account).items()
    return replace(account, **{name: row.default for name, row in rows if row.live_only})


def live_only(found: PriorityClass) -> tuple[str, ...]:
    """The rules of a class that only a live cluster applies, by name."""
    rows = rows_of(PriorityClass).items()
    return tuple(name for name, row in rows if row.live_only and getattr(found, name))


@dataclass(frozen=True, slots=True, kw_only=True)
class SiteRules:
    """The rules of a site.

    Attributes:
        accounts: by name.
        classes: by name.
        half_life_s: seconds after which usage counts half.
        level: users share within their account, their virtual cluster, or all together.
    """

    accounts: tuple[Account, ...] = ()
    classes: tuple[PriorityClass, ...] = ()
    half_life_s: float = WEEK_S
    level: Level = "account"

    def check(self) -> None:
        """Refuse what names what is not there, or goes in a circle.

        Raises:
            BadInput: one line that says which.
        """
        if not self.half_life_s > 0:
            raise BadInput(f"fair share: a half-life of {self.half_life_s:g} s is not above 0")
        accounts = {each.name: each for each in self.accounts}
        classes = {each.name: each for each in self.classes}
        for kind, known, listed in (
            ("account", accounts, self.accounts),
            ("class", classes, self.classes),
        ):
            if len(known) < len(listed):
                names = [each.name for each in listed]
                twice = next(name for name in names if names.count(name) > 1)
                raise BadInput(f"two {kind} entries are named {twice}")
        for account in self.accounts:
            if account.parent and account.parent not in accounts:
                raise not_known(f"account {account.name}: parent", account.parent, accounts)
            if not account.weight >= 0:
                raise BadInput(f"account {account.name}: a weight is 0 or more")
            above, seen = account.parent, {account.name}
            while above:
                if above in seen:
                    raise BadInput(f"account {account.name}: would be below itself")
                seen.add(above)
                above = accounts[above].parent
        for each in self.classes:
            for name in each.preempts:
                if name not in classes:
                    raise not_known(f"class {each.name}: preempts", name, classes)
        refuse_mutual({each.name: each.preempts for each in self.classes})
        defaults = [each.name for each in self.classes if each.is_default]
        if len(defaults) > 1:
            raise BadInput(f"class {defaults[1]}: class {defaults[0]} is the default already")


def refuse_mutual(preempts: Mapping[str, tuple[str, ...]]) -> None:
    """Refuse classes that would preempt each other in turn, or themselves.

    Raises:
        BadInput: names such a class.
    """
    for name in preempts:
        seen: set[str] = set()
        open_ = list(preempts[name])
        while open_:
            other = open_.pop()
            if other == name:
                raise BadInput(f"class {name}: it and a class that it preempts preempt each other")
            if other not in seen:
                seen.add(other)
                open_ += preempts.get(other, ())


# a replay takes from the trace which account has which virtual cluster and users
_ACCOUNTS = {key: row for key, row in rows_of(Account).items() if not row.live_only}
_KEYS: dict[str, set[str]] = {
    "accounts": {"name", *_ACCOUNTS},
    "classes": {"name", *(row.key for row in rows_of(PriorityClass).values())},
    "fair_share": {"half_life_s", "level"},
}


def rules_from_tables(document: Mapping[str, Any], *, where: str) -> SiteRules:
    """The rules in the parsed TOML of the file `where`: accounts, classes and fair_share.

    Raises:
        BadInput: an unknown key, or a value of the wrong kind.
    """
    shared = document.get("fair_share", {})
    if not isinstance(shared, Mapping):
        raise BadInput(f"{where}: fair_share must be one table, [fair_share]")
    _known(shared, "fair_share", f"{where}: [fair_share]")
    level = shared.get("level", "account")
    if level not in LEVELS:
        raise not_known(f"{where}: [fair_share]: level", str(level), LEVELS)
    try:
        rules = SiteRules(
            accounts=tuple(
                Account(name=_text(entry, "name", at), **_values(_ACCOUNTS, entry, at))
                for entry, at in _entries(document, "accounts", where)
            ),
            classes=tuple(
                PriorityClass(
                    name=_text(entry, "name", at),
                    **_values(rows_of(PriorityClass), entry, at),
                )
                for entry, at in _entries(document, "classes", where)
            ),
            half_life_s=_number(shared, "half_life_s", f"{where}: [fair_share]", WEEK_S),
            level=level,
        )
        rules.check()
    except BadInput as error:
        text = str(error)
        raise BadInput(text if text.startswith(where) else f"{where}: {text}") from None
    return rules


def _entries(
    document: Mapping[str, Any], name: str, where: str
) -> Iterator[tuple[Mapping[str, Any], str]]:
    entries = document.get(name, [])
    if not isinstance(entries, list) or not all(isinstance(each, Mapping) for each in entries):
        raise BadInput(f"{where}: {name} must be tables that begin with [[{name}]]")
    for number, entry in enumerate(entries, 1):
        at = f"{where}: [[{name}]] {number}"
        _known(entry, name, at)
        yield entry, at


def _known(entry: Mapping[str, Any], name: str, at: str) -> None:
    for key in entry:
        if key not in _KEYS[name]:
            raise not_known(f"{at}: key", key, sorted(_KEYS[name]))


def _values(rows: Mapping[str, Row], entry: Mapping[str, Any], at: str) -> dict[str, Any]:
    """The fields that an entry says, by name."""
    said = {name: row for name, row in rows.items() if row.key in entry}
    return {name: _READ[row.form](entry, row.key, at) for name, row in said.items()}


def _text(entry: Mapping[str, Any], key: str, at: str, default: str | None = None) -> str:
    value = entry.get(key, default)
    if not isinstance(value, str) or (not value and default is None):
        raise BadInput(f"{at}: {key} must be a name")
    return value


def _number(entry: Mapping[str, Any], key: str, at: str, default: float = 0.0) -> float:
    value = entry.get(key, default)
    if isinstance(value, bool) or not isinstance(value, int | float) or value != value:  # noqa: PLR0124 - NaN
        raise BadInput(f"{at}: {key} must be a number, not {value!r}")
    return float(value)


def _count(entry: Mapping[str, Any], key: str, at: str) -> int:
    value = entry[key]
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise BadInput(f"{at}: {key} must be a whole number from 0 on, not {value!r}")
    return value


def _flag(entry: Mapping[str, Any], key: str, at: str) -> bool:
    value = entry[key]
    if not isinstance(value, bool):
        raise BadInput(f"{at}: {key} must be true or false, not {value!r}")
    return value


def _names(entry: Mapping[str, Any], key: str, at: str) -> tuple[str, ...]:
    value = entry[key]
    if not isinstance(value, list) or not all(isinstance(each, str) for each in value):
        raise BadInput(f"{at}: {key} must be a list of names")
    return tuple(value)


_READ: dict[Form, Callable[..., Any]] = {
    "text": partial(_text, default=""),
    "names": _names,
    "flag": _flag,
    "whole": _count,
    "number": _number,
    "seconds": _number,
}
