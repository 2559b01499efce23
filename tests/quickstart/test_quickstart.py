from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from dlsched.client.job_records import Job
from dlsched.core.errors import BadInput
from dlsched.quickstart import processes
from dlsched.quickstart.job_watcher import JobWatcher
from dlsched.quickstart.local_cluster import QuickCluster, new_folder, stop_kept
from dlsched.quickstart.workload import is_unbroken, losses_of, workload

COMMAND = (sys.executable, "-W", "error", "-m", "dlsched", "quickstart", "--pretend")


@pytest.fixture
def short_folder() -> Iterator[Path]:
    """Sockets need a short path."""
    with tempfile.TemporaryDirectory(prefix="q") as folder:
        yield Path(folder) / "k"


def using(folder: Path) -> list[str]:
    """Commands of live processes that have to do with a folder."""
    found = []
    for path in Path("/proc").glob("[0-9]*"):
        try:
            words = (path / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
            inside = os.readlink(path / "cwd").startswith(str(folder))
        except OSError:
            continue
        if inside or f"{folder}/" in words:
            found.append(words)
    return found


# -- parts -----------------------------------------------------------------------------------------


def test_a_folder_that_has_one_is_refused(short_folder: Path) -> None:
    (short_folder / "jobs").mkdir(parents=True)
    with pytest.raises(BadInput, match="it holds a quickstart already"):
        QuickCluster(short_folder, pretend=True).start()


def test_a_folder_too_long_for_sockets_is_refused() -> None:
    with pytest.raises(BadInput, match="longer than 60 characters"):
        QuickCluster(Path("x" * 80), pretend=True)


def test_a_long_temporary_folder_is_not_the_quickstart_s(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    long = tmp_path / ("x" * 60)
    long.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(long))
    folder = new_folder()
    try:
        QuickCluster(folder, pretend=True)
        assert not os.listdir(long)
    finally:
        folder.rmdir()
    monkeypatch.setattr(tempfile, "tempdir", "/dev/shm")
    folder = new_folder()
    assert folder.parent == Path("/dev/shm")
    folder.rmdir()


@pytest.mark.parametrize("note", [None, "", "[]", '{"services": {"daemon": "x"}}'])
def test_stop_refuses_a_folder_without_a_kept_cluster(short_folder: Path, note: str | None) -> None:
    short_folder.mkdir()
    if note is not None:
        (short_folder / "quickstart.json").write_text(note)
    with pytest.raises(BadInput, match="no quickstart has been kept there"):
        stop_kept(short_folder)


def test_another_process_with_the_same_id_is_not_signalled(tmp_path: Path) -> None:
    words = [sys.executable, "-c", "import signal; signal.pause()"]
    pid = processes.start(words, tmp_path / "log", os.environ)
    known = processes.identity(pid)
    assert known is not None
    assert known in processes.below(os.getpid())
    processes.end([(known[0], known[1] + 1)], 0.0)
    assert processes.identity(pid) == known
    processes.end([known], 5.0)
    assert processes.identity(pid) is None


@pytest.mark.parametrize("gpus", [(2, 2), (1,), (8,)])
def test_the_jobs_fit_the_nodes(gpus: tuple[int, ...]) -> None:
    jobs = workload(gpus)
    assert [job.after_s for job in jobs] == sorted(job.after_s for job in jobs)
    for job in jobs:
        nodes = int(job.options.get("nodes", 1))
        wanted = int(job.options.get("gpus", 0)) or nodes * int(job.options["gpus_per_node"])
        assert 0 < wanted <= sum(gpus)
        assert nodes <= len(gpus)


@pytest.mark.parametrize(
    ("text", "expected"),
    [("0 1.5\n1 1.4\n", True), ("0 1\n1 1\n1 1\n", False), ("1 1\n", False), ("", False)],
)
def test_repeated_and_missing_steps_are_noticed(tmp_path: Path, text: str, expected: bool) -> None:
    losses_of(tmp_path, "x").write_text(text)
    assert is_unbroken(tmp_path, "x") is expected
    assert not is_unbroken(tmp_path, "y")


def test_a_pipe_gets_a_line_for_each_change(capsys: pytest.CaptureFixture[str]) -> None:
    with JobWatcher() as watcher:
        watcher.show([Job(job_id=1, name="a", state="PENDING", reason="Resources")])
        watcher.show([Job(job_id=1, name="a", state="PENDING", reason="Priority")])
        watcher.show([Job(job_id=1, name="a", state="RUNNING", nodes=("n1",), starts=2)])
    lines = [line.split(" s  ")[1] for line in capsys.readouterr().out.splitlines()]
    assert lines == ["job 1 a      PENDING (Resources)", "job 1 a      RUNNING on n1, run 2"]


# -- all of it -------------------------------------------------------------------------------------


@pytest.mark.slow
def test_it_preempts_resumes_replays_and_leaves_nothing(short_folder: Path) -> None:
    found = subprocess.run(
        [*COMMAND, "--folder", str(short_folder)], capture_output=True, text=True, check=False
    )
    assert found.returncode == 0, found.stdout + found.stderr
    told = found.stdout
    assert "every job has done each of its steps once, in order" in told
    assert " 0 preemptions" not in told
    for policy in ("tiresias", "fifo", "srtf"):
        assert f"\n{policy} " in told
    assert using(short_folder) == []


@pytest.mark.slow
@pytest.mark.parametrize(
    "number",
    [signal.SIGINT, pytest.param(signal.SIGTERM, marks=pytest.mark.exhaustive)],
    ids=["INT", "TERM"],
)
def test_interrupted_it_leaves_nothing(short_folder: Path, number: int) -> None:
    heeds_it = ("env", "--default-signal=INT")  # tests may run in the background of a shell
    running = subprocess.Popen(
        [*heeds_it, *COMMAND, "--folder", str(short_folder)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert running.stdout is not None
    while "RUNNING on" not in running.stdout.readline():
        assert running.poll() is None
    running.send_signal(number)
    out, err = running.communicate(timeout=120)
    assert (running.returncode, err) == (130, "\ndlsched: stopped; cleaning up\n"), out
    assert using(short_folder) == []


@pytest.mark.slow
def test_what_is_kept_can_be_used_and_ended(short_folder: Path) -> None:
    subprocess.run(
        [*COMMAND, "--folder", str(short_folder), "--keep"], capture_output=True, check=True
    )
    environment = {
        **os.environ,
        "DLSCHED_DAEMON": f"unix:{short_folder}/daemon.sock",
        "DLSCHED_INSECURE_LOOPBACK": "1",
    }
    submit = [sys.executable, "-m", "dlsched", "submit", "--gpus", "1", "--chdir"]
    subprocess.run([*submit, str(short_folder), "--", "sleep", "600"], env=environment, check=True)
    assert using(short_folder)
    subprocess.run(
        [*COMMAND, "--stop", str(short_folder)], capture_output=True, check=True, timeout=180
    )
    assert using(short_folder) == []
