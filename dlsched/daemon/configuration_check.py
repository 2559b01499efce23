"""What `dlsched daemon --check` looks for beside the file itself: the machine, and what is silent.

A file may be well formed and name a folder, a user or a node that is not there. A start refuses
what cannot work and tells of the rest; nodes that have never been heard are said here alone.
"""

from __future__ import annotations

import os
import pwd
from collections.abc import Iterator
from pathlib import Path

from sqlalchemy import select

from dlsched.core.cluster.host_lists import expand
from dlsched.core.errors import BadInput, DlschedError
from dlsched.daemon.loops.user_groups import unknown_names
from dlsched.daemon.round.site_function import check_site_function
from dlsched.daemon.settings import Settings
from dlsched.daemon.trust import DaemonTrust
from dlsched.db import schema
from dlsched.db.engine import database_path, open_engine, parse_url, reading

_MADE_AT_START = Path("/var/lib/dlsched")  # by the service manager


def faults(settings: Settings, *, insecure: bool = False) -> Iterator[str]:
    """One line for each thing that is not there: its key, its value, and what would be right.

    Args:
        settings: of the file.
        insecure: the daemon is to run without certificates.
    """
    yield from _of_database(settings.daemon.database)
    insecure = insecure or settings.trust.mode == "insecure-loopback"
    yield from DaemonTrust(settings.trust, insecure=insecure).faults()
    yield from unknown_names(settings)
    if settings.submit.filter:
        try:
            check_site_function(settings.submit.filter)
        except BadInput as error:
            yield f"submit.filter: {error}"


def notes(settings: Settings) -> Iterator[str]:
    """One line for each node of a partition or virtual cluster that has never registered.

    A file without `[[nodes]]` says of no node whether it is one; the database does.
    """
    if settings.configured_nodes():
        return
    known = _registered(settings.daemon.database)
    for kind, tenants in (("partitions", settings.partitions), ("vcs", settings.vcs)):
        for each in tenants:
            for name in expand("nodes", each.tenant.nodes) if each.tenant.nodes else ():
                if known and name not in known:
                    yield f"{kind}: {each.name}: nodes: {name} has never registered"


def _registered(text: str) -> frozenset[str]:
    """The nodes that have registered; none where the database cannot be read."""
    url = parse_url(text)
    if url.get_backend_name() == "sqlite" and not os.path.exists(database_path(url)):
        return frozenset()
    try:
        engine = open_engine(text, readers=1)
        try:
            with reading(engine) as connection:
                return frozenset(connection.execute(select(schema.nodes.c.node)).scalars())
        finally:
            engine.dispose()
    except DlschedError:
        return frozenset()  # a start says what is wrong with it


def _of_database(text: str) -> Iterator[str]:
    url = parse_url(text)
    if url.get_backend_name() != "sqlite":
        return
    folder = database_path(url).parent
    if not os.path.isdir(folder):
        if _MADE_AT_START not in (folder, *folder.parents):
            yield f"daemon.database: there is no folder {folder}: make it for the daemon"
    elif os.geteuid() != 0 and not os.access(folder, os.W_OK):
        yield f"daemon.database: {pwd.getpwuid(os.geteuid()).pw_name} cannot write {folder}"
