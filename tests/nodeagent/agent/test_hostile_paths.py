"""Paths by which one user would reach another's files, for all that opens, lists or deletes them.

Ann's home is closed to others. What is below it is not, and a process of hers has its working
folder there, an open folder and an open file: a program that follows a link of /proc to these does
not go through the home. Bob names the paths.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import json
import os
import shutil
import signal
import stat
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import grpc
import pytest
from scripted_leader import Work, alive, eventually

from dlsched.job.saving.checkpoint_folder import MANIFEST
from dlsched.nodeagent.agent.user_files import OUTPUTS_OF_ONE
from dlsched.nodeagent.host import launchers, syscalls, user_rights
from dlsched.protocol.messages import Phase
from dlsched.rpc.v1 import node_pb2, run_pb2

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")

ANN, BOB = 4101, 4102
SECRET = b"what only Ann may read\n"
CHECKPOINT = "0001-000000005"
# Starts processes of Bob's jobs as a keeper does, and processes that only stay. It has one thread:
# the process of the tests has many, and would die in a fork.
STARTER = f"""
import base64, json, os, shutil, signal, sys
from types import SimpleNamespace
from dlsched.nodeagent.host import user_rights
from dlsched.nodeagent.ranks import child_process
from dlsched.nodeagent.ranks.launch_spec import LaunchFacts

def start(asked):
    launch = LaunchFacts(user="bob", uid={BOB}, gid={BOB}, container=asked["container"])
    spec = SimpleNamespace(
        launch=launch,
        node="n1",
        desired=SimpleNamespace(gpus=()),
        container_tool="/bin/echo",
        no_new_privileges=True,
    )
    reading, writing = os.pipe()
    streams = (writing if asked["shows"] else None, None)
    process = child_process.ProcessSpec(streams=streams, **asked["process"])
    pid, pipe = child_process.spawn(spec, process)
    os.close(writing)
    said = open(reading, "rb").read()
    os.waitpid(pid, 0)
    said += open(pipe, "rb").read() or b""
    return base64.b64encode(said).decode()

sleep = shutil.which("sleep")

def stay(uid, folder):
    reading, writing = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.chdir(folder)
        fds = [os.open(each, os.O_RDONLY) for each in (".", "secret")]
        for fd in fds:
            os.set_inheritable(fd, True)
        user_rights.become(uid, uid, [])
        os.write(writing, json.dumps(fds).encode())
        os.execv(sleep, ["sleep", "600"])  # no look-up: it would import, as the user
    os.close(writing)
    fds = json.loads(open(reading, "rb").read())  # until the program is executed
    return [pid, *fds]

def end(pid):
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)

for line in sys.stdin:
    name, *arguments = json.loads(line)
    print(json.dumps(dict(start=start, stay=stay, end=end)[name](*arguments)), flush=True)
