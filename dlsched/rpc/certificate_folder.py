"""The folder of a cluster's certificates: the authority, and one `tls` folder for each party.

    ca/ca.crt ca/ca.key                     the authority: best kept off the daemon's machine
    tls/ca.crt daemon.crt daemon.key denied the daemon's
    nodes/n1/tls/ca.crt node.crt node.key   a node's, to be taken there
    operators/NAME/tls/…, logins/NAME/tls/…

A file is replaced whole or not at all; keys are never readable by others, not even for a moment.
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

__all__ = ["CertificateFolder", "Listed", "write_file"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Listed:
    """A certificate of the folder and what there is to say of it."""

    certificate: PeerCertificate
    path: Path
    state: str  # good, renew, expires, expired, denied


def write_file(path: Path, content: bytes, *, mode: int = 0o644) -> None:
    """Put a file in place whole, with its mode from the beginning.

    Raises:
        DlschedError: when it cannot be written.
    """
    part = path.with_name(f".{path.name}.part")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        part.unlink(missing_ok=True)
        descriptor = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, mode)
        with open(descriptor, "wb") as file:
            os.fchmod(descriptor, mode)  # whatever the mask says
            owner = path.stat() if path.exists() else path.parent.stat()
            if os.geteuid() == 0:
                os.fchown(descriptor, owner.st_uid, owner.st_gid)
            file.write(content)
            file.flush()
            os.fsync(descriptor)
        os.replace(part, path)
    except OSError as error:
        raise DlschedError(f"{path}: cannot be written ({error.strerror})") from None


class CertificateFolder:
    """One cluster's certificates, where its authority is."""

    def __init__(self, folder: Path) -> None:
        """Look at a folder; nothing is read yet."""
        self.folder = folder

    # -- places -----------------------------------------------------------------------------------

    def home(self, role: Role) -> Path:
        """Everything that one party needs."""
        return self.folder if role == DAEMON else self.folder / f"{role.kind}s" / role.name

    def files(self, role: Role) -> KeyFiles:
        """One party's certificate."""
        return KeyFiles.of(self.home(role) / "tls", role.kind)

    @property
    def deny_list(self) -> Path:
        """Of the daemon."""
        return self.folder / "tls" / "denied"

    # -- making -----------------------------------------------------------------------------------

    def create(self, cluster: str, *, now: float) -> None:
        """Make the authority.

        Raises:
            BadInput: when there is one.
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
        """The one that signs here.

        Raises:
            BadInput: when there is none.
        """
        place = self.folder / "ca"
        if not (place / "ca.crt").exists():
            raise BadInput(f"{place} has no authority: dlsched admin init makes one")
        return Authority((place / "ca.crt").read_bytes(), read_secret(place / "ca.key"))

    def issue(
        self, role: Role, addresses: Sequence[str] = (), *, now: float, life_s: float = LIFE_S
    ) -> KeyFiles:
        """A first certificate for a role.

        Raises:
            BadInput: when it has one.
        """
        files = self.files(role)
        if files.certificate.exists():
            raise BadInput(f"{role} has a certificate: dlsched admin ca renew {role}")
        self._write(files, self.authority().issue(role, addresses, now=now, life_s=life_s))
        return files

    def renew(self, role: Role, *, now: float, life_s: float = LIFE_S) -> KeyFiles:
        """A new certificate and key in the place of the old ones, which stay good until they end.

        Raises:
            BadInput: when there is none to renew.
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
        """Every certificate here but the authority's own, those that end first at the top."""
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
        """Refuse certificates from now on: of a role, of a file, or one serial number.

        Raises:
            BadInput: when nothing is meant by it.
        """
        self.authority()
        meant = self._meant(what)
        denied = read_denied(self.deny_list) if self.deny_list.exists() else frozenset()
        lines = self.deny_list.read_text() if self.deny_list.exists() else ""
        reason, day = " ".join(why.split()), time.strftime("%Y-%m-%d", time.gmtime(now))
        for serial, name, _ in meant:
            if serial not in denied:
                lines += f"{serial:x} # {name}, {day}{': ' + reason if reason else ''}\n"
        write_file(self.deny_list, lines.encode())
        return [certificate for _, _, certificate in meant if certificate is not None]

    def _meant(self, what: str) -> list[tuple[int, str, PeerCertificate | None]]:
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
                f"{what!r} is no role, file or serial number that is known here: "
                "dlsched admin ca show"
            ) from None


def _state(certificate: PeerCertificate, denied: frozenset[int], now: float) -> str:
    if certificate.serial in denied:
        return "denied"
    if now >= certificate.ends_at:
        return "expired"
    if alarm(certificate, now) is not None:
        return "expires"
    return "renew" if renewal_due(certificate, now) else "good"
