"""The page on security names, for each thing that jobs say, the policies that believe it."""

from __future__ import annotations

import importlib
import re
from pathlib import Path

import pytest

from dlsched.policies.registry import find, names

PAGE = (Path(__file__).parents[2] / "docs" / "security.md").read_text()
# where a policy's own modules read what is said; the first words of the table's rows
READ_BY = {
    "how long it takes": r"\"predicted_work\"",
    "steps it has done": r"steps_left|iterations_done|total_iterations",
    "loss": r"\"loss\"",
    "accuracy": r"\"accuracy\"",
    "speed on each number of GPUs": r"perf\.goodput|rate_by_count",
    "use of its GPUs": r"gpu_util",
    "speed on each GPU type": r"weighs_types = True",
}


def source_of(policy: str) -> str:
    """The text of a policy's module, or of its package."""
    file = Path(str(importlib.import_module(find("scheduling", policy).__module__).__file__))
    files = [file] if file.parent.name == "scheduling" else sorted(file.parent.rglob("*.py"))
    return "\n".join(each.read_text() for each in files)


@pytest.mark.parametrize("said", READ_BY)
def test_the_page_names_the_policies_that_believe_what_jobs_say(said: str) -> None:
    [row] = [line for line in PAGE.splitlines() if line.startswith(f"| {said}")]
    believe = {name for name in names("scheduling") if re.search(READ_BY[said], source_of(name))}
    needs = {name for name in believe if "predicted_work" in find("scheduling", name).needs}
    wanted = needs if said == "how long it takes" else believe
    assert set(re.findall(r"`([a-z0-9-]+)`", row.split("|")[3].partition(";")[0])) == wanted
