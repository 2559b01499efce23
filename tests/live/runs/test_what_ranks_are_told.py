"""What each process is told of its rank, by every way to start it: tables in docs/node-agent.md."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from dlsched.torture.local_cluster import LocalCluster

pytestmark = pytest.mark.slow

PAGE = (Path(__file__).parents[3] / "docs" / "node-agent.md").read_text()
PROGRAM = Path(__file__).with_name("telling_program.py")
RUN = f"{sys.executable} -m dlsched run"
BIN = Path(sys.executable).parent


def table(heading: str) -> dict[str, dict[str, str]]:
    """The table whose first column has this heading and whose next column this name."""
    lines = PAGE[PAGE.index(f"| variable | {heading}") :].split("\n\n")[0].splitlines()
    rows = [[cell.strip().strip("`") for cell in line.strip("|").split("|")] for line in lines]
    ways = [way.replace("`", "") for way in rows[0][1:]]
    return {
        way: {row[0]: row[place] for row in rows[2:]} for place, way in enumerate(ways, start=1)
    }


BY_MODE = table("batch, shell")
BY_LAUNCHER = table("`torchrun`")


@pytest.fixture(scope="module")
def pair() -> Iterator[LocalCluster]:
    """Two nodes of two GPUs."""
    with LocalCluster(nodes=2, gpus="2:v100") as running:
        yield running


def told(pair: LocalCluster, script: str, names: list[str], **options: object) -> dict[str, str]:
    """What the processes of a job say, as the tables write it."""
    place = pair.folder / f"told-{len(list(pair.folder.glob('told-*')))}"
    place.mkdir()
    exports = f"export TOLD={place} NAMES='{' '.join(names)}' PATH={BIN}:$PATH"
    job = pair.submit(f"{exports}\n{script}", **options)
    ended = pair.until(job, "COMPLETED", "FAILED")
    assert ended.state == "COMPLETED", pair.story(job)
    lines = [path.read_text().splitlines() for path in sorted(place.iterdir())]
    columns = {name: [line[at] for line in lines] for at, name in enumerate(names)}
    return {"processes": str(len(lines))} | {name: _cell(each) for name, each in columns.items()}


def _cell(values: list[str]) -> str:
    """The values of a variable in all processes, as a table writes them."""
    if set(values) == {"-"}:
        return "-"
    if not all(value.isdigit() and int(value) < 100 for value in values):
        return "set" if "-" not in values else "mixed"
    numbers = sorted({int(value) for value in values})
    return str(numbers[0]) if len(numbers) == 1 else f"{numbers[0]}-{numbers[-1]}"


@pytest.mark.parametrize(
    ("way", "mode", "script"),
    [
        ("batch, shell", "batch", f"{sys.executable} {PROGRAM}"),
        ("node", "node", f"{sys.executable} {PROGRAM}"),
        ("gpu", "gpu", f"{sys.executable} {PROGRAM}"),
        ("dlsched run, srun -n 4", "batch", f"{RUN} {sys.executable} {PROGRAM}"),
        ("dlsched run, srun -n 4", "batch", f"srun -n 4 {sys.executable} {PROGRAM}"),
    ],
    ids=["batch", "node", "gpu", "run", "srun"],
)
def test_what_a_process_is_told_by_launch_mode(
    pair: LocalCluster, way: str, mode: str, script: str
) -> None:
    wanted = BY_MODE[way]
    names = [name for name in wanted if name != "processes"]
    found = told(pair, script, names, nodes="2", gpus_per_node="2", launch=mode)
    assert found == wanted


def test_a_batch_script_is_no_rank_though_the_shell_of_its_submission_was_one(
    pair: LocalCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in (
        ("RANK", "1"),
        ("LOCAL_RANK", "1"),
        ("NODE_RANK", "0"),
        ("WORLD_SIZE", "2"),
    ):
        monkeypatch.setenv(name, value)
    out = pair.folder / "of-a-rank.out"
    program = "from dlsched.job import attach; j = attach(); print(j.rank, j.world_size)"
    words = f"echo ${{RANK:--}} $WORLD_SIZE\n{sys.executable} -c '{program}'"
    job = pair.submit(words, gpus="1", launch="batch", output=str(out))
    pair.until(job, "COMPLETED")
    assert out.read_text() == "- 2\n0 1\n"


def test_a_shell_is_told_what_a_batch_script_is_told(pair: LocalCluster) -> None:
    job = pair.submit("exec sleep 600", nodes="2", gpus_per_node="2", launch="gpu")
    pair.until(job, "RUNNING")
    words = [name for name, cell in BY_MODE["batch, shell"].items() if name != "processes"]
    texts = pair.cli(
        "attach", str(job), "--", "sh", "-c", f"echo {' '.join(f'${{{w}:--}}' for w in words)}"
    )
    cells = dict(zip(words, texts.split(), strict=True))
    del cells["SLURM_NTASKS"]  # of the ranks that the job has
    assert cells.items() <= BY_MODE["batch, shell"].items()
    pair.cli("cancel", str(job))


@pytest.mark.parametrize(
    ("way", "package", "command"),
    [
        ("torchrun", "torch", "torchrun --nproc-per-node 2 {program}"),
        (
            "python -m dlsched.job.torchrun",
            "torch",
            "{python} -m dlsched.job.torchrun {program}",
        ),
        (
            "accelerate launch",
            "accelerate",
            "accelerate launch --multi_gpu --num_processes 2 {program}",
        ),
        ("Lightning", "lightning", "{python} {program} lightning"),
        ("mp.spawn", "torch", "{python} {program} spawn"),
    ],
)
def test_what_the_ranks_of_a_launcher_are_told(
    pair: LocalCluster, way: str, package: str, command: str
) -> None:
    if importlib.util.find_spec(package) is None:
        pytest.skip(f"{package} is not installed")
    wanted = BY_LAUNCHER[way]
    names = [name for name in wanted if name != "processes"]
    script = command.format(program=PROGRAM, python=sys.executable)
    assert told(pair, script, names, gpus="2", launch="batch") == wanted


@pytest.mark.skipif(not importlib.util.find_spec("torch"), reason="PyTorch is not installed")
@pytest.mark.parametrize(("chosen", "found"), [("", "45"), ("7", "7")])
def test_torchrun_waits_for_its_ranks_as_long_as_the_grace_unless_the_user_says_otherwise(
    pair: LocalCluster, monkeypatch: pytest.MonkeyPatch, chosen: str, found: str
) -> None:
    name = "TORCH_ELASTIC_SHUTDOWN_TIMEOUT"
    monkeypatch.delenv(name, raising=False)
    if chosen:
        monkeypatch.setenv(name, chosen)
    out = pair.folder / f"waits{chosen}.out"
    program = (
        "from torch.distributed.launcher.api import LaunchConfig; "
        "print(LaunchConfig(min_nodes=1, max_nodes=1, nproc_per_node=1).shutdown_timeout)"
    )
    job = pair.submit(f"{sys.executable} -c '{program}'", gpus="1", grace="45", output=str(out))
    pair.until(job, "COMPLETED")
    assert out.read_text().split() == [found]
