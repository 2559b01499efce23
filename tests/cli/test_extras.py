"""Without an extra, a command that needs it says what installs it."""

from __future__ import annotations

import importlib.metadata
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from dlsched.cli.extras import MODULES

PROJECT = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text())["project"]
# a finder that finds none of these modules, as if they were not installed
RUN = """
import sys
gone = set(sys.argv.pop(1).split(","))
class Missing:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in gone:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
sys.meta_path.insert(0, Missing())
import importlib.util
found = importlib.util.find_spec
importlib.util.find_spec = lambda name, package=None: None if name in gone else found(name, package)
from dlsched.cli.main import run
run()
"""


@pytest.mark.parametrize("extra", MODULES)
def test_the_modules_are_those_of_the_packages_that_the_extra_names(extra: str) -> None:
    named = PROJECT["optional-dependencies"][extra]
    packages = {re.split(r"[\[<>=!~ ]", text)[0].lower() for text in named}
    provided = importlib.metadata.packages_distributions()
    if extra == "torch" and "torch" not in provided:
        pytest.skip("PyTorch is not installed")
    found = {
        name.lower().replace("_", "-") for module in MODULES[extra] for name in provided[module]
    }
    assert found == packages


@pytest.mark.parametrize(
    ("gone", "words", "line"),
    [
        (
            "torch",
            "train dl2 jobs.csv --out DIR/net --cluster 1x1",
            "PyTorch is not installed: pip install 'dlsched[torch]'",
        ),
        ("pynvml", "agent", "the agent is not installed: pip install 'dlsched[agent]'"),
        ("grpc_health", "daemon", "the daemon is not installed: pip install 'dlsched[daemon]'"),
        ("grpc_health", "quickstart", "the daemon is not installed: pip install 'dlsched[live]'"),
        (
            "grpc_health,pynvml",
            "quickstart",
            "the daemon and the agent are not installed: pip install 'dlsched[live]'",
        ),
        (
            "cryptography",
            "admin init DIR/new --node n1",
            "cryptography is not installed: pip install 'dlsched[live]'",
        ),
    ],
)
def test_a_command_says_what_installs_what_it_needs(
    gone: str, words: str, line: str, tmp_path: Path
) -> None:
    called = subprocess.run(
        [sys.executable, "-c", RUN, gone, *words.replace("DIR", str(tmp_path)).split()],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert (called.returncode, called.stdout) == (1, "")
    assert called.stderr == f"dlsched: {line}\n"
    assert not list(tmp_path.iterdir())
