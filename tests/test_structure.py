"""The shape of the project itself: floors, names, docstrings, what a light command may import."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from token import NAME
from tokenize import tokenize

import pytest

ROOT = Path(__file__).parent.parent
PACKAGES = ("dlsched", "simulate", "benchmarks", "examples", "tests")
TEXTS = {".py", ".md", ".toml", ".yaml", ".yml", ".proto", ".html", ".css", ".js", ""}
NAMELESS = {"utils", "util", "helpers", "helper", "common", "manager", "managers", "misc"}
# written in pieces, so that this file passes its own test
MACHINE_PATH = re.compile(r"(?<![\w.~$}/-])/" + r"(work|root|home/\w+)/")
SCRATCH_PATH = re.compile(r"(?<![\w.~$}/-])/" + r"tmp/")


def files(*roots: str) -> Iterator[Path]:
    """Every file under some folders of the project, hidden and generated ones left out."""
    for root in roots:
        for path in sorted((ROOT / root).rglob("*")):
            inside = path.relative_to(ROOT).parts
            built = any(part.startswith(".") or part == "__pycache__" for part in inside)
            if path.is_file() and not built:
                yield path


def modules(*roots: str) -> list[Path]:
    return [path for path in files(*roots) if path.suffix == ".py"]


def shown(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


@cache
def text(path: Path) -> str:
    """What a file has: several tests read all of them."""
    return path.read_text()


IMPORT = re.compile(
    r"""^(?P<indent>[ ]*) (?: from[ ](?P<of>[\w.]+)[ ]import\b | import[ ](?P<names>[\w., ]+)
    | \w+[ ]=[ ]pytest\.importorskip\("(?P<wanted>[\w.]+)" )""",
    re.MULTILINE | re.VERBOSE,
)


def imported(path: Path, *, at_its_beginning: bool = False) -> Iterator[str]:
    """Full names of the modules that a file imports, or does when it is loaded, as folders.

    Found by line: parsing every file takes seconds.
    """
    for found in IMPORT.finditer(re.sub(r'(?s)""".*?"""', '""', text(path))):
        if not (at_its_beginning and found["indent"]):
            for name in (found["of"] or found["names"] or found["wanted"]).split(","):
                yield name.split()[0].replace(".", "/")


def test_import_linter_keeps_its_contracts() -> None:
    pytest.importorskip("importlinter")
    found = subprocess.run(
        [sys.executable, "-c", "from importlinter.cli import lint_imports_command as f; f()"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert found.returncode == 0, found.stdout + found.stderr


def test_product_code_imports_neither_tests_nor_benchmarks() -> None:
    broken = [
        f"{shown(path)} imports {name}"
        for path in modules("dlsched", "simulate")
        for name in imported(path)
        if name.split("/")[0] in {"tests", "benchmarks", "examples"}
    ]
    assert not broken


def test_every_module_has_a_name_that_says_what_it_is() -> None:
    assert not [shown(path) for path in files(*PACKAGES) if path.stem in NAMELESS]


DOCSTRING = re.compile(r'(#.*\n|\s)*"""')


def test_every_module_has_a_docstring() -> None:
    silent = [
        shown(path)
        for path in modules("dlsched", "simulate", "benchmarks", "examples")
        if text(path).strip() and not DOCSTRING.match(text(path))
    ]
    assert not silent


def test_no_file_mentions_a_path_of_one_machine() -> None:
    tops = [path for path in ROOT.iterdir() if path.is_file() and path.suffix in TEXTS]
    broken = []
    for path in [*tops, *files(*PACKAGES, "docs", "packaging", "proto")]:
        if path.suffix not in TEXTS or path.name.startswith("."):
            continue
        patterns = [MACHINE_PATH, SCRATCH_PATH] if path.suffix == ".md" else [MACHINE_PATH]
        for number, line in enumerate(path.read_text(errors="replace").splitlines(), 1):
            if any(pattern.search(line) for pattern in patterns):
                broken.append(f"{shown(path)}:{number}: {line.strip()}")
    assert not broken


@pytest.mark.parametrize("words", [["--help"], ["--version"], ["replay", "--help"]], ids=" ".join)
def test_a_light_command_imports_nothing_heavy(words: list[str]) -> None:
    script = (
        "import sys\n"
        "from dlsched.cli.main import run\n"
        f"sys.argv = ['dlsched', *{words!r}]\n"
        "try:\n"
        "    run()\n"
        "finally:\n"
        "    print(*sys.modules, file=sys.stderr)\n"
    )
    found = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=False
    )
    assert found.returncode == 0, found.stderr
    loaded = set(found.stderr.split())
    assert "dlsched.cli.main" in loaded
    assert not loaded & {"numpy", "sqlalchemy", "matplotlib", "polars", "distributed"}


