"""Ranks that share an output file: whole lines with labels, nothing lost, each rank's own again."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import psutil
import pytest

from dlsched.torture.local_cluster import LocalCluster, eventually

pytestmark = pytest.mark.slow

GANG = ("--launch", "gpu", "-N", "2", "--gpus-per-node", "2")
FLOOD = """
import hashlib, os, random
rank, chance, said = int(os.environ["RANK"]), random.Random(os.environ["RANK"]), hashlib.sha256()
for _ in range(300):
    data = chance.randbytes(chance.randrange(20_000)).replace(b"\\r", b"") + b"\\n"
    said.update(data)
    while data:  # in pieces that end anywhere
        data = data[os.write(chance.choice((1, 2)), data[:chance.randrange(1, 70_000)]):]
open(f"{os.environ['SUMS']}/{rank}", "w").write(said.hexdigest())
"""


@pytest.fixture(scope="module")
def cluster() -> Iterator[LocalCluster]:
    """Two nodes of two GPUs."""
    with LocalCluster(nodes=2, gpus="2:v100") as running:
        yield running


def started(cluster: LocalCluster, script: str, *options: str) -> int:
    """The id of a gang of four ranks that run a shell script, typed as a user types it."""
    out = () if "-o" in options else ("-o", f"{cluster.out}/%j.out")
    return int(
        cluster.cli("submit", "--parsable", *GANG, *out, *options, "--", "/bin/sh", "-c", script)
    )


def written(cluster: LocalCluster, job: int, rank: int | None = None) -> list[str]:
    with cluster.client() as client:
        return b"".join(client.logs(job, rank=rank)).decode().splitlines()


def test_each_line_has_its_rank_and_logs_shows_those_of_one(cluster: LocalCluster) -> None:
    script = "for k in 1 2 3; do echo out $k; echo err $k >&2; sleep 0.1; done; printf end-$RANK"
    job = started(cluster, script)
    followed = cluster.cli("logs", str(job), "-f", "--rank", "2")
    cluster.until(job, "COMPLETED")
    own = [f"{stream} {k}" for k in (1, 2, 3) for stream in ("out", "err")]
    lines = cluster.output(job).splitlines()
    for rank in range(4):
        wanted = [*own, f"end-{rank}"]
        assert [line[3:] for line in lines if line.startswith(f"{rank}: ")] == wanted
        assert written(cluster, job, rank) == wanted
    assert len(lines) == 4 * 7
    assert followed.splitlines() == [*own, "end-2"]
    assert cluster.cli("logs", str(job), "--rank", "1", "-n", "2") == "err 3\nend-1\n"
    assert sorted(written(cluster, job)) == sorted(lines)

    wrong = cluster.run("logs", str(job), "--rank", "4")
    assert (wrong.returncode, wrong.stdout) == (1, "")
    assert wrong.stderr == f"dlsched: rank 4: run 1 of job {job} has ranks 0 to 3\n"
    wrong = cluster.run("logs", str(job), "--node", "n9")
    assert wrong.stderr.startswith(f"dlsched: node n9: run 1 of job {job} is on n")


def test_files_of_one_rank_have_no_labels_unless_they_are_wanted(cluster: LocalCluster) -> None:
    jobs = {
        pattern: started(cluster, "echo $RANK", "-o", f"{cluster.out}/%j.{pattern}", *options)
        for pattern, options in (("%2t", ()), ("with.%t", ["--label"]), ("without", ["--no-label"]))
    }
    for job in jobs.values():
        cluster.until(job, "COMPLETED")
    for rank in range(4):
        assert (cluster.out / f"{jobs['%2t']}.{rank:02}").read_text() == f"{rank}\n"
        assert (cluster.out / f"{jobs['with.%t']}.with.{rank}").read_text() == f"{rank}: {rank}\n"
        for pattern in ("%2t", "with.%t"):
            assert written(cluster, jobs[pattern], rank) == [str(rank)]
    assert sorted(written(cluster, jobs["without"])) == ["0", "1", "2", "3"]
    done = cluster.run("submit", "--label", "--wrap", "true")
    assert done.returncode == 2
    assert "--label: only with --launch node or gpu" in done.stderr


def test_a_flood_of_bytes_arrives_to_the_last(cluster: LocalCluster) -> None:
    program, sums = cluster.folder / "flood.py", cluster.folder / "sums"
    program.write_text(FLOOD)
    sums.mkdir()
    job = started(
        cluster, f"exec {sys.executable} {program}", "--export", f"SUMS={sums}", "-o",
        f"{cluster.out}/%j.%n.out",
    )  # fmt: skip
    cluster.until(job, "COMPLETED")
    for node in (0, 1):
        said = {rank: hashlib.sha256() for rank in (2 * node, 2 * node + 1)}
        for line in (cluster.out / f"{job}.{node}.out").read_bytes().split(b"\n")[:-1]:
            said[int(line[:1])].update(line[3:] + b"\n")
            assert line[1:3] == b": "
        for rank, each in said.items():
            assert each.hexdigest() == (sums / str(rank)).read_text()


def test_what_ranks_wrote_before_a_cancel_is_in_the_file(cluster: LocalCluster) -> None:
    """Ranks 0 and 1 say good-bye at TERM; ranks 2 and 3 ignore it and write until KILL."""
    script = (
        "trap 'trap \"\" TERM; [ $RANK -lt 2 ] && seq -f bye-%g 3000 && exit 143' TERM; k=0; "
        f"while :; do k=$((k+1)); echo line-$k; echo $k >{cluster.out}/last.$RANK; done"
    )
    job = started(cluster, script, "--grace", "6")
    last = [cluster.out / f"last.{rank}" for rank in range(4)]
    eventually("all write", lambda: all(each.exists() for each in last))
    cluster.cli("cancel", str(job))
    cluster.until(job, "CANCELLED")
    for rank in range(4):
        lines = written(cluster, job, rank)
        byes = [line for line in lines if line.startswith("bye-")]
        assert byes == ([f"bye-{k}" for k in range(1, 3001)] if rank < 2 else [])
        counted = [line for line in lines if line.startswith("line-")]
        assert counted == [f"line-{k}" for k in range(1, len(counted) + 1)]
        assert len(counted) >= int(last[rank].read_text() or 0)


def test_a_killed_output_writer_harms_no_rank(cluster: LocalCluster) -> None:
    go = cluster.folder / "go"
    script = f"echo one; while [ ! -e {go} ]; do sleep 0.05; done; echo two"
    job = started(cluster, script)
    file = cluster.out / f"{job}.out"
    eventually("all wrote", lambda: file.exists() and file.read_text().count("one") == 4)

    def writers() -> list[psutil.Process]:
        return [each for each in psutil.process_iter() if _writes(each, file)]

    killed = writers()
    assert len(killed) == 2  # one on each node
    for each in killed:
        each.kill()
    eventually("others are there", lambda: len(set(writers()) - set(killed)) == 2)
    go.touch()
    cluster.until(job, "COMPLETED")
    assert sorted(file.read_text().splitlines()) == sorted(
        f"{rank}: {word}" for rank in range(4) for word in ("one", "two")
    )


def test_what_was_written_before_a_keeper_was_killed_stays_in_the_file(
    cluster: LocalCluster,
) -> None:
    """The other node loses nothing; here the kernel may kill the writer with its keeper."""
    said = f"{cluster.out}/keeper-last"
    script = f"k=0; while :; do k=$((k+1)); echo line-$k; echo $k >{said}.$RANK; done"
    job = started(cluster, script, "--no-requeue", "-o", f"{cluster.out}/%j.%n.out")
    last = [Path(f"{said}.{rank}") for rank in range(4)]
    eventually("all write", lambda: all(len(written(cluster, job, r)) > 9 for r in range(4)))
    before = [len(written(cluster, job, rank)) for rank in range(4)]
    (record,) = (cluster.folder / "n1").glob(f"**/jobs/{job}.*/run.json")
    keeper = psutil.Process(json.loads(record.read_text())["keeper"]["pid"])
    keeper.kill()
    ended = cluster.until(job, "NODE_FAIL")
    files = [cluster.out / f"{job}.{node}.out" for node in (0, 1)]
    every = psutil.process_iter
    eventually("no writer is left", lambda: not any(_writes(p, f) for p in every() for f in files))
    first = 2 * ended.nodes.index("n1")
    for rank in range(4):
        lines = written(cluster, job, rank)
        assert lines == [f"line-{k}" for k in range(1, len(lines) + 1)]
        is_spared = rank not in (first, first + 1)
        told = int(last[rank].read_text() or 0)
        assert len(lines) >= (told if is_spared else before[rank])


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root: mounts")
def test_a_full_disk_holds_up_no_rank_and_what_is_lost_is_counted(
    cluster: LocalCluster, small_disk: Path
) -> None:
    go, full = cluster.folder / "disk-has-room", f"{cluster.out}/wrote-onto-a-full-disk"
    script = (
        f"seq -f before-%.0f 20000; touch {full}.$RANK; while [ ! -e {go} ]; do sleep 0.05; done; "
        "seq -f after-%g 3"
    )
    job = started(cluster, script, "-o", f"{small_disk}/%n.out")
    eventually("all wrote", lambda: all(Path(f"{full}.{k}").exists() for k in range(4)))
    (small_disk / "filler").unlink()
    go.touch()
    cluster.until(job, "COMPLETED")
    for node in (0, 1):
        lines = (small_disk / f"{node}.out").read_text().splitlines()
        ranks = (2 * node, 2 * node + 1)
        said = sum(len(f"{rank}: before-{k}\n") for rank in ranks for k in range(1, 20_001))
        kept = sum(len(line) + 1 for line in lines if ": before-" in line)  # were in the pipes
        lost = f"dlsched: {said - kept} bytes of output are lost: No space left on device"
        assert lines.count(lost) == 1
        for rank in ranks:
            own = [line[3:] for line in lines if line.startswith(f"{rank}: after")]
            assert own == [f"after-{k}" for k in (1, 2, 3)]


@pytest.fixture
def small_disk(cluster: LocalCluster) -> Iterator[Path]:
    """A file system without free space; without its file `filler` it has some."""
    place = cluster.folder / "small"
    place.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=256k,mode=1777", "small", str(place)]
    subprocess.run(mount, check=True)
    with (place / "filler").open("wb", buffering=0) as file, suppress(OSError):
        while True:
            file.write(b"x" * 4096)
    yield place
    subprocess.run(["umount", "-l", str(place)], check=True)


def _writes(process: psutil.Process, file: Path) -> bool:
    try:
        folder = f"/proc/{process.pid}/fd"
        links = [os.readlink(f"{folder}/{each}") for each in os.listdir(folder)]
        return process.name() == "dls-output" and str(file) in links
    except (psutil.Error, OSError):
        return False


def test_an_output_that_cannot_be_opened_fails_the_job_before_it_runs(
    cluster: LocalCluster,
) -> None:
    flag = cluster.folder / "ran"
    job = started(cluster, f"touch {flag}", "-o", f"{cluster.folder}/none/%j.out")
    cluster.until(job, "FAILED")
    assert not flag.exists()
