"""How the daemon authenticates itself and its clients: certificates, or loopback.

A renewed certificate is used without a restart: ports read it for each new connection, and channels
to agents are opened anew when the files have changed.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from grpc import aio

from dlsched.core.errors import DlschedError, NotAllowed
from dlsched.daemon.settings import TrustSection
from dlsched.rpc.channels import ClientTrust, open_channel
from dlsched.rpc.identity import DAEMON, Identity, node
from dlsched.rpc.server import ServerTrust
from dlsched.rpc.tls import KeyFiles, alarm, check_deny_list, read_certificate
from dlsched.rpc.tokens import LocalTokens, TokenStore
from dlsched.system.clock import wall


class DaemonTrust:
    """The certificates of one daemon."""

    def __init__(self, section: TrustSection, *, insecure: bool) -> None:
        """Take the configuration; no file is read yet."""
        self.section = section
        self.insecure = insecure
        self.files = None if insecure else KeyFiles.of(Path(section.folder), "daemon")

    @property
    def deny_list(self) -> Path:
        """The file of certificates that are refused."""
        return Path(self.section.denied or Path(self.section.folder, "denied"))

    def open_channel(self, address: str, name: str) -> aio.Channel:
        """Open a channel to an address, where that node's agent must answer."""
        if self.files is None:
            return open_channel(address, ClientTrust.claimed_role(DAEMON))
        return open_channel(address, ClientTrust.certificate(self.files, server=node(name)))

    def stamp(self) -> object:
        """A value that changes when the certificate is renewed."""
        return None if self.files is None else self.files.stamp()

    def server(self, local: LocalTokens | None, remote: TokenStore) -> ServerTrust:
        """The trust of the daemon's ports."""
        return ServerTrust(
            files=self.files,
            denied=None if self.insecure else self.deny_list,
            insecure_loopback=self.insecure,
            local=local,
            remote=remote,
            operators=frozenset(self.section.operators),
        )

    def faults(self) -> Iterator[str]:
        """One line for each file that is missing or wrong, with the key that names it."""
        if self.files is None:
            return
        for key, check in (
            ("folder", lambda files: files.check(wall(), DAEMON.kind)),
            ("denied", lambda _: check_deny_list(self.deny_list)),
        ):
            try:
                check(self.files)
            except DlschedError as error:
                yield f"trust.{key}: {error}"

    def expires_at(self) -> float | None:
        """When the certificate does, in seconds since the epoch; None: there is none to read."""
        return None if self.files is None else self.files.expires_at()

    def problem(self) -> str | None:
        """One line when the certificate expires soon or cannot be read; else None."""
        if self.files is None:
            return None
        try:
            return alarm(read_certificate(self.files.certificate.read_bytes()), wall())
        except (OSError, DlschedError) as error:
            return f"the daemon's certificate cannot be read: {error}"


def check_may_run(caller: Identity, section: TrustSection) -> None:
    """Refuse root's jobs, unless the configuration allows them or the caller is not authenticated.

    Raises:
        NotAllowed: one line that says what to do instead.
    """
    if caller.uid == 0 and caller.via != "claimed" and not section.root_jobs:
        raise NotAllowed("root's jobs are not run here: submit as a user ([trust] root_jobs)")
