"""By what the daemon proves who it is and tells others apart: certificates, or loopback.

A renewed certificate is taken up without a restart: by ports when somebody connects, by channels to
agents because they are opened anew when the files have changed.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from dlsched.core.errors import DlschedError, NotAllowed
from dlsched.daemon.clock import wall
from dlsched.daemon.settings import TrustSection
from dlsched.rpc.channels import ClientTrust, open_channel
from dlsched.rpc.identity import DAEMON, Identity, node
from dlsched.rpc.server import ServerTrust
from dlsched.rpc.tls import KeyFiles, alarm, read_certificate
from dlsched.rpc.tokens import LocalTokens, TokenStore

__all__ = ["DaemonTrust", "check_may_run"]


class DaemonTrust:
    """The certificates of one daemon."""

    def __init__(self, section: TrustSection, *, insecure: bool) -> None:
        """Take the configuration; nothing is read yet."""
        self.section = section
        self.insecure = insecure
        self.files = None if insecure else KeyFiles.of(Path(section.folder), "daemon")

    def open_channel(self, address: str, name: str) -> Any:
        """A channel to an agent, which must be that node's."""
        if self.files is None:
            return open_channel(address, ClientTrust.claimed_role(DAEMON))
        return open_channel(address, ClientTrust.certificate(self.files, server=node(name)))

    def stamp(self) -> object:
        """Changes when the certificate was renewed."""
        return None if self.files is None else self.files.stamp()

    def server(self, local: LocalTokens | None, remote: TokenStore) -> ServerTrust:
        """For the daemon's ports."""
        denied = self.section.denied or str(Path(self.section.folder, "denied"))
        return ServerTrust(
            files=self.files,
            denied=None if self.insecure else Path(denied),
            insecure_loopback=self.insecure,
            local=local,
            remote=remote,
            operators=frozenset(self.section.operators),
        )

    def problem(self) -> str | None:
        """One line when the certificate ends soon or cannot be read."""
        if self.files is None:
            return None
        try:
            return alarm(read_certificate(self.files.certificate.read_bytes()), wall())
        except (OSError, DlschedError) as error:
            return f"the daemon's certificate cannot be read: {error}"


def check_may_run(caller: Identity, section: TrustSection) -> None:
    """Refuse root's jobs, unless the configuration allows them or this is development.

    Raises:
        NotAllowed: saying what would be right.
    """
    if caller.uid == 0 and caller.via != "claimed" and not section.root_jobs:
        raise NotAllowed("root's jobs are not run here: submit as a user ([trust] root_jobs)")
