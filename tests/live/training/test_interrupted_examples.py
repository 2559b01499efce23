"""Each example, preempted, moved and resized by a real cluster, against the one left alone.

The differences are those of the table in docs/frameworks.md.
"""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from dlsched.torture.local_cluster import LocalCluster, eventually

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]

HELD = Path(__file__).with_name("held_program.py")
ROOT = Path(__file__).parents[3]
EXAMPLES, PROGRAMS = ROOT / "examples" / "training", ROOT / "tests" / "job" / "frameworks"


@dataclass(frozen=True, kw_only=True)
class Example:
    """A training and how it is submitted."""

    program: Path
    arguments: str
    submit: str
    says: str = ""  # how the line on stdout begins that tells the weights
    needs: tuple[str, ...] = ("torch",)
    launcher: tuple[str, ...] = ()


CASES = {
    "digits_numpy.py": Example(
        program=EXAMPLES / "digits_numpy.py",
        arguments="--epochs 1 --samples 1024",
        submit="--gpus 1",
        needs=("numpy",),
    ),
    "gloo_gang.py": Example(
        program=EXAMPLES / "gloo_gang.py",
        arguments="--epochs 2 --samples 512",
        submit="--launch gpu --min-gpus 1 --max-gpus 2 --gpus 2",
    ),
    "elastic_images.py": Example(
        program=EXAMPLES / "elastic_images.py",
        arguments="--epochs 3 --samples 512",
        submit="--launch gpu --min-gpus 1 --max-gpus 2 --gpus 2 --fixed-batch",
        says="accuracy",
    ),
    "torchrun/preemptible.py": Example(
        program=EXAMPLES / "torchrun" / "preemptible.py",
        arguments="--epochs 4 --samples 448",
        submit="--launch node --gpus 2 --nodes 1",
        says="weights",
        launcher=("-m", "dlsched.job.torchrun"),
    ),
    "accelerate/preemptible.py": Example(
        program=EXAMPLES / "accelerate" / "preemptible.py",
        arguments="--epochs 3 --samples 448 --cpu",
        submit="--launch gpu --gpus 2",
        says="weights",
        needs=("torch", "accelerate"),
    ),
    "HuggingFace": Example(
        program=PROGRAMS / "huggingface_program.py",
        arguments="{folder}/trainer {folder}/checkpoints 0 4",
        submit="--gpus 1",
        says="end",
        needs=("torch", "transformers", "accelerate"),
    ),
    "Lightning": Example(
        program=PROGRAMS / "lightning_program.py",
        arguments="{folder}/checkpoints 0 stateful",
        submit="--gpus 1",
        says="end",
        needs=("torch", "lightning", "torchdata"),
    ),
}


TAKE_LONG = {  # what each shows on a cluster, test_training_gangs and test_resizing show too
    "gloo_gang.py",
    "elastic_images.py",
    "torchrun/preemptible.py",
    "accelerate/preemptible.py",
    "HuggingFace",
    "Lightning",
}
PARAMETERS = [
    pytest.param(name, marks=pytest.mark.exhaustive) if name in TAKE_LONG else name
    for name in CASES
]


class Training:
    """An example that was submitted, and its output."""

    def __init__(self, cluster: LocalCluster, name: str, purpose: str, steps: str = "") -> None:
        example = CASES[name]
        self.cluster, self.example = cluster, example
        self.folder = cluster.folder / f"{name.replace('/', '-')}-{purpose}"
        self.folder.mkdir()
        arguments = example.arguments.format(folder=self.folder).split()
        program = [str(HELD), str(self.folder), steps, str(example.program), *arguments]
        options = [*example.submit.split(), "--parsable", "--output", f"{self.folder}/%t.out"]
        command = [sys.executable, *example.launcher, *program]
        self.job = int(cluster.cli("submit", *options, "--grace", "120", "--", *command))

    def wait_until_held(self, run: int) -> None:
        """Wait until a run waits for its stop."""

        def is_held() -> bool:
            found = self.cluster.job(self.job)
            assert found.state not in ("COMPLETED", "FAILED"), self.story()
            return (self.folder / f"held-{run}").exists()

        eventually(f"run {run} is held", is_held, within=400)

    def story(self) -> str:
        """What the training and the cluster say."""
        said = [path.read_text()[-3000:] for path in sorted(self.folder.glob("*.out"))]
        return "\n".join([self.cluster.story(self.job), *said])

    def wait_for_end(self) -> None:
        """Wait until it has completed."""
        ended = self.cluster.until(self.job, "COMPLETED", "FAILED", within=600)
        assert ended.state == "COMPLETED", self.story()

    def losses(self) -> list[tuple[int, float]]:
        """Return step and loss of each step that told one."""
        path = self.folder / "losses"
        lines = path.read_text().splitlines() if path.exists() else []
        return [(int(step), float(loss)) for step, loss in map(str.split, lines)]

    def last_words(self) -> list[str]:
        """Return the last line that tells the weights, none where the program tells none."""
        says = self.example.says
        lines = (self.folder / "0.out").read_text().splitlines()
        return [line for line in lines if says and line.startswith(says)][-1:]

    def final_loss(self) -> float:
        """Return the loss that its last words have, else that of its last step."""
        words = self.last_words()
        return float(words[0].split()[-1]) if words else self.losses()[-1][1]