"""
DAEMON = (("dlsched-role", "dlsched://daemon"),)


@dataclass
class Place:
    """Two users on a node."""

    node: Any  # its leader and its agent
    folder: Path
    starter: subprocess.Popen[str]
    process: int  # of Ann
    open_folder: int  # descriptors of it
    open_file: int
    bobs: int  # a process of Bob, in a folder of his own

    @property
    def home(self) -> Path:
        return self.folder / "ann"

    @property
    def work(self) -> Path:
        return self.home / "work"

    @property
    def bob(self) -> Path:
        return self.folder / "bob"

    @property
    def agent(self) -> int:
        return int(self.node.agents["n1"].process.pid)

    def hers(self) -> dict[str, object]:
        """All that Ann has, as it is."""
        found: dict[str, object] = {}
        for path in sorted(self.home.rglob("*")):
            about = path.lstat()
            content = path.read_bytes() if stat.S_ISREG(about.st_mode) else None
            found[str(path)] = (content, about.st_mode, about.st_uid, about.st_nlink)
        return found


def checkpoint(folder: Path, uid: int) -> None:
    """A complete checkpoint, which any process that comes so far may delete."""
    made = folder / CHECKPOINT
    made.mkdir()
    (made / MANIFEST).write_text("{}")
    for each in (made, made / MANIFEST):
        os.chown(each, uid, uid)
        each.chmod(0o777)


@pytest.fixture(scope="module")
def starter() -> Iterator[subprocess.Popen[str]]:
    command = [sys.executable, "-c", STARTER]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as started:
        yield started
        started.kill()


@pytest.fixture
def place(calm: Any, starter: subprocess.Popen[str]) -> Iterator[Place]:
    with two_users(calm, starter) as made:
        yield made


@contextlib.contextmanager
def two_users(node: Any, starter: subprocess.Popen[str]) -> Iterator[Place]:
    """Ann and Bob with their processes, as long as the context is."""
    home, bob = node.folder / "ann", node.folder / "bob"
    work = home / "work"
    for folder, uid in ((home, ANN), (bob, BOB), (work, ANN), (bob / "own", BOB)):
        folder.mkdir()
        os.chown(folder, uid, uid)
        folder.chmod(0o777)
    (work / "secret").write_bytes(SECRET)
    (work / "secret").chmod(0o666)
    checkpoint(work, ANN)
    home.chmod(0o700)
    (bob / "own" / "secret").write_bytes(b"mine\n")
    os.chown(bob / "own" / "secret", BOB, BOB)
    with contextlib.ExitStack() as ends:
        held = []
        for folder, uid in ((work, ANN), (bob / "own", BOB)):
            held.append(tell(starter, "stay", uid, str(folder)))
            ends.callback(tell, starter, "end", held[-1][0])
        yield Place(node, node.folder, starter, *held[0], bobs=held[1][0])


def tell(starter: subprocess.Popen[str], *words: object) -> Any:
    """The answer of the starter."""
    assert starter.stdin is not None
    assert starter.stdout is not None
    starter.stdin.write(json.dumps(words) + "\n")
    starter.stdin.flush()
    answer = starter.stdout.readline()
    assert answer, "the starter has ended"
    return json.loads(answer)


# -- what Bob asks for -----------------------------------------------------------------------------


def call(place: Place, method: str, request: Any) -> Any:
    """The answer of the agent, or the error."""

    async def answer() -> Any:
        stub = getattr(place.node.leader.agent("n1"), method)(request, timeout=60, metadata=DAEMON)
        try:
            return (
                await stub if method != "Output" else b"".join([each.data async for each in stub])
            )
        except grpc.aio.AioRpcError as error:
            return error

    return place.node.leader._in_loop(answer())


def output(place: Place, path: str, **more: Any) -> bytes:
    """What `dlsched logs` shows of a job of Bob's that has ended."""
    request = node_pb2.OutputRequest(
        key=run_pb2.RunKey(job=99, run=1, run_id="99-ended"),
        **{"path": path, "user": "bob", "uid": BOB, "tail_lines": -1, **more},
    )
    found = call(place, "Output", request)
    return found if isinstance(found, bytes) else str(found.details()).encode()


def deleted(place: Place, path: str) -> bytes:
    request = node_pb2.DeleteCheckpointsRequest(user="bob", uid=BOB, paths=[path])
    found = call(place, "DeleteCheckpoints", request)
    assert not isinstance(found, grpc.aio.AioRpcError), found
    return "\n".join(found.gone).encode()


def process(place: Place, *, shows: bool = True, container: str = "", **about: Any) -> bytes:
    """All that a process of a job of Bob's prints if it `shows` it, or why it cannot start."""
    wanted = {
        "argv": ("/bin/sh", "-c", "cat; ls"),
        "environment": {"PATH": os.environ["PATH"]},
        "working_directory": "/",
        "output": "",
        "error": "",
        **about,
    }
    asked = {"container": container, "shows": shows, "process": wanted}
    return base64.b64decode(tell(place.starter, "start", asked))


