"""Certificates in files: what they say, how long, which users may read them, what is denied."""

from __future__ import annotations

import ipaddress
import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest
from cryptography import x509

from dlsched.core.errors import BadInput, NotTrusted
from dlsched.rpc.authority import LIFE_S, Authority, issued_for
from dlsched.rpc.certificate_folder import CertificateFolder, write_file
from dlsched.rpc.identity import DAEMON, Role, login, node, operator
from dlsched.rpc.tls import (
    DenyList,
    KeyFiles,
    PeerCertificate,
    alarm,
    read_certificate,
    read_secret,
    renewal_due,
)

DAY = 86400.0
NOW = 1_800_000_000.0


@pytest.fixture(scope="module")
def authority() -> Authority:
    made = Authority.create("test", now=NOW)
    return Authority(made.certificate, made.key)


@pytest.fixture
def folder(tmp_path: Path) -> CertificateFolder:
    made = CertificateFolder(tmp_path)
    made.create("test", now=NOW)
    return made


# -- what they say ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("role", "hosts", "serves"),
    [
        (DAEMON, ["daemon.dlsched.internal"], True),
        (node("n1"), ["n1.node.dlsched.internal"], True),
        (operator("olga"), [], False),
        (login("l1"), [], False),
    ],
    ids=str,
)
def test_a_certificate_says_its_role_and_a_server_has_a_name(
    authority: Authority, role: Role, hosts: list[str], serves: bool
) -> None:
    issued = authority.issue(role, ["h.example.org", "10.0.0.7"], now=NOW)
    loaded = x509.load_pem_x509_certificate(issued.certificate)
    names = loaded.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert names.get_values_for_type(x509.UniformResourceIdentifier) == [role.uri]
    assert names.get_values_for_type(x509.DNSName) == [*hosts, "h.example.org"]
    assert names.get_values_for_type(x509.IPAddress) == [ipaddress.ip_address("10.0.0.7")]
    usages = loaded.extensions.get_extension_for_class(x509.ExtendedKeyUsage).value
    assert (x509.oid.ExtendedKeyUsageOID.SERVER_AUTH in usages) is serves
    assert not loaded.extensions.get_extension_for_class(x509.BasicConstraints).value.ca
    found = read_certificate(issued.certificate)
    assert (found.role, found.ends_at) == (role, NOW + LIFE_S)
    assert authority.signed(issued.certificate)
    assert issued_for(issued.certificate) == (role, ("h.example.org", "10.0.0.7"))


@pytest.mark.parametrize(
    "address",
    [
        "daemon.dlsched.internal",
        "DAEMON.dlsched.INTERNAL",
        "daemon.dlsched.internal.",
        "n2.node.dlsched.internal",
        "dlsched.internal",
        "*.dlsched.internal",
        "*",
        "",
        "a b",
        "n1\n",
        "dlsched://daemon",
    ],
)
def test_no_certificate_gets_another_roles_name(authority: Authority, address: str) -> None:
    with pytest.raises(BadInput):
        authority.issue(node("n1"), [address], now=NOW)


def test_a_certificate_does_not_outlive_its_authority(authority: Authority) -> None:
    issued = authority.issue(node("n1"), now=NOW, life_s=1e12)
    assert read_certificate(issued.certificate).ends_at == authority.ends_at


def test_a_certificate_without_a_role_is_refused(authority: Authority) -> None:
    certificate, _ = Authority.create("other", now=NOW).certificate, None
    with pytest.raises(NotTrusted, match="has no role"):
        read_certificate(certificate)
    with pytest.raises(NotTrusted, match="has no role"):
        read_certificate(b"nonsense")
    assert not authority.signed(certificate)


# -- how long --------------------------------------------------------------------------------------


def lived(days: float) -> PeerCertificate:
    return PeerCertificate(role=node("n1"), serial=1, begins_at=NOW, ends_at=NOW + days * DAY)


