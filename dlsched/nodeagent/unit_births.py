"""Keepers as units: systemd starts a process, it asks the agent who it is to be.

The spec has a user's environment in it, so it goes over a socket that only root reaches, and no
command line, unit property or file ever holds it.

`RUN/births`: a new unit connects and says its name; it gets the spec, its end of the connection to
the agent, and the spawning lock, which it holds until its run is on disk. An agent that died
meanwhile answers nobody, and such a unit ends by itself.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import os
import socket
import struct
import sys
from collections.abc import Sequence

from dlsched.nodeagent import units
from dlsched.nodeagent.plainjson import dumps
from dlsched.nodeagent.spec import KeeperSpec
from dlsched.nodeagent.zygote_link import Born, CannotSpawn, answer_of, environment

log = logging.getLogger(__name__)
_START_S = 30.0
_NAME_BYTES = 200
NAME = "births"


class UnitBirths:
    """Starts units on one node and tells them what they are."""

    def __init__(self, run_dir: str, spawning: int) -> None:
        self._path = os.path.join(os.path.abspath(run_dir), NAME)
        self._spawning = spawning
        self._waiting: dict[str, asyncio.Future[socket.socket]] = {}
        with contextlib.suppress(FileNotFoundError):
            os.unlink(self._path)
        self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._listener.bind(self._path)
        os.chmod(self._path, 0o600)
        self._listener.listen(64)
        self._listener.setblocking(False)
        asyncio.get_running_loop().add_reader(self._listener.fileno(), self._came)

    async def spawn(self, spec: KeeperSpec, properties: Sequence[str]) -> Born:
        """Make a keeper.

        Raises:
            CannotSpawn: when there is none.
        """
        unit = spec.facts.unit
        if unit in self._waiting:
            raise CannotSpawn(f"{unit} is being started already")
        arriving: asyncio.Future[socket.socket] = asyncio.get_running_loop().create_future()
        self._waiting[unit] = arriving
        try:
            await self._start(unit, properties)
            line = await asyncio.wait_for(arriving, _START_S)
        except TimeoutError:
            raise CannotSpawn(f"{unit} was started and never asked for its job") from None
        finally:
            del self._waiting[unit]
        with line:
            return await self._tell(spec, line)

    async def _start(self, unit: str, properties: Sequence[str]) -> None:
        interpreter = (sys.executable, "-S", "-OO", "-m", "dlsched.nodeagent.zygote")
        command = [
            *("systemd-run", "--quiet", "--collect", "--no-ask-password", "--service-type=exec"),
            *(f"--unit={unit}", f"--slice={units.SLICE}"),
            *(part for each in properties for part in ("-p", each)),
            *(f"--setenv={name}={value}" for name, value in environment().items()),
            *("--", *interpreter, "--unit", self._path, unit),
        ]
        process = await asyncio.create_subprocess_exec(
            *command, stdin=asyncio.subprocess.DEVNULL, stderr=asyncio.subprocess.PIPE
        )
        try:
            _, said = await asyncio.wait_for(process.communicate(), _START_S)
        except TimeoutError:
            process.kill()
            await process.wait()
            raise CannotSpawn(f"systemd does not start {unit}") from None
        if process.returncode:
            lines = said.decode("utf-8", "replace").strip().splitlines() or ["no reason given"]
            raise CannotSpawn(f"systemd: {lines[0]}")

    def _came(self) -> None:
        """A unit asks; whoever is not root, or not waited for, is hung up on."""
        with contextlib.suppress(OSError):
            line, _ = self._listener.accept()
            line.settimeout(1.0)  # its name is sent with the connection, as one message
            try:
                said = line.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12)
                unit = line.recv(_NAME_BYTES).decode("ascii", "replace")
            except OSError:
                line.close()
                return
            waiting = self._waiting.get(unit)
            if waiting is None or waiting.done() or struct.unpack("3i", said)[1] != os.geteuid():
                log.warning("not-a-birth unit=%r", unit)
                line.close()
                return
            line.setblocking(False)
            waiting.set_result(line)

    async def _tell(self, spec: KeeperSpec, line: socket.socket) -> Born:
        memory = os.memfd_create("dlsched-spec", os.MFD_CLOEXEC)
        ours, theirs = socket.socketpair()
        try:
            with open(memory, "wb", closefd=False) as file:
                file.write(dumps(spec))
            os.lseek(memory, 0, os.SEEK_SET)
            request = json.dumps({"id": 0, "namespace": spec.namespace}).encode()
            handed = [memory, theirs.fileno(), self._spawning]
            socket.send_fds(line, [request], handed)
            answer, handles = await answer_of(line, spec.facts.unit)
        except OSError as error:
            ours.close()
            raise CannotSpawn(f"{spec.facts.unit} is gone: {error.strerror}") from None
        except BaseException:
            ours.close()
            raise
        finally:
            os.close(memory)
            theirs.close()
        if "pid" not in answer or not handles:
            ours.close()
            raise CannotSpawn(f"no process for a keeper: {answer.get('failed', 'no answer')}")
        return Born(int(answer["pid"]), handles[0], ours)

    def close(self) -> None:
        """Start no more."""
        asyncio.get_running_loop().remove_reader(self._listener.fileno())
        self._listener.close()