OF_FOLDERS: dict[str, Callable[[Place, Path], bytes]] = {
    "logs": lambda place, at: output(place, f"{at}/secret"),
    "last lines": lambda place, at: output(place, f"{at}/secret", follow=True, tail_lines=3),
    "logs below a working directory": lambda place, at: output(
        place, "secret", working_directory=str(at)
    ),
    "delete a checkpoint": lambda place, at: deleted(place, f"{at}/{CHECKPOINT}"),
    "write": lambda place, at: process(place, argv=("echo", "x"), output=f"{at}/new", shows=False),
    "write errors": lambda place, at: process(
        place, argv=("ls", "/none"), error=f"{at}/secret", truncate=True
    ),
    "input": lambda place, at: process(place, input_path=f"{at}/secret"),
    "working directory": lambda place, at: process(place, working_directory=str(at)),
    "container": lambda place, at: process(place, container=f"{at}/secret"),
}
FOLDERS: dict[str, Callable[[Place], str]] = {
    "a process's working folder": lambda place: f"/proc/{place.process}/cwd",
    "a process's root": lambda place: f"/proc/{place.process}/root{place.work}",
    "a thread's working folder": lambda place: f"/proc/{place.process}/task/{place.process}/cwd",
    "a process's open folder": lambda place: f"/proc/{place.process}/fd/{place.open_folder}",
    "the home": lambda place: str(place.work),
    "dots": lambda place: f"{place.bob}/own/../../ann/work",
    "the agent's root": lambda place: f"/proc/{place.agent}/root{place.work}",
}


@pytest.mark.parametrize("target", FOLDERS)
@pytest.mark.parametrize("operation", OF_FOLDERS)
def test_a_link_to_another_user_s_folder_leads_nowhere(
    place: Place, operation: str, target: str
) -> None:
    before = place.hers()
    link = place.bob / "link"
    link.symlink_to(FOLDERS[target](place))
    told = OF_FOLDERS[operation](place, link)
    assert SECRET not in told
    assert CHECKPOINT.encode() not in told or b"cannot" in told
    assert place.hers() == before


DONE = {  # what the user is told of an own folder
    "delete a checkpoint": CHECKPOINT.encode(),
    "write": b"",
    "write errors": b"",
    "input": b"mine\n",
    "working directory": f"{CHECKPOINT}\nsecret\n".encode(),
    "container": b"exec",
}


@pytest.mark.parametrize("operation", OF_FOLDERS)
def test_what_is_one_s_own_is_reached_through_links_of_one_s_own(
    place: Place, operation: str
) -> None:
    own, link = place.bob / "own", place.bob / "link"
    checkpoint(own, BOB)
    link.symlink_to("own")
    told = OF_FOLDERS[operation](place, link)
    assert told.startswith(DONE.get(operation, b"mine\n")) or told.endswith(DONE[operation])
    assert (own / CHECKPOINT).exists() == (operation != "delete a checkpoint")
    assert (own / "new").exists() == (operation == "write")
    assert (own / "secret").read_bytes().startswith(b"ls: " if "err" in operation else b"mine\n")


@pytest.mark.skipif(not user_rights.refuses_magic_links(), reason="needs openat2 (Linux 5.6)")
@pytest.mark.parametrize("operation", OF_FOLDERS)
def test_no_link_to_a_process_is_followed_not_even_to_one_s_own(
    place: Place, operation: str
) -> None:
    checkpoint(place.bob / "own", BOB)
    link = place.bob / "link"
    link.symlink_to(f"/proc/{place.bobs}/cwd")
    told = OF_FOLDERS[operation](place, link)
    assert b"mine" not in told
    assert (b"it leads through links of /proc" in told) == (operation != "delete a checkpoint")
    assert (place.bob / "own" / CHECKPOINT).exists()


