"""The folder of a cluster's certificates: the authority, and one `tls` folder for each party.

    ca/ca.crt ca/ca.key                     the authority: keep it off the daemon's machine
    tls/ca.crt daemon.crt daemon.key denied the daemon's
    nodes/n1/tls/ca.crt node.crt node.key   a node's, to be copied to it
    operators/NAME/tls/…, logins/NAME/tls/…

A file is replaced as a whole or not at all; other users can never read a key, not even briefly.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from dlsched.core.errors import BadInput, DlschedError
from dlsched.rpc.authority import LIFE_S, Authority, Issued, issued_for
from dlsched.rpc.identity import DAEMON, Role
from dlsched.rpc.tls import (
    KeyFiles,
    PeerCertificate,
    alarm,
    read_certificate,
    read_denied,
    read_secret,
    renewal_due,
)
from dlsched.system.files import replace_file


@dataclass(frozen=True, slots=True, kw_only=True)
class Listed:
    """A certificate of the folder and its state."""

    certificate: PeerCertificate
    path: Path
    state: str  # good, renew, expires, expired, denied


def write_file(path: Path, content: bytes, *, mode: int = 0o644) -> None:
    """Replace a file atomically; it has its mode from the start.

    Raises:
        DlschedError: it cannot be written.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        present = path.stat() if path.exists() else path.parent.stat()
        owner = (present.st_uid, present.st_gid) if os.geteuid() == 0 else None
        replace_file(str(path), content, mode=mode, owner=owner)
    except OSError as error:
        raise DlschedError(f"{path}: cannot be written ({error.strerror})") from None


class CertificateFolder:
    """One cluster's certificates and its authority."""

    def __init__(self, folder: Path) -> None:
        """Use a folder; nothing is read yet."""
        self.folder = folder

    # -- places -----------------------------------------------------------------------------------

    def home(self, role: Role) -> Path:
        """The folder with everything that one party needs."""
        return self.folder if role == DAEMON else self.folder / f"{role.kind}s" / role.name

    def files(self, role: Role) -> KeyFiles:
        """The files of one party's certificate."""
        return KeyFiles.of(self.home(role) / "tls", role.kind)

    @property
    def deny_list(self) -> Path:
        """The daemon's deny list."""
        return self.folder / "tls" / "denied"

    # -- making -----------------------------------------------------------------------------------

    def create(self, cluster: str, *, now: float) -> None:
        """Create the authority.

        Raises:
            BadInput: there is one already.
        """
        if (self.folder / "ca").exists():
            raise BadInput(f"{self.folder} has an authority already: nothing was changed")
        made = Authority.create(cluster, now=now)
        (self.folder / "ca").mkdir(parents=True, mode=0o700)
        write_file(self.folder / "ca" / "ca.key", made.key, mode=0o600)
        write_file(self.folder / "ca" / "ca.crt", made.certificate)
        write_file(
            self.deny_list, b"# serial numbers of denied certificates: dlsched admin ca deny\n"
        )

    def authority(self) -> Authority:
        """The authority of this folder.

        Raises:
            BadInput: there is none.
        """
        place = self.folder / "ca"
        if not (place / "ca.crt").exists():
            raise BadInput(f"{place} has no authority: dlsched admin init makes one")
        return Authority((place / "ca.crt").read_bytes(), read_secret(place / "ca.key"))

    def issue(
        self, role: Role, addresses: Sequence[str] = (), *, now: float, life_s: float = LIFE_S
    ) -> KeyFiles:
        """Issue a first certificate for a role.

        Args:
            role: the role.
            addresses: further host names and IP addresses in the certificate.
            now: seconds since the epoch.
            life_s: its validity in seconds.

        Raises:
            BadInput: it has one already.
        """
        files = self.files(role)
        if files.certificate.exists():
            raise BadInput(f"{role} has a certificate: dlsched admin ca renew {role}")
        self._write(files, self.authority().issue(role, addresses, now=now, life_s=life_s))
        return files

    def renew(self, role: Role, *, now: float, life_s: float = LIFE_S) -> KeyFiles:
        """Replace a certificate and its key; the old certificate stays valid until it expires.

        Raises:
            BadInput: there is none to renew.
        """
        files = self.files(role)
        if not files.certificate.exists():
            raise BadInput(f"{role} has no certificate here: dlsched admin ca issue {role}")
        authority, before = self.authority(), files.certificate.read_bytes()
        if not authority.signed(before):
            raise BadInput(f"{files.certificate} is not of this folder's authority")
        _, addresses = issued_for(before)
        self._write(files, authority.issue(role, addresses, now=now, life_s=life_s))
        return files

    def _write(self, files: KeyFiles, issued: Issued) -> None:
        write_file(files.ca, (self.folder / "ca" / "ca.crt").read_bytes())
        write_file(files.key, issued.key, mode=0o600)
        write_file(files.certificate, issued.certificate)

    # -- looking ----------------------------------------------------------------------------------

    def listed(self, now: float) -> list[Listed]:
        """Every certificate except the authority's own, sorted by expiry."""
        denied = read_denied(self.deny_list) if self.deny_list.exists() else frozenset()
        found = [
            Listed(certificate=one, path=path, state=_state(one, denied, now))
            for path, one in self._certificates()
        ]
        return sorted(found, key=lambda each: (each.certificate.ends_at, str(each.path)))

    def _certificates(self) -> Iterator[tuple[Path, PeerCertificate]]:
        for path in sorted(self.folder.rglob("tls/*.crt")):
            if path.name != "ca.crt":
                yield path, read_certificate(path.read_bytes())

    # -- denying ----------------------------------------------------------------------------------

    def deny(self, what: str, why: str, *, now: float) -> list[PeerCertificate]:
        """Refuse certificates from now on, given by role, file or serial number.

        Raises:
            BadInput: it names no certificate.
        """
        self.authority()
        found = self._named(what)
        denied = read_denied(self.deny_list) if self.deny_list.exists() else frozenset()
        lines = self.deny_list.read_text() if self.deny_list.exists() else ""
        reason, day = " ".join(why.split()), time.strftime("%Y-%m-%d", time.gmtime(now))
        for serial, name, _ in found:
            if serial not in denied:
                lines += f"{serial:x} # {name}, {day}{': ' + reason if reason else ''}\n"
        write_file(self.deny_list, lines.encode())
        return [certificate for _, _, certificate in found if certificate is not None]

    def _named(self, what: str) -> list[tuple[int, str, PeerCertificate | None]]:
        for path, one in self._certificates():
            if what in {str(one.role), one.serial_text, str(path)}:
                return [(one.serial, str(one.role), one)]
        if os.path.isfile(what):
            one = read_certificate(Path(what).read_bytes())
            return [(one.serial, str(one.role), one)]
        try:
            return [(int(what.replace(":", ""), 16), "by its number", None)]
        except ValueError:
            raise BadInput(
                f"{what!r} is not a known role, file or serial number: dlsched admin ca show"
            ) from None


def _state(certificate: PeerCertificate, denied: frozenset[int], now: float) -> str:
    if certificate.serial in denied:
        return "denied"
    if now >= certificate.ends_at:
        return "expired"
    if alarm(certificate, now) is not None:
        return "expires"
    return "renew" if renewal_due(certificate, now) else "good"
