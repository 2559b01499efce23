"""The version rises with each commit of a checkout, and a build carries it without git."""

from __future__ import annotations

import itertools
import runpy
import shutil
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest
from packaging.version import Version

ROOT = Path(__file__).parents[1]


class Checkout:
    """A checkout of a project that has nothing but what its version is made of."""

    def __init__(self, folder: Path) -> None:
        """Make it, with one commit."""
        self.folder = folder
        (folder / "dlsched").mkdir(parents=True)
        for name in ("__init__.py", "version.py", "RELEASE"):
            shutil.copy(ROOT / "dlsched" / name, folder / "dlsched" / name)
        shutil.copy(ROOT / "pyproject.toml", folder)
        shutil.copy(ROOT / "README.md", folder)
        (folder / "simulate").mkdir()
        (folder / "simulate" / "__init__.py").touch()
        (folder / ".gitignore").write_text("/dlsched/BUILT\n")
        self.git("init", "-q")
        self.commit("first")

    def git(self, *words: str) -> None:
        author = ("-c", "user.name=a", "-c", "user.email=a@localhost", "-c", "commit.gpgsign=false")
        subprocess.run(["git", *author, *words], cwd=self.folder, check=True)

    def commit(self, text: str) -> None:
        self.git("add", "-A")
        self.git("commit", "-q", "--allow-empty", "-m", text)

    def release(self, number: str) -> None:
        (self.folder / "dlsched" / "RELEASE").write_text(f"{number}\n")
        self.commit("a release")

    @property
    def version(self) -> str:
        """What is found in a process of its own, since it is counted once."""
        found: str = runpy.run_path(str(self.folder / "dlsched" / "version.py"))["version"]()
        return found


@pytest.fixture
def checkout(tmp_path: Path) -> Checkout:
    if shutil.which("git") is None:
        pytest.skip("git is not installed")
    return Checkout(tmp_path / "checkout")


def test_it_rises_with_each_commit_and_with_each_release(checkout: Checkout) -> None:
    checkout.release("1.0.0")
    seen = [checkout.version]
    for text in ("second", "third"):
        checkout.commit(text)
        seen.append(checkout.version)
    checkout.release("1.0.1")
    seen.append(checkout.version)
    assert seen == ["1.0.0", "1.0.0.post1", "1.0.0.post2", "1.0.1"]
    assert [str(Version(each)) for each in seen] == seen
    assert sorted(seen, key=Version) == seen
    if shutil.which("dpkg") is not None:  # apt's order is another one
        for old, new in itertools.pairwise(seen):
            subprocess.run(["dpkg", "--compare-versions", new, "gt", old], check=True)


def test_a_checkout_whose_commits_cannot_be_counted_says_so(
    checkout: Checkout, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path / "empty"))
    assert checkout.version == "0.1.0+unknown"


def test_a_wheel_and_what_an_sdist_makes_have_the_version_of_the_checkout(
    checkout: Checkout, tmp_path: Path
) -> None:
    pytest.importorskip("hatchling", reason="building needs hatchling")
    checkout.release("1.0.0")
    checkout.commit("second")
    out = tmp_path / "out"

    def build(folder: Path, kind: str) -> Path:
        words = [sys.executable, "-m", "hatchling", "build", "-t", kind, "-d", str(out)]
        subprocess.run(words, cwd=folder, check=True, capture_output=True)
        return max(out.iterdir(), key=lambda path: path.stat().st_mtime_ns)

    sdist = build(checkout.folder, "sdist")
    with tarfile.open(sdist) as content:
        content.extractall(tmp_path / "sdist", filter="data")
    (unpacked,) = (tmp_path / "sdist").iterdir()
    for place, folder in enumerate((checkout.folder, unpacked)):
        wheel = build(folder, "wheel")
        assert wheel.name == "dlsched-1.0.0.post1-py3-none-any.whl"
        site = tmp_path / f"site{place}"
        with zipfile.ZipFile(wheel) as content:
            content.extractall(site)
        code = "import dlsched; print(dlsched.__version__)"
        words = [sys.executable, "-S", "-c", code]
        said = subprocess.run(words, cwd=site, check=True, capture_output=True, text=True).stdout
        assert said == "1.0.0.post1\n"


def test_the_number_of_the_release_stands_in_one_file() -> None:
    release = (ROOT / "dlsched" / "RELEASE").read_text().strip()
    places = [
        ROOT / "pyproject.toml",
        ROOT / "packaging/job/pyproject.toml",
        ROOT / "dlsched/__init__.py",
    ]
    assert not [place.name for place in places if f'"{release}"' in place.read_text()]