@pytest.fixture(scope="module")
def cluster() -> Iterator[LocalCluster]:
    """Three nodes of two GPUs under a policy that takes turns."""
    with LocalCluster(nodes=3, gpus="2:v100", round={"policy": "las"}) as running:
        yield running


@dataclass(frozen=True, kw_only=True)
class Row:
    """What the page says of an example: the differences of its final loss, as text."""

    preempted: str
    moved: str
    resized: str


def page() -> dict[str, Row]:
    """The table of differences by example."""
    text = (ROOT / "docs" / "frameworks.md").read_text()
    cells = [[cell.strip() for cell in line.split("|")[1:-1]] for line in text.splitlines()]
    return {
        cell[0].strip("`"): Row(preempted=cell[2], moved=cell[3], resized=cell[4])
        for cell in cells
        if len(cell) == 6 and cell[0].strip("`") in CASES
    }


def test_the_page_has_every_example() -> None:
    assert set(page()) == set(CASES)


@pytest.mark.parametrize("name", PARAMETERS)
def test_an_interrupted_example_ends_as_one_that_was_left_alone(
    cluster: LocalCluster, name: str
) -> None:
    for package in CASES[name].needs:
        if importlib.util.find_spec(package) is None:
            pytest.skip(f"{package} is not installed: pip install 'dlsched[frameworks]'")
    told = page()[name]
    whole = Training(cluster, name, "whole")
    whole.wait_for_end()
    assert whole.losses()
    preempted_and_moved(cluster, whole, name)
    assert (told.preempted, told.moved) == ("0.0", "0.0")
    if "--max-gpus" in CASES[name].submit:
        assert resized(cluster, whole, name) <= float(told.resized.removeprefix("at most "))
    else:
        assert told.resized == "-"


def preempted_and_moved(cluster: LocalCluster, whole: Training, name: str) -> None:
    """Run an example in three parts; each step's loss and the weights are the same as in one."""
    parts = Training(cluster, name, "parts", "3,8")  # it stops two steps later, before the last
    parts.wait_until_held(1)
    rival = cluster.submit("true", gpus="6")  # has had nothing yet, so it goes first
    cluster.until(rival, "COMPLETED", within=400)
    parts.wait_until_held(2)
    (left,) = cluster.job(parts.job).nodes
    cluster.cli("drain", left, "--reason", "bad fan", "--now")
    try:
        parts.wait_for_end()
    finally:
        cluster.cli("resume-node", left)
    ended = cluster.job(parts.job)
    assert left not in ended.nodes
    assert (ended.starts, ended.preemptions, ended.migrations, ended.failures) == (3, 1, 1, 0)
    assert parts.losses() == whole.losses()
    assert parts.last_words() == whole.last_words()


def resized(cluster: LocalCluster, whole: Training, name: str) -> float:
    """Run an example on two GPUs, then on one; return the difference of its final loss."""
    parts = Training(cluster, name, "resized", "4")
    parts.wait_until_held(1)
    cluster.cli("admin", "set-policy", "testing-resize", "-o", "sizes=2,1", "-o", "period_s=0")
    parts.wait_for_end()
    cluster.cli("admin", "set-policy", "las")
    ended = cluster.job(parts.job)
    assert (ended.starts, ended.resizes, ended.failures) == (2, 1, 0)
    found = abs(parts.final_loss() - whole.final_loss())
    print(f"{name} resized: {found!r}")
    return found
