"""The cluster's certificate authority: issues the certificates of roles.

Only this module signs. A server has a DNS name under `dlsched.internal` that follows from its role,
so no certificate has such a name for another role. Keys are EC P-256.
"""

from __future__ import annotations

import datetime as dt
import ipaddress
import re
from collections.abc import Sequence
from dataclasses import dataclass

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from dlsched.core.errors import BadInput
from dlsched.rpc.identity import SUFFIX, Role

DAY_S = 86400.0
LIFE_S = 365 * DAY_S
CA_LIFE_S = 3650 * DAY_S
SKEW_S = 300.0  # a certificate is valid from shortly before its creation: clocks differ
HOST = re.compile(r"[A-Za-z0-9]([A-Za-z0-9._-]{0,252})")
SERVERS = ("daemon", "node")


def _moment(seconds: float) -> dt.datetime:
    return dt.datetime.fromtimestamp(int(seconds), dt.UTC)


def _subject(text: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text[:64])])


@dataclass(frozen=True, slots=True)
class Issued:
    """A certificate and its key, as PEM."""

    certificate: bytes
    key: bytes


class Authority:
    """The key that signs all certificates of one cluster."""

    def __init__(self, certificate: bytes, key: bytes) -> None:
        """Load an authority from its PEM files.

        Raises:
            BadInput: they are not a certificate and its key.
        """
        try:
            self._certificate = x509.load_pem_x509_certificate(certificate)
            loaded = serialization.load_pem_private_key(key, None)
        except (ValueError, TypeError):
            raise BadInput("the authority's certificate or key cannot be read") from None
        if (
            not isinstance(loaded, ec.EllipticCurvePrivateKey)
            or loaded.public_key() != self._certificate.public_key()
        ):
            raise BadInput("the authority's key is not that of its certificate")
        self._key = loaded

    @classmethod
    def create(cls, cluster: str, *, now: float, life_s: float = CA_LIFE_S) -> Issued:
        """A new, self-signed authority."""
        key = ec.generate_private_key(ec.SECP256R1())
        name = _subject(f"dlsched {cluster} CA")
        certificate = (
            x509.CertificateBuilder()
            .subject_name(name)
            .issuer_name(name)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(_moment(now - SKEW_S))
            .not_valid_after(_moment(now + life_s))
            .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
            .add_extension(_usage(signs_certificates=True), critical=True)
            .add_extension(
                x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False
            )
            .sign(key, hashes.SHA256())
        )
        return _issued(certificate, key)

    @property
    def ends_at(self) -> float:
        """When the authority expires, in seconds since the epoch."""
        return self._certificate.not_valid_after_utc.timestamp()

    def issue(
        self,
        role: Role,
        addresses: Sequence[str] = (),
        *,
        now: float,
        life_s: float = LIFE_S,
    ) -> Issued:
        """A certificate and a new key for a role.

        Args:
            role: the role of its holder.
            addresses: further host names and IP addresses, for other tools; dlsched itself
                checks the role.
            now: seconds since the epoch.
            life_s: validity from now, at most to the end of the authority.
        """
        if not life_s > 0:
            raise BadInput(f"a certificate's life is above 0 s, not {life_s:g}")
        key = ec.generate_private_key(ec.SECP256R1())
        names: list[x509.GeneralName] = [x509.UniformResourceIdentifier(role.uri)]
        usages = [ExtendedKeyUsageOID.CLIENT_AUTH]
        if role.kind in SERVERS:
            names.append(x509.DNSName(role.host))
            usages.append(ExtendedKeyUsageOID.SERVER_AUTH)
        names += [_address(each) for each in dict.fromkeys(addresses)]
        certificate = (
            x509.CertificateBuilder()
            .subject_name(_subject(str(role)))
            .issuer_name(self._certificate.subject)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(_moment(now - SKEW_S))
            .not_valid_after(_moment(min(now + life_s, self.ends_at)))
            .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
            .add_extension(_usage(signs_certificates=False), critical=True)
            .add_extension(x509.ExtendedKeyUsage(usages), critical=False)
            .add_extension(x509.SubjectAlternativeName(names), critical=False)
            .add_extension(
                x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False
            )
            .add_extension(
                x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key()),
                critical=False,
            )
            .sign(self._key, hashes.SHA256())
        )
        return _issued(certificate, key)

    def signed(self, certificate: bytes) -> bool:
        """Whether this authority has signed a certificate."""
        try:
            x509.load_pem_x509_certificate(certificate).verify_directly_issued_by(self._certificate)
        except Exception:  # a wrong signature raises several types
            return False
        return True


def issued_for(certificate: bytes) -> tuple[Role, tuple[str, ...]]:
    """The role and the further addresses of a certificate, for its renewal."""
    loaded = x509.load_pem_x509_certificate(certificate)
    names = loaded.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    (uri,) = names.get_values_for_type(x509.UniformResourceIdentifier)
    role = Role.parse(uri)
    hosts = [h for h in names.get_values_for_type(x509.DNSName) if not _reserved(h)]
    numbers = [str(number) for number in names.get_values_for_type(x509.IPAddress)]
    return role, (*hosts, *numbers)


def _reserved(host: str) -> bool:
    return f".{host.lower().rstrip('.')}".endswith(f".{SUFFIX}")


def _address(text: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(text))
    except ValueError:
        pass
    if not HOST.fullmatch(text):
        raise BadInput(f"{text!r} is neither a host name nor an IP address")
    if _reserved(text):
        raise BadInput(f"{text!r}: names under {SUFFIX} come with roles only")
    return x509.DNSName(text)


def _usage(*, signs_certificates: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=not signs_certificates,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=signs_certificates,
        crl_sign=signs_certificates,
        encipher_only=False,
        decipher_only=False,
    )


def _issued(certificate: x509.Certificate, key: ec.EllipticCurvePrivateKey) -> Issued:
    return Issued(
        certificate=certificate.public_bytes(serialization.Encoding.PEM),
        key=key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        ),
    )
