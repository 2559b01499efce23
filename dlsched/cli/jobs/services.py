"""`dlsched submit --service`: from the server to the job that leads its replicas."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence

from dlsched.cli.daemon_options import DaemonOptions
from dlsched.core.errors import BadInput


def as_leader(
    terms: str | None,
    words: Sequence[str],
    layer: dict[str, str],
    daemon: DaemonOptions,
    *,
    is_command: bool,
) -> tuple[list[str], dict[str, str]]:
    """Return command and options of what is submitted; unchanged where it is no service.

    Args:
        terms: of the service, as the user gave them; None: it is none.
        words: the server.
        layer: the options of the command line by key.
        daemon: where the leader is to find the daemon, if the command line says it.
        is_command: `words` are a command, not a script.

    Raises:
        BadInput: the terms are wrong, or an option that a service cannot have.
    """
    if terms is None:
        return list(words), layer
    if not is_command:
        raise BadInput("--service: the server is a command after --")
    from dlsched.client.daemon_client import here  # noqa: PLC0415  # gRPC comes with it
    from dlsched.client.submission.options import from_variables, merged  # noqa: PLC0415
    from dlsched.client.submission.request import Command, compose  # noqa: PLC0415
    from dlsched.client.submission.services import (  # noqa: PLC0415
        leader_words,
        plan_service,
        read_terms,
    )

    caller, read = here(), read_terms(terms)
    name = os.path.basename(words[0]) or "service"
    planned = plan_service(merged(layer, from_variables(caller.variables)), name)
    compose(planned.replica, Command(argv=tuple(words)), caller)  # wrong options are told now
    at = daemon.daemon or ""
    return leader_words(sys.executable, read, planned.replica, words, at), planned.leader
