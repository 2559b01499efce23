"""Certificates in files: safe reading, validity, and the deny list.

A private key that other users can read is refused. `cryptography` is imported only when a
certificate is parsed: clients that log in locally never load it.
"""

from __future__ import annotations

import logging
import os
import stat
import time
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from dlsched.core.errors import BadInput, NotTrusted
from dlsched.rpc.identity import Role

log = logging.getLogger(__name__)
DAY_S = 86400.0
ALARM_S = 30 * DAY_S
KEPT_CERTIFICATES = 1 << 14  # parsed; more than there are nodes, so that no sync waits for a parse
Stamp = tuple[tuple[int, int, int], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class PeerCertificate:
    """The parts of a certificate that dlsched uses. Times are seconds since the epoch."""

    role: Role
    serial: int
    begins_at: float
    ends_at: float

    @property
    def serial_text(self) -> str:
        """The serial number as in the deny list."""
        return f"{self.serial:x}"

    def check(self, now: float) -> None:
        """Refuse a certificate that is not valid at a time.

        Raises:
            NotTrusted: naming the limit that was passed.
        """
        if now >= self.ends_at:
            raise NotTrusted(
                f"the certificate of {self.role} has expired on {_day(self.ends_at)}: "
                "dlsched admin ca renew"
            )
        if now < self.begins_at:
            raise NotTrusted(
                f"the certificate of {self.role} begins on {_day(self.begins_at)}: check the clocks"
            )


def _day(seconds: float) -> str:
    return time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime(seconds))


@lru_cache(maxsize=KEPT_CERTIFICATES)
def read_certificate(pem: bytes) -> PeerCertificate:
    """Parse a certificate in PEM; TLS has checked its signature.

    Raises:
        NotTrusted: it has no role, or several.
    """
    from cryptography import x509  # noqa: PLC0415  see the module's docstring

    try:
        loaded = x509.load_pem_x509_certificate(pem)
        names = loaded.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
        (uri,) = names.get_values_for_type(x509.UniformResourceIdentifier)
        role = Role.parse(uri)
    except (ValueError, BadInput, x509.ExtensionNotFound):
        raise NotTrusted("the certificate has no role of dlsched") from None
    return PeerCertificate(
        role=role,
        serial=loaded.serial_number,
        begins_at=loaded.not_valid_before_utc.timestamp(),
        ends_at=loaded.not_valid_after_utc.timestamp(),
    )


def renewal_due(certificate: PeerCertificate, now: float) -> bool:
    """Whether two thirds of a certificate's validity are over."""
    life = certificate.ends_at - certificate.begins_at
    return now >= certificate.begins_at + life * 2 / 3


def alarm(certificate: PeerCertificate, now: float) -> str | None:
    """A warning when a certificate expires within 30 days or the last sixth of its validity."""
    left = certificate.ends_at - now
    if left > min(ALARM_S, (certificate.ends_at - certificate.begins_at) / 6):
        return None
    when = "has expired" if left <= 0 else "expires"
    return (
        f"the certificate of {certificate.role} {when} on {_day(certificate.ends_at)}: "
        "dlsched admin ca renew"
    )


def read_secret(path: Path) -> bytes:
    """The content of a file that only its owner can read.

    Raises:
        BadInput: it cannot be read.
        NotTrusted: other users can read it.
    """
    try:
        with open(path, "rb") as file:
            found = os.fstat(file.fileno())
            if not stat.S_ISREG(found.st_mode):
                raise BadInput(f"{path} is not a plain file")
            if found.st_mode & 0o077:
                raise NotTrusted(
                    f"{path} can be read by others (mode {stat.S_IMODE(found.st_mode):04o}): "
                    f"chmod 600 {path}"
                )
            if found.st_uid not in {0, os.geteuid()}:
                raise NotTrusted(f"{path} belongs to user id {found.st_uid}, neither root nor you")
            return file.read()
    except OSError as error:
        raise BadInput(f"{path}: {error.strerror}") from None


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise BadInput(f"{path}: {error.strerror}") from None