@pytest.mark.parametrize(
    ("life", "day", "due", "alarmed"),
    [
        (360, 0, False, False),
        (360, 239, False, False),
        (360, 240, True, False),
        (360, 329, True, False),
        (360, 331, True, True),
        (360, 361, True, True),
        (6, 3, False, False),
        (6, 4.5, True, False),  # 30 days are longer than its whole life
        (6, 5.5, True, True),
    ],
)
def test_renewal_is_due_at_two_thirds_and_the_alarm_30_days_ahead(
    life: float, day: float, due: bool, alarmed: bool
) -> None:
    at = NOW + day * DAY
    assert renewal_due(lived(life), at) is due
    assert (alarm(lived(life), at) is not None) is alarmed


def test_the_alarm_says_what_to_do() -> None:
    assert alarm(lived(360), NOW + 350 * DAY) == (
        "the certificate of node/n1 expires on 2028-01-10 08:00 UTC: dlsched admin ca renew"
    )
    assert "has expired on" in str(alarm(lived(360), NOW + 370 * DAY))


def test_before_its_life_a_certificate_is_no_good_either() -> None:
    with pytest.raises(NotTrusted, match="check the clocks"):
        lived(1).check(NOW - 1)


# -- files -----------------------------------------------------------------------------------------


def test_a_key_that_others_can_read_is_refused(folder: CertificateFolder) -> None:
    files = folder.issue(node("n1"), now=NOW)
    assert stat.S_IMODE(files.key.stat().st_mode) == 0o600
    files.check(NOW, "node")
    for mode in (0o640, 0o604, 0o660, 0o644):
        files.key.chmod(mode)
        with pytest.raises(NotTrusted, match=rf"can be read by others \(mode {mode:04o}\)"):
            files.read()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")
def test_a_key_of_another_user_is_refused(folder: CertificateFolder) -> None:
    files = folder.issue(node("n1"), now=NOW)
    os.chown(files.key, 54321, 54321)
    with pytest.raises(NotTrusted, match="belongs to user id 54321"):
        files.read()


def test_a_missing_or_strange_key_is_one_line(folder: CertificateFolder, tmp_path: Path) -> None:
    files = folder.issue(node("n1"), now=NOW)
    with pytest.raises(BadInput, match=r"no\.key: No such file"):
        read_secret(tmp_path / "no.key")
    with pytest.raises(BadInput):
        read_secret(tmp_path)
    other = folder.issue(node("n2"), now=NOW)
    mixed = KeyFiles(ca=files.ca, certificate=files.certificate, key=other.key)
    with pytest.raises(NotTrusted, match="is not the key of"):
        mixed.check(NOW)
    with pytest.raises(NotTrusted, match="is of node/n1, not of a daemon"):
        files.check(NOW, "daemon")


def test_a_secret_is_never_readable_while_it_is_written(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        write_file(tmp_path / "a" / "key", b"secret", mode=0o600)
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / "a" / "key").stat().st_mode) == 0o600
    assert [each.name for each in (tmp_path / "a").iterdir()] == ["key"]


# -- the folder ------------------------------------------------------------------------------------


def test_a_renewal_has_a_new_key_and_the_same_names(folder: CertificateFolder) -> None:
    files = folder.issue(DAEMON, ["h.example.org"], now=NOW)
    before, key = files.check(NOW), files.key.read_bytes()
    folder.renew(DAEMON, now=NOW + DAY)
    after = files.check(NOW + DAY, "daemon")
    assert after.serial != before.serial
    assert after.ends_at == before.ends_at + DAY
    assert files.key.read_bytes() != key
    assert issued_for(files.certificate.read_bytes()) == (DAEMON, ("h.example.org",))


def test_nothing_is_overwritten(folder: CertificateFolder, tmp_path: Path) -> None:
    folder.issue(node("n1"), now=NOW)
    with pytest.raises(BadInput, match="node/n1 has a certificate: dlsched admin ca renew"):
        folder.issue(node("n1"), now=NOW)
    with pytest.raises(BadInput, match="has an authority already"):
        folder.create("again", now=NOW)
    with pytest.raises(BadInput, match="has no certificate here: dlsched admin ca issue node/n2"):
        folder.renew(node("n2"), now=NOW)
    with pytest.raises(BadInput, match="has no authority: dlsched admin init"):
        CertificateFolder(tmp_path / "none").authority()


