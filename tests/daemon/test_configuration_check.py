"""`--check`: what a start would refuse, and what would be silent for good."""

from __future__ import annotations

import getpass
import time
from pathlib import Path

import pytest

from dlsched.daemon.__main__ import main
from dlsched.rpc.certificate_folder import CertificateFolder
from dlsched.rpc.identity import DAEMON

NODES = '[[nodes]]\nname = "n[1-2]"\ngpus = 4\n'
PARTITION = '[[partitions]]\nname = "a"\n'
MISTAKES = {
    "relative": ("database", "sqlite:///lib/x.db", "four slashes make it absolute"),
    "no folder": ("database", "sqlite:////none/x.db", "there is no folder /none"),
    "no certificates": ("folder", "/none", "trust.folder: /none/ca.crt"),
    "no deny list": ("denied", "/none/denied", "there is no /none/denied: no certificate would"),
    "operator": ("operators", ["nobody-at-all"], "knows no user nobody-at-all"),
    "group": ("", PARTITION + 'groups = ["none-at-all"]', "knows no group none-at-all"),
    "user": ("", PARTITION + 'users = ["nobody-at-all"]', "a: users: this machine knows no"),
    "partition's node": ("", f'{NODES}{PARTITION}nodes = "n[2-3]"', "a: nodes: n3 is no node of"),
    "vc's node": ("", f'{NODES}[[vcs]]\nname = "v"\nnodes = "n7"', "vcs: v: nodes: n7 is no"),
    "vc": ("", f'{NODES}[[vcs]]\nname = "v"\ngpus = 9', "v: gpus: 9 is more than the 8 GPUs"),
    "two defaults": (
        "",
        f"{PARTITION}default = true\n[[partitions]]\nname = 'b'\ndefault = true",
        "both the default",
    ),
}


class Site:
    """A folder with certificates, and a configuration that is right."""

    def __init__(self, folder: Path) -> None:
        """Make the certificates."""
        made = CertificateFolder(folder / "etc")
        made.create("lab", now=time.time())
        made.issue(DAEMON, now=time.time())
        self.file = folder / "dlsched.toml"
        self.values: dict[str, object] = {
            "database": f"sqlite:///{folder}/dlsched.db",
            "folder": str(folder / "etc" / "tls"),
            "denied": str(made.deny_list),
            "operators": [getpass.getuser()],
        }

    def check(self, more: str = "") -> int:
        """Check the file, with more at its end."""
        daemon, *trust = (f"{key} = {value!r}" for key, value in self.values.items())
        self.file.write_text("\n".join(["[daemon]", daemon, "[trust]", *trust, more]))
        return main(["--config", str(self.file), "--check"])


@pytest.fixture
def site(tmp_path: Path) -> Site:
    return Site(tmp_path)


def test_a_configuration_that_is_right_is_fine(
    site: Site, capsys: pytest.CaptureFixture[str]
) -> None:
    assert site.check(f'{NODES}{PARTITION}nodes = "n2"') == 0
    assert capsys.readouterr() == (f"{site.file}: fine\n", "")


@pytest.mark.parametrize("mistake", sorted(MISTAKES))
def test_a_mistake_is_one_line(
    site: Site, capsys: pytest.CaptureFixture[str], mistake: str
) -> None:
    key, value, said = MISTAKES[mistake]
    if key:
        site.values[key] = value
    assert site.check("" if key else str(value)) == 2
    out, err = capsys.readouterr()
    (line,) = err.splitlines()
    assert out == ""
    assert said in line


def test_several_mistakes_are_told_at_once(site: Site, capsys: pytest.CaptureFixture[str]) -> None:
    site.values |= {"denied": "/none/denied", "operators": ["nobody-at-all"]}
    assert site.check() == 2
    assert len(capsys.readouterr().err.splitlines()) == 2