OF_FILES: dict[str, Callable[[Place, str], bytes]] = {
    "logs": output,
    "last lines": lambda place, at: output(place, at, follow=True, tail_lines=3),
    "write": lambda place, at: process(
        place, argv=("echo", "x"), output=at, truncate=True, shows=False
    ),
    "write errors": lambda place, at: process(place, argv=("ls", "/none"), error=at, truncate=True),
    "input": lambda place, at: process(place, input_path=at),
    "container": lambda place, at: process(place, container=at),
    "delete a checkpoint": deleted,
}


def _made(place: Place, make: Callable[[Path], object]) -> str:
    """Something of this name in Bob's folder, which only its own mode protects."""
    make(place.bob / CHECKPOINT)
    return str(place.bob / CHECKPOINT)


def _pipe(path: Path) -> None:
    os.mkfifo(path)
    os.chown(path, BOB, BOB)


def _hard_link(place: Place, path: Path) -> None:
    """To a file of Ann's that only she may read, as an old kernel lets Bob make it."""
    closed = place.home / "closed"
    closed.write_bytes(SECRET)
    closed.chmod(0o600)
    os.chown(closed, ANN, ANN)
    os.link(closed, path)


FILES: dict[str, Callable[[Place], str]] = {
    "a link to an open file": lambda place: _made(
        place, lambda path: path.symlink_to(f"/proc/{place.process}/fd/{place.open_file}")
    ),
    "a link to the file": lambda place: _made(
        place, lambda path: path.symlink_to(place.work / "secret")
    ),
    "the map of the agent's memory": lambda place: f"/proc/{place.agent}/maps",
    "the agent's environment": lambda place: f"/proc/{place.agent}/environ",
    "the map of the own memory": lambda place: "/proc/self/maps",
    "the own memory": lambda place: "/proc/self/mem",
    "the first descriptor": lambda place: "/proc/self/fd/0",
    "a named pipe": lambda place: _made(place, _pipe),
    "a disk": lambda place: _made(place, lambda path: os.mknod(path, stat.S_IFBLK | 0o600, 0x700)),
    "the kernel's log": lambda place: "/dev/kmsg",
    "a hard link": lambda place: _made(place, lambda path: _hard_link(place, path)),
    "a zero byte": lambda place: f"{place.bob}/own/secret\0x",
}
# what a process of Bob's may read there anyway is its own
_OWN = {("input", "the map of the own memory"), ("container", "the map of the own memory")}


@pytest.mark.parametrize("target", FILES)
@pytest.mark.parametrize("operation", OF_FILES)
def test_what_is_no_file_of_the_user_s_is_neither_shown_nor_changed_nor_waited_for(
    place: Place, operation: str, target: str
) -> None:
    path = FILES[target](place)
    before = place.hers()
    told = OF_FILES[operation](place, path)
    assert SECRET not in told
    assert b"r-xp" not in told or (operation, target) in _OWN
    assert b"mine" not in told
    assert place.hers() == before


@pytest.mark.parametrize("link", ["process", "home"])
def test_a_swap_in_the_middle_shows_and_changes_nothing_of_the_other_user(
    place: Place, link: str
) -> None:
    goal = {"process": f"/proc/{place.process}/cwd", "home": str(place.work)}[link]
    before, swapped, over = place.hers(), place.bob / "swapped", threading.Event()
    swapped.symlink_to(place.bob / "own")

    def swap() -> None:
        turn = 0
        while not over.is_set():
            turn += 1
            new = place.bob / "new"
            new.symlink_to(goal if turn % 2 else place.bob / "own")
            new.rename(swapped)

    thread = threading.Thread(target=swap)
    thread.start()
    found: set[bytes] = set()
    try:
        for _ in range(15):
            found.add(output(place, f"{swapped}/secret"))
            checkpoint_there = place.bob / "own" / CHECKPOINT
            if not checkpoint_there.exists():
                checkpoint(place.bob / "own", BOB)
            deleted(place, f"{swapped}/{CHECKPOINT}")
            process(place, argv=("echo", "x"), output=f"{swapped}/new", shows=False)
    finally:
        over.set()
        thread.join()
    assert b"mine\n" in found
    assert SECRET not in found
    assert place.hers() == before


