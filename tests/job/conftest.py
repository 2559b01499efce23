"""A keeper's socket that a test writes the script of, and ranks as real processes."""

from __future__ import annotations

import contextlib
import os
import queue
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from dlsched.job import messages as words
from tests.job.templates.forked_rank import ForkedRank, Template

ENVIRONMENT = {
    **{key: value for key, value in os.environ.items() if key in ("PATH", "HOME")},
    "PYTHONUNBUFFERED": "1",
    "OMP_NUM_THREADS": "1",
}
WITHIN_S = 180.0  # nothing takes so long; ranks on a busy machine import PyTorch for half of it


class ScriptedKeeper:
    """Accepts ranks, records what they say, says what the test wants."""

    def __init__(self, folder: Path) -> None:
        self.path = str(folder / "ctl")
        self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._listener.bind(self.path)
        self._listener.listen()
        self.connections: list[socket.socket] = []
        self.heard: list[words.FromJob] = []
        self.fds: list[int] = []
        self._news: queue.Queue[words.FromJob | None] = queue.Queue()
        self.answer: Callable[[words.FromJob], words.FromKeeper | None] = lambda message: None
        self._threads: list[threading.Thread] = []
        self._start(self._accept)

    def _start(self, work: Callable[..., None], *args: Any) -> None:
        thread = threading.Thread(target=work, args=args, daemon=True)
        self._threads.append(thread)
        thread.start()

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            self.connections.append(connection)
            self._start(self._hear, connection)

    def _hear(self, connection: socket.socket) -> None:
        while True:
            try:
                packet, fds, _, _ = socket.recv_fds(connection, words.MAX_MESSAGE, 4)
            except ConnectionResetError:  # closed with messages unread; its own are still there
                continue
            except OSError:
                return
            self.fds += fds
            if not packet:
                self._news.put(None)
                return
            message = words.decode_from_job(packet)
            assert message is not None
            self.heard.append(message)
            reply = self.answer(message)
            if reply is not None:
                connection.send(words.encode(reply))
            self._news.put(message)

    def say(self, message: words.Message, to: int = -1) -> None:
        self.connections[to].send(words.encode(message))

    def wait_for(self, kind: type[Any], where: Callable[[Any], bool] = lambda m: True) -> Any:
        """The next message of a kind; fails when a rank hangs up or nothing comes."""
        while True:
            message = self._news.get(timeout=WITHIN_S)
            assert message is not None, f"hung up before any {kind.__name__}: {self.heard}"
            if isinstance(message, kind) and where(message):
                return message

    def all(self, kind: type[Any]) -> list[Any]:
        return [message for message in self.heard if isinstance(message, kind)]

    def all_of(self, kind: type[Any]) -> list[Any]:
        """The messages of a kind of ranks that have all ended."""
        for thread in self._threads[1:]:
            thread.join(WITHIN_S)
        return self.all(kind)

    def close(self) -> None:
        with contextlib.suppress(OSError):  # closed before, by the test
            self._listener.shutdown(socket.SHUT_RDWR)
        self._threads[0].join(WITHIN_S)  # it may be about to add a connection
        self._listener.close()
        for connection in self.connections:
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)
            connection.close()
        while self.fds:
            os.close(self.fds.pop())
        for thread in self._threads:
            thread.join(WITHIN_S)


@pytest.fixture
def keeper() -> Iterator[ScriptedKeeper]:
    folder = Path(tempfile.mkdtemp(prefix="kp"))  # a socket's path has to be short
    keeper = ScriptedKeeper(folder)
    yield keeper
    keeper.close()
    shutil.rmtree(folder)


@pytest.fixture
def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        return int(server.getsockname()[1])


@pytest.fixture(scope="module")
def templates() -> Iterator[dict[tuple[str, ...], Template]]:
    """Processes of which ranks are copies, by the modules that they have imported."""
    made: dict[tuple[str, ...], Template] = {}
    yield made
    for template in made.values():
        template.close()


Rank = subprocess.Popen[str] | ForkedRank


class Ranks:
    """Real processes that run a program; what is left of them ends with the test.

    Attributes:
        imported: modules that they have imported before they begin; a test module's `IMPORTED`.
    """

    def __init__(
        self, folder: Path, templates: dict[tuple[str, ...], Template], imported: tuple[str, ...]
    ) -> None:
        self._folder, self._templates, self.imported = folder, templates, imported
        self.processes: list[Rank] = []

    def start(
        self, program: str, *arguments: str, environment: dict[str, str] | None = None
    ) -> Rank:
        script = self._folder / f"program{len(self.processes)}.py"
        script.write_text(program)
        whole = {**ENVIRONMENT, **(environment or {})}
        process: Rank
        if self.imported:
            if self.imported not in self._templates:
                self._templates[self.imported] = Template(self.imported, ENVIRONMENT)
            door = self._templates[self.imported].door
            process = ForkedRank(door, [str(script), *arguments], whole, self._folder)
        else:
            process = subprocess.Popen(
                [sys.executable, "-W", "error", str(script), *arguments],
                env=whole,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
                cwd=self._folder,
                start_new_session=True,
            )
        self.processes.append(process)
        return process

    def gang(
        self, program: str, size: int, port: int, *arguments: str, **environment: str
    ) -> list[Rank]:
        """As many ranks of one program."""
        return [
            self.start(
                program,
                *arguments,
                environment={
                    "RANK": str(rank),
                    "WORLD_SIZE": str(size),
                    "LOCAL_RANK": str(rank),
                    "MASTER_ADDR": "127.0.0.1",
                    "MASTER_PORT": str(port),
                    **environment,
                },
            )
            for rank in range(size)
        ]

    @staticmethod
    def end(process: Rank) -> tuple[int, list[str], str]:
        """Exit code, lines of stdout, stderr."""
        out, err = process.communicate(timeout=WITHIN_S)
        return process.returncode, out.splitlines(), err


@pytest.fixture
def ranks(
    tmp_path: Path,
    templates: dict[tuple[str, ...], Template],
    request: pytest.FixtureRequest,
) -> Iterator[Ranks]:
    ranks = Ranks(tmp_path, templates, getattr(request.module, "IMPORTED", ()))
    yield ranks
    for process in ranks.processes:
        if process.poll() is None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait(WITHIN_S)
        for stream in (process.stdout, process.stderr):
            if stream is not None:
                stream.close()
