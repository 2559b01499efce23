"""Jobs in containers: typed at the command line, run by a real agent.

Where Apptainer is installed, it runs a job here. Elsewhere a program stands in for it: it writes
down how it was called, and runs the command on the machine itself.
"""

from __future__ import annotations

import json
import os
import shutil
import stat
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from dlsched.torture.local_cluster import LocalCluster

pytestmark = pytest.mark.slow

STAND_IN = """#!{python}
import json, os, sys
words = sys.argv[1:]
with open({told!r}, "a") as file:
    file.write(json.dumps({{"words": words, "variables": dict(os.environ)}}) + "\\n")
image = next(k for k, word in enumerate(words) if word.endswith(".sif"))
os.execvp(words[image + 1], words[image + 1 :])
"""


class Contained(LocalCluster):
    """Two nodes, of which the second one has no program for containers."""

    def __init__(self, tool: str = "apptainer") -> None:
        super().__init__(nodes=2)
        self.told = self.folder / "told.jsonl"
        (self.folder / "bin").mkdir()
        self.tool = self.folder / "bin" / tool
        self.tool.write_text(STAND_IN.format(python=sys.executable, told=str(self.told)))
        self.tool.chmod(self.tool.stat().st_mode | stat.S_IXUSR)
        (self.folder / "image.sif").write_text("an image\n")

    def _agent_settings(self, name: str) -> dict[str, object]:
        found = super()._agent_settings(name)
        if name == "n2":
            return {**found, "container_tool": "none"}
        is_named = self.tool.name == "enroot"  # of two programs on the path, Apptainer is taken
        return {**found, "container_tool": str(self.tool)} if is_named else found

    def start_agent(self, name: str, **environment: str) -> subprocess.Popen[bytes]:
        """As for any node, with the program on the path."""
        path = f"{self.tool.parent}:{os.environ['PATH']}"
        return super().start_agent(name, **{"PATH": path, **environment})

    def calls(self) -> list[dict[str, object]]:
        """How the program was called, each time."""
        return [json.loads(line) for line in self.told.read_text().splitlines()]


@pytest.fixture(scope="module")
def contained() -> Iterator[Contained]:
    """The nodes."""
    with Contained() as cluster:
        yield cluster


def _submit(cluster: Contained, *words: str) -> int:
    return int(cluster.cli("submit", "--parsable", *words).split(";")[0])


def test_a_script_runs_in_its_container_with_gpus_mounts_and_environment(
    contained: Contained,
) -> None:
    script = contained.folder / "job.sh"
    script.write_text(
        "#!/bin/bash\n#SBATCH --container=image.sif\n#SBATCH --container-mounts=/etc:/mnt:ro,/opt\n"
        "#SBATCH --gpus=2 -o out.txt\necho $GREETING $DLSCHED_JOB_ID in $PWD; exit 3\n"
    )
    done = contained.run("submit", "--wait", "--export", "ALL,GREETING=hello", str(script))
    assert done.returncode == 3
    job = int((contained.folder / "out.txt").read_text().split()[1])
    assert (contained.folder / "out.txt").read_text() == f"hello {job} in {contained.folder}\n"
    call = contained.calls()[-1]
    words, variables = call["words"], call["variables"]
    assert isinstance(words, list)
    assert isinstance(variables, dict)
    assert words[:2] == ["exec", "--nv"]
    binds = [words[k + 1] for k, word in enumerate(words) if word == "--bind"]
    assert "/etc:/mnt:ro" in binds
    assert "/opt:/opt:rw" in binds
    assert f"{contained.folder}:{contained.folder}:rw" in binds
    assert any(str(Path(variables["DLSCHED_CTL_SOCK"]).parent) in bind for bind in binds)
    assert words[words.index("--pwd") :][1:3] == [str(contained.folder), "image.sif"]
    assert variables["CUDA_VISIBLE_DEVICES"].count("GPU-") == 2
    assert "BASH_ENV" not in variables


def test_only_nodes_with_a_program_for_containers_are_chosen(contained: Contained) -> None:
    jobs = [_submit(contained, "--container", "image.sif", "--", "true") for _ in range(4)]
    assert {contained.until(job, "COMPLETED").nodes for job in jobs} == {("n1",)}
    refused = contained.run("submit", "--container", "image.sif", "-w", "n2", "--", "true")
    assert refused.returncode == 1
    assert len(refused.stderr.splitlines()) == 1
    assert "0 of that kind (on n2, with Apptainer or enroot)" in refused.stderr
    assert "container" in contained.cli("nodes", "--json")


