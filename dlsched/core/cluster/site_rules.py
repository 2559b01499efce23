"""What a site says of its tenants to policies: accounts, priority classes, and how usage fades.

The same values in a cluster file, in the daemon's configuration and in a snapshot.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from dlsched.core.errors import BadInput, not_known

WEEK_S = 7 * 86400.0
Level = Literal["account", "vc", "user"]
LEVELS: tuple[Level, ...] = ("account", "vc", "user")


@dataclass(frozen=True, slots=True, kw_only=True)
class Account:
    """A group of users; accounts form trees, in which siblings share by weight."""

    name: str
    parent: str = ""
    weight: float = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class PriorityClass:
    """What a priority class counts in an order, the classes that it may preempt, and its limits."""

    name: str
    priority: float = 0.0  # larger is earlier
    preempts: tuple[str, ...] = ()
    gpus: int | None = None  # of all its jobs at once
    gpus_per_user: int | None = None
    is_default: bool = False  # of jobs that name none
    live_only: tuple[str, ...] = ()  # names of its rules that only a live cluster applies


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


# what a class says of submissions and of time, which a replay takes as the trace has it
LIVE_ONLY = ("grace_s", "max_time_s", "jobs", "jobs_per_user", "users", "accounts")
_KEYS = {
    "accounts": {"name", "parent", "weight"},
    "classes": {
        *("name", "priority", "preempts", "gpus", "gpus_per_user", "default", *LIVE_ONLY),
    },
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
                Account(
                    name=_text(entry, "name", at),
                    parent=_text(entry, "parent", at, ""),
                    weight=_number(entry, "weight", at, 1.0),
                )
                for entry, at in _entries(document, "accounts", where)
            ),
            classes=tuple(
                PriorityClass(
                    name=_text(entry, "name", at),
                    priority=_number(entry, "priority", at, 0.0),
                    preempts=_names(entry, "preempts", at),
                    gpus=_count(entry, "gpus", at),
                    gpus_per_user=_count(entry, "gpus_per_user", at),
                    is_default=_flag(entry, "default", at),
                    live_only=tuple(key for key in LIVE_ONLY if entry.get(key)),
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


def _text(entry: Mapping[str, Any], key: str, at: str, default: str | None = None) -> str:
    value = entry.get(key, default)
    if not isinstance(value, str) or (not value and default is None):
        raise BadInput(f"{at}: {key} must be a name")
    return value


def _number(entry: Mapping[str, Any], key: str, at: str, default: float) -> float:
    value = entry.get(key, default)
    if isinstance(value, bool) or not isinstance(value, int | float) or value != value:  # noqa: PLR0124 - NaN
        raise BadInput(f"{at}: {key} must be a number, not {value!r}")
    return float(value)


def _count(entry: Mapping[str, Any], key: str, at: str) -> int | None:
    value = entry.get(key)
    if value is not None and (isinstance(value, bool) or not isinstance(value, int) or value < 0):
        raise BadInput(f"{at}: {key} must be a whole number from 0 on, not {value!r}")
    return value


def _flag(entry: Mapping[str, Any], key: str, at: str) -> bool:
    value = entry.get(key, False)
    if not isinstance(value, bool):
        raise BadInput(f"{at}: {key} must be true or false, not {value!r}")
    return value


def _names(entry: Mapping[str, Any], key: str, at: str) -> tuple[str, ...]:
    value = entry.get(key, [])
    if not isinstance(value, list) or not all(isinstance(each, str) for each in value):
        raise BadInput(f"{at}: {key} must be a list of names")
    return tuple(value)
