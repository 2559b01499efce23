"""The zygote: a small process with one thread that forks keepers.

It forks any number for its agent. As the main process of a systemd unit, it forks the one keeper of
that unit and exits when the keeper has ended; then systemd kills every process left in the unit.

A new interpreter takes more time and memory than a keeper may. The zygote has loaded what a keeper
needs, and nothing else. It ends with its agent; its keepers do not depend on it.

`RUN/spawning.lock`: the zygote and every keeper that has not recorded its run yet hold it shared.
An agent that starts, or replaces its zygote, first waits until they let go of it, so that every run
that was being started is either on disk or dead when the agent reads the disk.
"""

from __future__ import annotations

import gc
import sys
import types

import dlsched

if __name__ == "__main__":
    gc.set_threshold(50, 2, 2)  # dataclasses make each class twice; collect the first one soon
    # a keeper needs the messages of the job library, not the library
    _messages_only = types.ModuleType("dlsched.job")
    _messages_only.__path__ = [f"{path}/job" for path in dlsched.__path__]
    sys.modules.setdefault("dlsched.job", _messages_only)

import contextlib
import json
import os
import signal

from dlsched.nodeagent.host import cgroups, lean_socket, processes, syscalls
from dlsched.nodeagent.json_values import decoder, loads
from dlsched.nodeagent.keeper import rehearsal
from dlsched.nodeagent.keeper.keeper_process import READ_BY_EACH, Keeper
from dlsched.nodeagent.ranks.launch_spec import KeeperSpec

MAX_REQUEST = 4096


def can_have_namespaces() -> bool:
    """Whether this process may give a keeper a process-id namespace and a /proc of its own."""
    if os.geteuid() != 0:
        return False
    own = os.open("/proc/self/ns/pid", os.O_RDONLY | os.O_CLOEXEC)
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
            if os.waitpid(inner, 0)[1] == 0:
                syscalls.setns(own, syscalls.CLONE_NEWPID)  # root of a user namespace may not
                good = b"1"
        os.write(writing, good)
        os._exit(0)
    os.close(writing)
    os.close(own)
    found = os.read(reading, 1)
    os.close(reading)
    os.waitpid(pid, 0)
    return found == b"1"


class Zygote:
    """Forks keepers for one agent."""

    def __init__(self, agent: lean_socket.Socket, spawning_lock: int, *, namespaces: bool) -> None:
        """Fork none yet; the descriptor `spawning_lock` holds the lock."""
        self._agent, self._spawning_lock = agent, spawning_lock
        self._namespaces = namespaces
        self._own_namespace = os.open("/proc/self/ns/pid", os.O_RDONLY | os.O_CLOEXEC)

    def serve(self) -> None:
        """Fork one keeper for each request, until the agent closes the connection."""
        self._agent.send(json.dumps({"namespaces": self._namespaces}).encode())
        while True:
            try:
                data, fds, _ = lean_socket.recv_fds(self._agent, MAX_REQUEST, 2)
            except InterruptedError:
                continue
            if not data:
                return
            request = json.loads(data)
            answer, new_fds = self._answer(request, fds)
            for fd in fds:
                os.close(fd)
            lean_socket.send_fds(self._agent, json.dumps(answer).encode(), new_fds)
            for fd in new_fds:
                os.close(fd)

    def serve_once(self) -> int:
        """Fork the keeper of this unit and wait for its end; return its exit code."""
        data, fds, _ = lean_socket.recv_fds(self._agent, MAX_REQUEST, 3)
        if len(fds) < 3:
            return 1  # the agent is gone before it sent a run
        self._spawning_lock = fds.pop()
        answer, new_fds = self._answer(json.loads(data), fds)
        lean_socket.send_fds(self._agent, json.dumps(answer).encode(), new_fds)
        self._agent.close()
        for fd in (*fds, *new_fds, self._spawning_lock):
            os.close(fd)
        pid = answer.get("pid")
        if not isinstance(pid, int):
            return 1
        _, status = os.waitpid(pid, 0)
        return os.waitstatus_to_exitcode(status) & 0xFF

    def _answer(
        self, request: dict[str, object], fds: list[int]
    ) -> tuple[dict[str, object], list[int]]:
        """Fork a keeper; return the answer to the agent, and a descriptor of the keeper."""
        answer = {"number": request.get("number")}
        namespace = bool(request.get("namespace"))
        if namespace and not self._namespaces:
            # without one, a keeper that believes in it would signal every process of the machine
            return answer | {"failed": "it cannot have process-id namespaces"}, []
        try:
            pid = self._fork(fds, namespace)
            process = os.pidfd_open(pid)
        except OSError as error:
            return answer | {"failed": str(error.strerror)}, []
        return answer | {"pid": pid}, [process]

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
        identity = processes.identity(int(os.readlink("/proc/self")))  # as the agent sees it
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
        agent = lean_socket.Socket(fileno=fds[1])
        try:
            return Keeper(spec, agent, identity, self._spawning_lock).run()
        except Exception as error:  # for the agent's log; the run ends as `keeper lost`
            print(f"keeper of {spec.desired.key}: {type(error).__name__}: {error}", file=sys.stderr)
            return 1


def make_decoders() -> None:
    """Make once what each keeper would otherwise make again to read its messages and files."""
    for kind in READ_BY_EACH:
        decoder(kind)


def main() -> None:
    """Be the zygote of a unit, or of an agent that passes its socket, lock, folder and log."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)  # it ends with its agent, not with a terminal
    make_decoders()
    if sys.argv[1] == "--unit":
        sys.exit(be_unit(*sys.argv[2:]))
    control, spawning = int(sys.argv[1]), int(sys.argv[2])
    for fd in (control, spawning):
        os.set_inheritable(fd, False)
    syscalls.set_name("dls-zygote")
    agent = lean_socket.Socket(fileno=control)
    zygote = Zygote(agent, spawning, namespaces=can_have_namespaces())
    if "DLSCHED_FAULTPOINT" not in os.environ:  # which is meant for a keeper
        with contextlib.suppress(OSError):  # keepers then take a little longer
            rehearsal.rehearse(sys.argv[3])
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # keepers that end leave no zombies
    os.dup2(log := int(sys.argv[4]), 2)  # what it wrote before is for an agent that gets no answer
    os.close(log)
    gc.collect()
    syscalls.return_free_memory()
    gc.freeze()
    zygote.serve()


def be_unit(path: str, unit: str) -> int:
    """Be the main process of a unit: divide its cgroup, and fork the keeper of its job.

    The agent sends the job at the socket `path`.
    """
    syscalls.set_name("dls-unit")
    cgroups.divide_unit(unit)
    agent = lean_socket.Socket(lean_socket.AF_UNIX, lean_socket.SOCK_SEQPACKET)
    agent.connect(path)
    agent.send(unit.encode())
    return Zygote(agent, -1, namespaces=os.geteuid() == 0).serve_once()


if __name__ == "__main__":
    main()