def test_what_another_authority_signed_is_not_renewed(
    folder: CertificateFolder, authority: Authority
) -> None:
    files = folder.issue(node("n1"), now=NOW)
    files.certificate.write_bytes(authority.issue(node("n1"), now=NOW).certificate)
    with pytest.raises(BadInput, match="is not of this folder's authority"):
        folder.renew(node("n1"), now=NOW)


def test_the_list_shows_what_ends_first_and_why_it_matters(folder: CertificateFolder) -> None:
    for name, days in [("a", 1000), ("b", 100), ("c", 60), ("d", 12), ("e", 1000)]:
        folder.issue(node(name), now=NOW, life_s=days * DAY)
    folder.deny("node/e", "stolen\ndisk", now=NOW)
    at = NOW + 50 * DAY
    assert [(each.certificate.role.name, each.state) for each in folder.listed(at)] == [
        ("d", "expired"),
        ("c", "expires"),
        ("b", "good"),
        ("a", "good"),
        ("e", "denied"),
    ]
    assert [each.state for each in folder.listed(NOW + 68 * DAY)][2] == "renew"
    assert folder.deny_list.read_text().endswith(" # node/e, 2027-01-15: stolen disk\n")


# -- denied ----------------------------------------------------------------------------------------


def test_denying_by_role_file_or_number(folder: CertificateFolder) -> None:
    files = {name: folder.issue(node(name), now=NOW) for name in ("a", "b", "c")}
    serials = {name: each.check(NOW).serial for name, each in files.items()}
    denied = DenyList(folder.deny_list)
    assert not any(serial in denied for serial in serials.values())
    folder.deny("node/a", "", now=NOW)
    folder.deny(str(files["b"].certificate), "", now=NOW)
    folder.deny(f"{0xABCDEF:x}", "", now=NOW)
    folder.deny("node/a", "again", now=NOW)
    assert serials["a"] in denied
    assert serials["b"] in denied
    assert serials["c"] not in denied
    assert 0xABCDEF in denied
    assert len(folder.deny_list.read_text().splitlines()) == 4
    with pytest.raises(BadInput, match="is not a known role, file or serial number"):
        folder.deny("node/x", "", now=NOW)


def test_a_deny_list_that_breaks_or_goes_admits_no_denied_caller(tmp_path: Path) -> None:
    path = tmp_path / "denied"
    denied = DenyList(path)
    assert 0x10 not in denied
    path.write_text("10 # a\n\n# nothing\n0A:0B\n")
    assert 0x10 in denied
    assert 0x0A0B in denied
    path.write_text("10\nxyz\n")
    assert 0x10 in denied
    path.unlink()
    assert 0x10 in denied
    path.write_text("11\n")
    assert 0x10 not in denied  # taken off by hand
    path.write_text("zz\n")
    with pytest.raises(BadInput, match=r"denied:1: 'zz' is not a serial number"):
        DenyList(path)


def test_a_client_that_logs_in_locally_never_loads_cryptography() -> None:
    code = (
        "import sys\n"
        "from dlsched.rpc.channels import ClientTrust, open_blocking_channel\n"
        "import dlsched.rpc.login, dlsched.rpc.server\n"
        "open_blocking_channel('127.0.0.1:1', ClientTrust.claimed_user('ann', 1)).close()\n"
        "print([m for m in sys.modules if m.split('.')[0] in ('cryptography', 'numpy')])\n"
    )
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True)
    assert found.stdout == b"[]\n"


def test_a_certificate_is_parsed_once_however_often_it_is_read(
    authority: Authority, monkeypatch: pytest.MonkeyPatch
) -> None:
    pem = authority.issue(node("n1"), now=NOW).certificate
    parse, parsed = x509.load_pem_x509_certificate, []
    monkeypatch.setattr(
        x509, "load_pem_x509_certificate", lambda pem: parsed.append(pem) or parse(pem)
    )
    assert len({id(read_certificate(pem)) for _ in range(1000)}) == 1
    assert parsed == [pem]