def test_collecting_the_tests_imports_no_framework() -> None:
    """PyTorch alone costs each worker seconds; fixtures and tests import it."""
    begins = {
        shown(path).removesuffix(".py"): set(imported(path, at_its_beginning=True))
        for path in modules("dlsched/job", "simulate", "tests")
    }
    slow = {"torch", "torchdata", "transformers", "accelerate", "lightning"}
    found: set[str] = set()
    while True:
        more = {
            module
            for module, names in begins.items()
            if any(name.partition("/")[0] in slow or name in found for name in names)
        }
        if more == found:
            break
        found = more
    assert "dlsched/job/torch" in found
    collected = [name for name in found if Path(name).name.startswith(("test_", "conftest"))]
    assert not collected


def product_files_with(word: str) -> list[str]:
    """The hand-written files of the product that name a field of a job."""
    found = [*(ROOT / "proto").rglob("*.proto")]
    for root in ("dlsched", "simulate", "docs"):
        found += [*(ROOT / root).rglob("*.py"), *(ROOT / root).rglob("*.md")]
    return sorted(
        str(path.relative_to(ROOT))
        for path in found
        if path.parent.name != "v1" or path.suffix == ".proto"
        if word in path.read_text()
    )


def test_a_field_that_policies_see_is_written_down_once_for_each_form() -> None:
    """In table, typed forms and proto; else only what uses it: policies, replays and pages.

    The table of options for plain lines is made from the first.
    """
    curves = ("dlsched/daemon/control/submission/slas.py", "dlsched/core/job_rewards.py")
    users = ("dlsched/policies/", "simulate/", "docs/", *curves)
    told = [path for path in product_files_with("deadline_value") if not path.startswith(users)]
    assert told == [
        "dlsched/cli/plain_options.py",
        "dlsched/jobs/fields.py",
        "dlsched/jobs/typed_forms.py",
        "proto/dlsched/v1/control.proto",
    ]


def test_derived_forms_of_a_job_name_no_field_that_they_only_carry() -> None:
    """A share of a GPU means something to ledger, agent, walk and `show`; others pass it on."""
    derived = (
        "dlsched/cli/", "dlsched/client/record", "dlsched/client/submission/values",
        "dlsched/client/submission/request", "dlsched/daemon/control/views", "dlsched/db/records",
        "dlsched/daemon/control/submission/updating", "dlsched/daemon/live/job_columns",
        "dlsched/rpc/job", "simulate/traces/formats",
    )  # fmt: skip
    named = [path for path in product_files_with("gpu_share") if path.startswith(derived)]
    assert named == ["dlsched/cli/jobs/show.py"]


def test_what_reproduces_published_programs_is_not_among_core_policies_and_daemon() -> None:
    """They may name such a program where a rule needs its reason; the rules are in the replays."""
    told = [
        f"{shown(path)}: {line.strip()}"
        for path in modules("dlsched/core", "dlsched/policies", "dlsched/daemon")
        for line in text(path).splitlines()
        if "artifact" in line or "published" in line
    ]
    assert len(told) < 30, "\n".join(told)


MOST_ANY = 249  # lines of daemon, wire and job library; lower it


def untyped(path: Path) -> int:
    """Lines of a file that say `Any`, imports left out."""
    with path.open("rb") as file:
        names = [t for t in tokenize(file.readline) if t.type == NAME and t.string == "Any"]
    return len({t.start[0] for t in names if not t.line.lstrip().startswith(("from", "import"))})


def test_what_is_known_of_a_type_is_said() -> None:
    """`Any` is left for JSON, for columns by name, and for what PyTorch and others leave open."""
    found = {
        shown(path): untyped(path)
        for path in modules("dlsched/daemon", "dlsched/rpc", "dlsched/job")
        if "_pb2" not in path.name
    }
    assert sum(found.values()) <= MOST_ANY, {path: n for path, n in found.items() if n}