@dataclass(frozen=True, slots=True)
class Material:
    """The PEM texts that TLS needs."""

    ca: bytes
    certificate: bytes
    key: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyFiles:
    """The paths of one party's certificates and key."""

    ca: Path
    certificate: Path
    key: Path

    @classmethod
    def of(cls, folder: Path, kind: str) -> KeyFiles:
        """The files in one party's folder: `ca.crt`, `KIND.crt` and `KIND.key`."""
        return cls(
            ca=folder / "ca.crt", certificate=folder / f"{kind}.crt", key=folder / f"{kind}.key"
        )

    def read(self) -> Material:
        """Read all three; a key that other users can read is refused."""
        return Material(_read(self.ca), _read(self.certificate), read_secret(self.key))

    def check(self, now: float, *kinds: str) -> PeerCertificate:
        """The own certificate, checked for validity and for one of some kinds (none given: any).

        Raises:
            NotTrusted: it is not valid now, or of another kind.
        """
        material = self.read()
        own = read_certificate(material.certificate)
        if kinds and own.role.kind not in kinds:
            raise NotTrusted(f"{self.certificate} is of {own.role}, not of a {' or '.join(kinds)}")
        own.check(now)
        if not _belongs(material.certificate, material.key):
            raise NotTrusted(f"{self.key} is not the key of {self.certificate}")
        return own

    def expires_at(self) -> float | None:
        """When the certificate does, in seconds since the epoch; None: it cannot be read."""
        try:
            return read_certificate(_read(self.certificate)).ends_at
        except (BadInput, NotTrusted):
            return None

    def stamp(self) -> Stamp:
        """A value that changes when a file is replaced."""
        return tuple(_stamp(path) for path in (self.ca, self.certificate, self.key))


def _belongs(certificate: bytes, key: bytes) -> bool:
    from cryptography import x509  # noqa: PLC0415  see the module's docstring
    from cryptography.hazmat.primitives import serialization  # noqa: PLC0415

    try:
        private = serialization.load_pem_private_key(key, None)
    except (ValueError, TypeError):
        return False
    return private.public_key() == x509.load_pem_x509_certificate(certificate).public_key()


def _stamp(path: Path) -> tuple[int, int, int]:
    try:
        found = path.stat()
    except OSError:
        return (0, 0, 0)
    return (found.st_mtime_ns, found.st_size, found.st_ino)


class DenyList:
    """Serial numbers of signed certificates that are refused nevertheless.

    The file has one hexadecimal number per line and comments after `#`. It is read again when it
    changes. When it cannot be read any more, the last list stays in force.
    """

    def __init__(self, path: Path | None) -> None:
        """Read the file; without one the list is empty until the file appears."""
        self._path = path
        self._stamp = (0, 0, 0)
        self._serials: frozenset[int] = frozenset()
        if path is not None and path.exists():
            self._stamp = _stamp(path)
            self._serials = read_denied(path)

    def __contains__(self, serial: int) -> bool:
        self._refresh()
        return serial in self._serials

    def _refresh(self) -> None:
        if self._path is None:
            return
        stamp = _stamp(self._path)
        if stamp in (self._stamp, (0, 0, 0)):
            return
        self._stamp = stamp
        try:
            self._serials = read_denied(self._path)
        except BadInput as error:
            log.error("deny-list-unreadable kept=%d why=%s", len(self._serials), error)


def check_deny_list(path: Path) -> None:
    """Refuse a list that is not there, since no certificate would be refused, and no word said.

    Raises:
        BadInput: there is none.
    """
    if not path.exists():
        raise BadInput(
            f"there is no {path}, the list of denied certificates: none would be refused; an empty "
            "file refuses none on purpose"
        )


def read_denied(path: Path) -> frozenset[int]:
    """The serial numbers in a deny list.

    Raises:
        BadInput: naming the line that is not a serial number.
    """
    found = set()
    for number, line in enumerate(_read(path).decode(errors="replace").splitlines(), 1):
        serial, _, _ = line.partition("#")[0].strip().partition(" ")
        if not serial:
            continue
        try:
            found.add(int(serial.replace(":", ""), 16))
        except ValueError:
            raise BadInput(f"{path}:{number}: {serial!r} is not a serial number") from None
    return frozenset(found)
