"""The zygote: a small single-threaded process that forks keepers.

For its agent, any number; or, as the main process of a unit, the one keeper of that unit, on whose
end it leaves: then systemd kills whatever is left in the unit.

A fresh interpreter costs more time and memory than a keeper may. The zygote has loaded what a
keeper needs, and nothing else. An agent's ends with the agent; its keepers do not depend on it.

`RUN/spawning.lock`: the zygote and every keeper that has not recorded its run yet hold it shared.
An agent that starts takes it exclusively first, so that what its predecessor had under way is
either on disk or dead when it looks.
"""

from __future__ import annotations

import gc
import sys
import types

import dlsched

if __name__ == "__main__":
    gc.set_threshold(50, 2, 2)  # classes are made twice: what is left over goes before more comes
    for _name in ("inspect", "hashlib"):
        # dataclasses and the protocol import them, keepers never call them: megabytes each
        _spare = types.ModuleType(_name)
        _spare.signature = lambda _kind: ""  # type: ignore[attr-defined]
        sys.modules.setdefault(_name, _spare)
    # a keeper needs the words of the job library, not the library
    _words_only = types.ModuleType("dlsched.job")
    _words_only.__path__ = [f"{path}/job" for path in dlsched.__path__]
    sys.modules.setdefault("dlsched.job", _words_only)

import contextlib
import json
import os
import signal

from dlsched.nodeagent import cgroups, keeping, lean_socket, process, syscalls
from dlsched.nodeagent.plainjson import decoder, loads
from dlsched.nodeagent.spec import KeeperSpec

MAX_REQUEST = 4096


def can_have_namespaces() -> bool:
    """Whether this process may give a keeper process ids and a /proc of its own."""
    if os.geteuid() != 0:
        return False
    reading, writing = os.pipe()
    pid = os.fork()
    if pid == 0:
        good = b"0"
        with contextlib.suppress(OSError):
            syscalls.unshare(syscalls.CLONE_NEWPID)
            inner = os.fork()
            if inner == 0:
                code = 1
                with contextlib.suppress(OSError):
                    syscalls.mount_own_proc()
                    code = 0 if os.readlink("/proc/self") == "1" else 1
                os._exit(code)
            good = b"1" if os.waitpid(inner, 0)[1] == 0 else b"0"
        os.write(writing, good)
        os._exit(0)
    os.close(writing)
    found = os.read(reading, 1)
    os.close(reading)
    os.waitpid(pid, 0)
    return found == b"1"


class Zygote:
    """Serves one agent until it hangs up."""

    def __init__(self, agent: lean_socket.Socket, spawning: int, *, namespaces: bool) -> None:
        self._agent, self._spawning = agent, spawning
        self._namespaces = namespaces
        self._own_namespace = os.open("/proc/self/ns/pid", os.O_RDONLY | os.O_CLOEXEC)

    def serve(self) -> None:
        """Fork a keeper a request."""
        self._agent.send(json.dumps({"namespaces": self._namespaces}).encode())
        while True:
            try:
                data, fds, _ = lean_socket.recv_fds(self._agent, MAX_REQUEST, 2)
            except InterruptedError:
                continue
            if not data:
                return
            request = json.loads(data)
            answer, handles = self._answer(request, fds)
            for fd in fds:
                os.close(fd)
            lean_socket.send_fds(self._agent, json.dumps(answer).encode(), handles)
            for fd in handles:
                os.close(fd)

    def serve_once(self) -> int:
        """Fork the keeper of this unit and wait for its end; its exit code."""
        data, fds, _ = lean_socket.recv_fds(self._agent, MAX_REQUEST, 3)
        if len(fds) < 3:
            return 1  # the agent is gone, and nothing was begun
        self._spawning = fds.pop()
        answer, handles = self._answer(json.loads(data), fds)
        lean_socket.send_fds(self._agent, json.dumps(answer).encode(), handles)
        self._agent.close()
        for fd in (*fds, *handles, self._spawning):
            os.close(fd)
        pid = answer.get("pid")
        if not isinstance(pid, int):
            return 1
        _, status = os.waitpid(pid, 0)
        return os.waitstatus_to_exitcode(status) & 0xFF

    def _answer(
        self, request: dict[str, int], fds: list[int]
    ) -> tuple[dict[str, object], list[int]]:
        answer: dict[str, object] = {"id": request["id"]}
        try:
            pid = self._fork(fds, bool(request.get("namespace")) and self._namespaces)
            handle = os.pidfd_open(pid)
        except OSError as error:
            return {**answer, "failed": str(error.strerror)}, []
        return {**answer, "pid": pid}, [handle]

    def _fork(self, fds: list[int], namespace: bool) -> int:
        if namespace:
            syscalls.unshare(syscalls.CLONE_NEWPID)
        try:
            pid = os.fork()
        finally:
            if namespace and os.getpid() != 1:
                with contextlib.suppress(OSError):
                    syscalls.setns(self._own_namespace, syscalls.CLONE_NEWPID)
        if pid == 0:
            code = 1
            try:
                code = self._be_keeper(fds, namespace)
            finally:
                os._exit(code)
        return pid

    def _be_keeper(self, fds: list[int], namespace: bool) -> int:
        self._agent.close()
        os.close(self._own_namespace)
        os.setsid()
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGPIPE):
            signal.signal(number, signal.SIG_IGN)
        os.umask(0o077)
        identity = process.identity(int(os.readlink("/proc/self")))  # in the agent's terms
        assert identity is not None
        with os.fdopen(fds[0], "rb") as file:
            spec = loads(KeeperSpec, file.read())
        syscalls.set_name(f"dls-{spec.desired.key}")
        if namespace:
            syscalls.mount_own_proc()
        else:
            syscalls.become_subreaper()
        with contextlib.suppress(OSError), open("/proc/self/oom_score_adj", "w") as file_:
            file_.write(str(spec.oom_score_adj))
        return keeping.keep(spec, lean_socket.Socket(fileno=fds[1]), identity, self._spawning)


def main() -> None:
    """Begin: for a unit, or with the agent's socket and the lock as descriptors."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)  # it ends with its agent, not with a terminal
    decoder(KeeperSpec)
    if sys.argv[1] == "--unit":
        sys.exit(be_unit(*sys.argv[2:]))
    control, spawning = int(sys.argv[1]), int(sys.argv[2])
    for fd in (control, spawning):
        os.set_inheritable(fd, False)
    syscalls.set_name("dls-zygote")
    agent = lean_socket.Socket(fileno=control)
    zygote = Zygote(agent, spawning, namespaces=can_have_namespaces())
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # keepers that end are nobody's zombies
    gc.collect()
    syscalls.return_free_memory()
    gc.freeze()
    zygote.serve()


def be_unit(path: str, unit: str) -> int:
    """Be the main process of a unit: lay out its cgroup, ask the agent for the job, keep it."""
    syscalls.set_name("dls-unit")
    cgroups.settle_in_unit(unit)
    agent = lean_socket.Socket(lean_socket.AF_UNIX, lean_socket.SOCK_SEQPACKET)
    agent.connect(path)
    agent.send(unit.encode())
    return Zygote(agent, -1, namespaces=os.geteuid() == 0).serve_once()


if __name__ == "__main__":
    main()