# -- jobs that run ---------------------------------------------------------------------------------


def running(place: Place, script: str, **more: Any) -> Any:
    """A job that writes to `d/out` in Bob's folder; its run."""
    leader, folder = place.node.leader, place.bob / "d"
    folder.mkdir(exist_ok=True)
    os.chown(folder, BOB, BOB)
    wanted = {"user": "bob", "uid": BOB, "output": str(folder / "secret"), **more}
    job = leader.submit(Work(argv=("/bin/sh", "-c", script), **wanted))
    leader.place(job, ("n1",))
    leader.wait_phase("n1", Phase.RUNNING)
    written = folder / "secret"
    eventually(lambda: written.exists() and written.stat().st_size > 0, "it writes")
    return leader.run_of(job)


def test_the_output_of_a_running_job_that_was_swapped_shows_nothing_of_the_other_user(
    place: Place,
) -> None:
    swapped_output_shows_nothing(place)


def test_so_it_is_where_each_run_has_a_cgroup(cluster: Any, starter: subprocess.Popen[str]) -> None:
    root, _ = launchers.find_cgroup("n1")
    if not root:
        pytest.skip("no writable cgroup v2 with a freezer here")
    cluster.agent("n1", "--launcher", "cgroup")
    cluster.leader.wait_node("n1")
    with two_users(cluster, starter) as place:
        swapped_output_shows_nothing(place)
        cluster.leader.cancel_all()
    eventually(lambda: not [each for each in Path(root).iterdir() if each.is_dir()])
    Path(root).rmdir()


def swapped_output_shows_nothing(place: Place) -> None:
    run = running(place, "echo begun; exec sleep 600")
    leader, swapped, run_id = place.node.leader, place.bob / "d", run.key.run_id
    assert leader.output("n1", run_id) == b"begun\n"
    shutil.rmtree(swapped)
    for goal in (f"/proc/{place.process}/cwd", f"/proc/{place.agent}", str(place.work)):
        swapped.symlink_to(goal)
        with pytest.raises(grpc.aio.AioRpcError, match="cannot open"):
            leader.output("n1", run_id)
        swapped.unlink()


def readers(place: Place) -> list[int]:
    """The processes of the file server of the agent that have become Bob."""
    found = []
    for entry in Path("/proc").iterdir():
        with contextlib.suppress(OSError, ValueError):
            if (entry / "comm").read_text() == "dls-files\n":
                status = (entry / "status").read_text().split("\n")
                words = dict(line.split(":\t", 1) for line in status if ":\t" in line)
                if words["Uid"].split()[0] == str(BOB):
                    found.append(int(entry.name))
    return found