def test_each_rank_has_its_container(contained: Contained) -> None:
    before = len(contained.calls())
    words = ("--launch", "gpu", "--gpus", "2", "-o", "ranks.txt", "--container", "image.sif")
    job = _submit(contained, *words, "--", "sh", "-c", "echo rank $RANK")
    contained.until(job, "COMPLETED")
    assert sorted((contained.folder / "ranks.txt").read_text().splitlines()) == [
        "0: rank 0",
        "1: rank 1",
    ]
    assert len(contained.calls()) == before + 2


def test_a_job_without_gpus_gets_none_in_its_container(contained: Contained) -> None:
    job = _submit(contained, "--gpus", "0", "--container", "image.sif", "--", "true")
    contained.until(job, "COMPLETED")
    words = contained.calls()[-1]["words"]
    assert isinstance(words, list)
    assert "--nv" not in words


def test_an_image_that_is_not_there_is_told_where_users_look(contained: Contained) -> None:
    job = _submit(contained, "--container", "lost.sif", "--", "true")
    contained.until(job, "FAILED")
    why = "cannot open container lost.sif: No such file or directory"
    assert why in contained.cli("show", str(job))


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (("--container-mounts", "/etc"), 2, "there is no --container"),
        (("--container", "i.sif", "--container-mounts", "etc:/mnt"), 2, "no path from the root"),
        (("--container", "i.sif", "--container-mounts", "/a/../b"), 2, "no path from the root"),
        (("--container", "i.sif", "--container-mounts", "/a:/b:x"), 2, "comes ro or rw"),
        (("--container=--nv",), 2, "is not an image"),
    ],
)
def test_what_is_no_container_is_refused(
    contained: Contained, words: tuple[str, ...], code: int, said: str
) -> None:
    refused = contained.run("submit", *words, "--", "true")
    assert refused.returncode == code
    assert said in refused.stderr


def test_a_cluster_without_containers_refuses_them() -> None:
    class Bare(LocalCluster):
        def _agent_settings(self, name: str) -> dict[str, object]:
            return {**super()._agent_settings(name), "container_tool": "none"}

    with Bare(nodes=1) as cluster:
        refused = cluster.run("submit", "--container", "image.sif", "--", "true")
        assert refused.returncode == 1
        assert "no node here has Apptainer or enroot" in refused.stderr
        cluster.cli("submit", "--container", "image.sif", "--open-ended", "--", "true")


def test_enroot_is_called_as_it_wants(tmp_path: Path) -> None:
    with Contained("enroot") as cluster:
        words = ("--container", "image.sif", "--container-mounts", "/etc:/mnt:ro")
        job = _submit(cluster, *words, "--", "echo", "hello")
        cluster.until(job, "COMPLETED")
        called = cluster.calls()[-1]["words"]
        variables = cluster.calls()[-1]["variables"]
        assert isinstance(called, list)
        assert isinstance(variables, dict)
        assert called[0] == "start"
        assert called[-2:] == ["echo", "hello"]
        assert "/etc:/mnt:none:x-create=auto,bind,ro" in called
        assert "DLSCHED_JOB_ID" in called
        assert variables["NVIDIA_VISIBLE_DEVICES"] == variables["CUDA_VISIBLE_DEVICES"]


def test_a_real_apptainer_runs_a_job(tmp_path: Path) -> None:
    """A root folder as a sandbox image: the machine's own programs, without a download."""
    tool = shutil.which("apptainer") or shutil.which("singularity")
    if tool is None:
        pytest.skip("Apptainer is not installed; Debian and the package indexes have none")
    image = tmp_path / "image"
    image.mkdir()
    tried = subprocess.run(
        [tool, "exec", "--bind", "/usr:/usr,/lib:/lib,/bin:/bin", image, "true"], check=False
    )
    if tried.returncode:
        pytest.skip("Apptainer cannot run here: it needs a user namespace")
    with LocalCluster(nodes=1) as cluster:
        mounts = "/usr,/lib,/bin,/lib64"
        words = ("--container", str(image), "--container-mounts", mounts, "-o", "out.txt")
        job = int(cluster.cli("submit", "--parsable", *words, "--", "pwd").split(";")[0])
        cluster.until(job, "COMPLETED")
        assert (cluster.folder / "out.txt").read_text() == f"{cluster.folder}\n"
