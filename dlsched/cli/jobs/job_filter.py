"""The filter options that several commands share, and the request's filter made of them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

from dlsched.cli.daemon_options import words_of
from dlsched.cli.option_groups import argument, typed
from dlsched.core.errors import BadInput, not_known
from dlsched.record import Record

if TYPE_CHECKING:
    from dlsched.client.job_ids import JobName
    from dlsched.rpc.v1.control_pb2 import Filter

IdsArgument = Annotated[list[str], argument("ID…", "7, 7_3 or 7_[2-5].", completed_by="live_jobs")]
MaybeIds = Annotated[
    list[str] | None, argument("[ID…]", "7, 7_3 or 7_[2-5].", completed_by="live_jobs")
]
IdArgument = Annotated[str, argument("ID", "7 or 7_3.", completed_by="live_jobs")]


class FilterOptions(Record):
    """Jobs by their owners, partitions, nodes and names; None: all."""

    users: list[str] | None = typed("--user -u NAME", "Of these users.")
    partitions: list[str] | None = typed("--partition -p NAME", "In these partitions.")
    vcs: list[str] | None = typed("--account --vc -A NAME", "Of these accounts or clusters.")
    nodes: list[str] | None = typed("--nodelist -w HOSTS", "On these nodes.")
    names: list[str] | None = typed("--name -n NAME", "Jobs of this name.")

    @property
    def is_empty(self) -> bool:
        """Is no filter given?"""
        return not any((self.users, self.partitions, self.vcs, self.nodes, self.names))


def states_of(words: Sequence[str] | None, option: str = "--state") -> list[str]:
    """Return states by word or code, in any case; `all` is no filter.

    Args:
        words: the states.
        option: which names them.

    Raises:
        BadInput: a state that is not known.
    """
    if not words:
        return []
    from dlsched.cli.jobs.job_columns import STATE_CODES  # noqa: PLC0415  # few calls name states

    by_code = {code: state for state, code in STATE_CODES.items()}
    found = []
    for word in words_of(option, words):
        state = by_code.get(word.upper(), word.upper())
        if state == "ALL":
            return []
        if state not in STATE_CODES:
            known = [f"{name} ({code})" for name, code in STATE_CODES.items()]
            raise not_known(f"{option}:", word.upper(), known)
        found.append(state)
    return found


def ids_of(words: Sequence[str] | None) -> list[JobName]:
    """Return job ids, at least one.

    Raises:
        BadInput: there is none, or a word is no job id.
    """
    from dlsched.client.job_ids import job_names  # noqa: PLC0415

    found = job_names(words or ())
    if not found:
        raise BadInput("no job id given")
    return found


def job_filter(
    jobs: Sequence[str] | None = None,
    options: FilterOptions | None = None,
    *,
    states: Sequence[str] | None = None,
    all_users: bool = False,
) -> Filter:
    """Return the filter of a request.

    Args:
        jobs: job ids as typed.
        options: the other filters; None: none.
        states: words or codes of states.
        all_users: jobs of all users, if no user is named.

    Raises:
        BadInput: an id, a host, a state or a name is malformed.
    """
    from dlsched.client.job_ids import job_names  # noqa: PLC0415
    from dlsched.client.submission.texts import check_text  # noqa: PLC0415
    from dlsched.core.cluster.host_lists import node_names  # noqa: PLC0415

    given = options or FilterOptions()
    ids = job_names(jobs or ())
    hosts = node_names("--nodelist", given.nodes or ())
    wanted_states = states_of(states)
    for what, words in (
        ("--user", given.users),
        ("--partition", given.partitions),
        ("--name", given.names),
    ):
        for word in words or ():
            check_text(what, word)
    from dlsched.client.daemon_client import filter_of  # noqa: PLC0415  # gRPC comes with it

    return filter_of(
        ids,
        users=words_of("--user", given.users),
        partitions=words_of("--partition", given.partitions),
        vcs=words_of("--account", given.vcs),
        states=wanted_states,
        nodes=hosts,
        called=words_of("--name", given.names),
        all_users=all_users,
    )