def status(pid: int) -> dict[str, set[str]]:
    """What the kernel says of a process: its ids, groups and capabilities."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return {line.partition(":")[0]: set(line.partition(":")[2].split()) for line in lines}


def test_the_process_that_reads_is_wholly_the_user_and_killed_when_it_is_left_and_does_not_end(
    place: Place,
) -> None:
    run = running(place, "echo begun; exec sleep 600")
    leader = place.node.leader
    request = node_pb2.OutputRequest(key=run_pb2.RunKey(), tail_lines=-1, follow=True)
    request.key.run_id, request.key.job, request.key.run = run.key.run_id, run.key.job, run.key.run

    async def follow() -> None:
        following = leader.agent("n1").Output(request, timeout=60, metadata=DAEMON)
        assert (await following.read()).data == b"begun\n"
        [pid] = readers(place)
        of_bob, none = {str(BOB)}, {"0000000000000000"}
        found = status(pid)
        assert [found[each] for each in ("Uid", "Gid", "Groups")] == [of_bob] * 3
        assert [found[each] for each in ("CapPrm", "CapEff", "CapInh")] == [none] * 3
        descriptors = {os.readlink(f"/proc/{pid}/fd/{fd}") for fd in os.listdir(f"/proc/{pid}/fd")}
        sockets = [each for each in descriptors if each.startswith("socket:")]
        assert len(sockets) == 1  # its own: none of the agent's, none of another reader's
        os.kill(pid, signal.SIGSTOP)  # as its user may
        following.cancel()
        await asyncio.to_thread(eventually, lambda: not alive(pid))

    leader._in_loop(follow())
    assert leader.output("n1", run.key.run_id) == b"begun\n"


def test_all_readers_of_a_user_can_hang_and_the_next_one_is_served(place: Place) -> None:
    """They are killed when they are left, so they hold no place for ever."""
    run = running(place, "echo begun; exec sleep 600")
    leader = place.node.leader
    request = node_pb2.OutputRequest(key=run_pb2.RunKey(), tail_lines=-1, follow=True)
    request.key.run_id, request.key.job, request.key.run = run.key.run_id, run.key.job, run.key.run

    async def follow() -> None:
        following = [
            leader.agent("n1").Output(request, timeout=60, metadata=DAEMON)
            for _ in range(OUTPUTS_OF_ONE)
        ]
        assert {(await each.read()).data for each in following} == {b"begun\n"}
        stopped = readers(place)
        assert len(stopped) == OUTPUTS_OF_ONE
        for pid in stopped:
            os.kill(pid, signal.SIGSTOP)
        for each in following:
            each.cancel()
        await asyncio.to_thread(eventually, lambda: not readers(place))

    leader._in_loop(follow())
    assert leader.output("n1", run.key.run_id) == b"begun\n"


def test_an_output_is_read_where_its_run_sees_it(place: Place) -> None:
    """A mount that only the run has hides the folder; after the run, nothing hides it."""
    leader, ready = place.node.leader, place.folder / "ready"
    at = place.bob / "d"
    script = (
        f"echo outside; mount -t tmpfs none {at} && echo inside >{at}/secret; touch {ready};"
        " exec sleep 600"
    )
    run = running(place, script, user="root", uid=0)
    eventually(ready.exists)
    found = leader.output("n1", run.key.run_id)
    leader.cancel(run.key.job)
    leader.wait(run.key.job)
    if (at / "secret").read_bytes() != b"outside\n":
        subprocess.run(["umount", str(at)], check=False)
        pytest.skip("runs have no mounts of their own here")
    assert found == b"inside\n"
    eventually(lambda: not place.node.agents["n1"].records(), "the run is over")
    path = {"path": str(at / "secret"), "user": "root", "uid": 0}
    assert output(place, **path) == b"outside\n"


# -- programs of the node that look into a job -----------------------------------------------------


def test_what_reads_the_stacks_is_the_user_and_may_trace_beside_that(place: Place) -> None:
    shown = "grep -E '^(Uid|Gid|Groups|Cap(Inh|Prm|Eff|Amb))' /proc/self/status"
    argv = ("/bin/sh", "-c", shown)
    traces, plain = (process(place, argv=argv, traces=each).decode() for each in (True, False))
    only = f"{1 << syscalls.CAP_SYS_PTRACE:016x}"
    for text, capabilities in ((traces, only), (plain, "0" * 16)):
        words = {line.split()[0]: set(line.split()[1:]) for line in text.splitlines()}
        assert words.pop("Groups:") == {str(BOB)}
        assert words.pop("Uid:") == words.pop("Gid:") == {str(BOB)}
        assert words == {f"Cap{kind}:": {capabilities} for kind in ("Inh", "Prm", "Eff", "Amb")}
