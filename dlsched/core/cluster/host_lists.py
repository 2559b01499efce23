"""Host lists that a user wrote, read with errors that say which option is wrong."""

from __future__ import annotations

from collections.abc import Iterable

from dlsched.core.errors import BadInput
from dlsched.host_lists import names_of


def expand(what: str, text: str) -> list[str]:
    """Return the names, each once, in the order written; `what` names the option in errors.

    Raises:
        BadInput: brackets that do not match, bad ranges, bad names, or too many of them.
    """
    try:
        return names_of(text)
    except ValueError as error:
        raise BadInput(f"{what}: {error}") from None


def node_names(what: str, words: Iterable[str]) -> list[str]:
    """Return the nodes of a live cluster that host lists name, each once, in the order written.

    Their names have small letters, because DNS does not tell capital ones from them.

    Raises:
        BadInput: as `expand`.
    """
    return list(dict.fromkeys(name for word in words for name in expand(what, word.lower())))
