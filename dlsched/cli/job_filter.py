"""The filters that several verbs share, from their words to the request."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from dlsched.cli.connect import words_of
from dlsched.cli.job_columns import STATE_CODES
from dlsched.client.ids import JobName, job_names
from dlsched.client.submission.hosts import expand
from dlsched.client.submission.texts import check_text
from dlsched.core.errors import BadInput

if TYPE_CHECKING:
    from dlsched.rpc.v1.control_pb2 import Filter

__all__ = ["ids_of", "job_filter", "states_of"]

_BY_CODE = {code: state for state, code in STATE_CODES.items()}


def states_of(words: Sequence[str] | None) -> list[str]:
    """States by word or code, in any case; `all` is no filter.

    Raises:
        BadInput: a state that is not known.
    """
    found = []
    for word in words_of("--state", words):
        state = _BY_CODE.get(word.upper(), word.upper())
        if state == "ALL":
            return []
        if state not in STATE_CODES:
            known = ", ".join(f"{name} ({code})" for name, code in STATE_CODES.items())
            raise BadInput(f"--state: {word!r} is not known; known: {known}")
        found.append(state)
    return found


def ids_of(words: Sequence[str] | None) -> list[JobName]:
    """Job ids, of which there must be one.

    Raises:
        BadInput: none, or a word that is no id.
    """
    found = job_names(words or ())
    if not found:
        raise BadInput("no job id given")
    return found


def job_filter(
    jobs: Sequence[str] | None = None,
    *,
    users: Sequence[str] | None = None,
    partitions: Sequence[str] | None = None,
    vcs: Sequence[str] | None = None,
    states: Sequence[str] | None = None,
    nodes: Sequence[str] | None = None,
    called: Sequence[str] | None = None,
    all_users: bool = False,
) -> Filter:
    """The request's filter.

    Raises:
        BadInput: a word that cannot be what it is given for.
    """
    names = job_names(jobs or ())
    hosts = [name for word in nodes or () for name in expand("--nodelist", word)]
    wanted_states = states_of(states)
    for what, words in (("--user", users), ("--partition", partitions), ("--name", called)):
        for word in words or ():
            check_text(what, word)
    from dlsched.client.cluster import filter_of  # noqa: PLC0415  # gRPC comes with it

    return filter_of(
        names,
        users=words_of("--user", users),
        partitions=words_of("--partition", partitions),
        vcs=words_of("--account", vcs),
        states=wanted_states,
        nodes=hosts,
        called=words_of("--name", called),
        all_users=all_users,
    )
