"""What `dlsched daemon --check` looks for beside the file itself: the machine, and what is silent.

A file may be well formed and name a folder, a user or a node that is not there. A start refuses
some of that. The rest no daemon can refuse, since a user may be made tomorrow; but nothing would
ever say it.
"""

from __future__ import annotations

import grp
import os
import pwd
from collections.abc import Callable, Iterator
from pathlib import Path

from dlsched.core.cluster.host_lists import expand
from dlsched.core.errors import DlschedError
from dlsched.daemon.settings import Settings
from dlsched.daemon.trust import DaemonTrust
from dlsched.db.engine import parse_url
from dlsched.rpc.identity import DAEMON
from dlsched.system.clock import wall

_MADE_AT_START = Path("/var/lib/dlsched")  # by the service manager


def faults(settings: Settings, *, insecure: bool = False) -> Iterator[str]:
    """One line for each thing that is not there: its key, its value, and what would be right.

    Args:
        settings: of the file.
        insecure: the daemon is to run without certificates.
    """
    yield from _of_database(settings.daemon.database)
    if not (insecure or settings.trust.mode == "insecure-loopback"):
        yield from _of_trust(settings)
    yield from _of_names(settings)
    yield from _of_nodes(settings)


def _of_database(text: str) -> Iterator[str]:
    url = parse_url(text)
    if url.get_backend_name() != "sqlite":
        return
    file = Path(url.database or "")
    if not file.is_absolute():
        yield (
            f"daemon.database: {text} is relative to the folder that the daemon begins in; four "
            f"slashes make it absolute: sqlite:////{file}"
        )
    elif not file.parent.is_dir():
        if _MADE_AT_START not in file.parents:
            yield f"daemon.database: there is no folder {file.parent}: make it for the daemon"
    elif os.geteuid() != 0 and not os.access(file.parent, os.W_OK):
        yield f"daemon.database: {pwd.getpwuid(os.geteuid()).pw_name} cannot write {file.parent}"


def _of_trust(settings: Settings) -> Iterator[str]:
    trust = DaemonTrust(settings.trust, insecure=False)
    assert trust.files is not None
    try:
        trust.files.check(wall(), DAEMON.kind)
    except (OSError, DlschedError) as error:
        yield f"trust.folder: {error}"
    if not trust.deny_list.exists():
        yield (
            f"trust.denied: there is no {trust.deny_list}: no certificate would be refused; an "
            "empty file refuses none on purpose"
        )


def _of_names(settings: Settings) -> Iterator[str]:
    for name in settings.trust.operators:
        if not _is_known(pwd.getpwnam, name):
            yield f"trust.operators: this machine knows no user {name}"
    for each in settings.partition_rules().values():
        for name in each.users:
            if not _is_known(pwd.getpwnam, name):
                yield f"partitions: {each.name}: users: this machine knows no user {name}"
        for name in each.groups:
            if not _is_known(grp.getgrnam, name):
                yield f"partitions: {each.name}: groups: this machine knows no group {name}"


def _is_known(look_up: Callable[[str], object], name: str) -> bool:
    try:
        look_up(name)
    except KeyError:
        return False
    return True


def _of_nodes(settings: Settings) -> Iterator[str]:
    nodes = settings.configured_nodes()
    if not nodes:
        return  # every node may register, so that none is unknown
    for kind, tenants in (("partitions", settings.partitions), ("vcs", settings.vcs)):
        for each in tenants:
            unknown = [name for name in _hosts(each.tenant.nodes) if name not in nodes]
            if unknown:
                yield f"{kind}: {each.name}: nodes: {unknown[0]} is no node of [[nodes]]"
    gpus = [section.gpus for section in nodes.values()]
    if 0 in gpus:
        return  # the file does not say how large the cluster is
    there = f"the {sum(gpus)} GPUs of [[nodes]]"
    for vc in settings.vcs:
        for key, number in (("gpus", vc.tenant.gpus), ("guaranteed", vc.tenant.guaranteed)):
            if number is not None and number > sum(gpus):
                yield f"vcs: {vc.name}: {key}: {number} is more than {there}"


def _hosts(text: str) -> list[str]:
    return expand("nodes", text) if text else []
