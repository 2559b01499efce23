"""The parent of the workers: it owns the block of device memory, and says which has the device.

Requests are JSON: {"service": NAME, "input": nested lists}; answers {"output": nested lists,
"switched": whether the training was stopped for it}. How they are sent, `client_protocols` says.

It runs on CPUs only: the block stands for the memory of a GPU. There it would be one allocation,
exported to the workers by CUDA's IPC, and groups would be copied on a stream of their own with an
event for each. None of that is written: where there is a GPU, `Controller` refuses to start.
"""

from __future__ import annotations

import json
import os
import selectors
import socket
import time
from collections.abc import Mapping
from dataclasses import dataclass
from multiprocessing.connection import Connection
from typing import Any

import torch
import torch.multiprocessing as processes

from dlsched.core.errors import BadInput
from dlsched.policies.node.pipeswitch.switching import IDLE_S, TRAINING, Do, SwitchedGpu
from dlsched.switch.client_protocols import ClientProtocol, Http, Lines
from dlsched.switch.layout import Layout, layout_of
from dlsched.switch.program import OF_TRAININGS, load
from dlsched.switch.worker import host_copy, inference_worker, training_worker

HTTP = "http"
STANDBY = 2  # inference workers: one may still clean up while the next one computes


@dataclass(slots=True)
class _Request:
    client: socket.socket
    value: torch.Tensor
    switched: bool = False


class Controller:
    """One device with a training and services."""

    def __init__(self, path: str, training: str, services: Mapping[str, str]) -> None:
        """Build everything and start the workers.

        Args:
            path: of the socket for lines of requests, or HTTP: requests come over HTTP, at HOST and
                PORT of the environment.
            training: file of the training; empty: none.
            services: files by name.

        Raises:
            BadInput: a file is not what it should be, or there is a GPU, or the socket cannot be
                made.
        """
        if torch.cuda.is_available():
            raise BadInput("dlsched.switch has been tried on CPUs only: hide the GPUs from it")
        self._services: dict[str, tuple[torch.Tensor, Layout, list[int]]] = {
            name: host_copy(file) for name, file in services.items()
        }
        size = max((block.numel() for block, _, _ in self._services.values()), default=0)
        if training:
            size = max(size, layout_of(load(training, OF_TRAININGS).build()[0], None).size)
        self.block = torch.zeros(size, dtype=torch.uint8)
        self.block.share_memory_()  # type: ignore[no-untyped-call]  # PyTorch has no types for it
        start = processes.get_context("spawn")
        self._stop = start.Event()
        self._workers: list[Any] = []
        self._inference = [
            self._start(inference_worker, self.block, dict(services)) for _ in range(STANDBY)
        ]
        self._training = (
            self._start(training_worker, self.block, training, self._stop) if training else None
        )
        for pipe in (*self._inference, *([self._training] if self._training else [])):
            pipe.recv()
        self.gpu = SwitchedGpu(trains=bool(training), idle_s=IDLE_S)
        self.iterations = 0
        self._requests: dict[int, _Request] = {}
        self._count = self._turn = 0
        self._serving: tuple[int, Connection] | None = None
        self._clients: dict[socket.socket, ClientProtocol] = {}
        self._listener = _listen_http() if path == HTTP else _listen(path)
        self._path = path
        self._events = selectors.DefaultSelector()
        self._events.register(self._listener, selectors.EVENT_READ, self._accept)
        for pipe in self._inference:
            self._events.register(pipe, selectors.EVENT_READ, self._answered)
        if self._training is not None:
            self._events.register(self._training, selectors.EVENT_READ, self._training_said)

    def _start(self, work: Any, *arguments: Any) -> Connection:
        start = processes.get_context("spawn")
        mine, theirs = start.Pipe()
        worker = start.Process(target=work, args=(theirs, *arguments), daemon=True)
        worker.start()
        theirs.close()
        self._workers.append(worker)
        return mine

    # -- the loop ----------------------------------------------------------------------------------

    def run(self, *, until_trained: bool = False) -> None:
        """Serve requests and train, until interrupted or, if wished, until the training is done."""
        while not (until_trained and self._training is None):
            now = time.monotonic()
            if self.gpu.wake_at <= now:
                self._do(self.gpu.woke(now))
            wait = max(self.gpu.wake_at - now, 0.0) if self.gpu.wake_at < float("inf") else None
            for key, _ in self._events.select(wait):
                key.data(key.fileobj)

    def close(self) -> None:
        """End all workers."""
        for pipe in (*self._inference, *([self._training] if self._training else [])):
            pipe.close()
        self._stop.set()
        for worker in self._workers:
            worker.join(5)
            worker.kill()
        self._listener.close()
        if self._path != HTTP:
            os.unlink(self._path)

    def _do(self, todo: list[Do]) -> None:
        for each in todo:
            if each.verb == "stop":
                self._stop.set()
                for request in self._requests.values():
                    request.switched = True
            elif each.service == TRAINING and self._training is not None:
                self._stop.clear()
                self._training.send("go on")
            else:
                self._serve(each.task, each.service)

    def _serve(self, task: int, service: str) -> None:
        """Give a worker the device: it computes while the groups of its model arrive."""
        block, layout, ends = self._services[service]
        pipe = self._inference[self._turn % len(self._inference)]
        self._turn += 1
        self._serving = task, pipe
        pipe.send((service, self._requests[task].value, ends))
        begin = 0
        for number, layer in enumerate(ends):
            end = layout.ends[layer]
            self.block[begin:end].copy_(block[begin:end])
            begin = end
            pipe.send(number)

    # -- what happens ------------------------------------------------------------------------------

    def _answered(self, pipe: Connection) -> None:
        what, found = pipe.recv()
        if self._serving is not None:
            task, _ = self._serving
            request = self._requests.pop(task)
            answer = {what: found.tolist() if what == "output" else found}
            self._tell(request.client, {**answer, "switched": request.switched})
        self._do(self.gpu.ended(time.monotonic()))

    def _training_said(self, pipe: Connection) -> None:
        try:
            what, self.iterations = pipe.recv()
        except (EOFError, OSError):
            what = "failed"
        if what == "stopped":
            self._do(self.gpu.ended(time.monotonic()))
            return
        self._events.unregister(pipe)
        self._training = None
        print(f"training {what} after {self.iterations} iterations", flush=True)
        self._do(self.gpu.training_ended(time.monotonic()))

    def _accept(self, listener: socket.socket) -> None:
        client, _ = listener.accept()
        self._clients[client] = Http() if self._path == HTTP else Lines()
        self._events.register(client, selectors.EVENT_READ, self._asked)

    def _asked(self, client: socket.socket) -> None:
        try:
            data = client.recv(65536)
            requests = self._clients[client].fed(data)
        except (OSError, ValueError) as error:
            self._tell(client, {"error": str(error)})
            self._leave(client)
            return
        if not data:
            self._leave(client)
            return
        for named, document in requests:
            try:
                asked = json.loads(document)
                service, value = named or asked["service"], torch.tensor(asked["input"])
                if service not in self._services:
                    raise ValueError(f"no service {service}; there are {', '.join(self._services)}")
            except (ValueError, KeyError, TypeError) as error:
                self._tell(client, {"error": str(error)})
                continue
            self._count += 1
            self._requests[self._count] = _Request(client, value)
            self._do(self.gpu.requested(self._count, service))

    def _tell(self, client: socket.socket, answer: Mapping[str, object]) -> None:
        protocol = self._clients.get(client)
        if protocol is None:
            return  # it has gone
        try:
            client.sendall(protocol.answer(answer))
        except OSError:
            return  # it has gone
        if protocol.once:
            self._leave(client)

    def _leave(self, client: socket.socket) -> None:
        if self._clients.pop(client, None) is not None:
            self._events.unregister(client)
            client.close()


def _listen(path: str) -> socket.socket:
    """Listen for clients of this user.

    Raises:
        BadInput: names the path, and why not.
    """
    listener = socket.socket(socket.AF_UNIX)
    try:
        listener.bind(path)
        os.chmod(path, 0o600)
    except OSError as error:
        listener.close()
        raise BadInput(f"--listen {path}: {error.strerror or error}") from None
    listener.listen()
    return listener


def _listen_http() -> socket.socket:
    """Listen where a service says that its replicas are to.

    Raises:
        BadInput: the environment does not say it, or another program listens there.
    """
    try:
        where = os.environ["HOST"], int(os.environ["PORT"])
        return socket.create_server(where)
    except (KeyError, ValueError):
        raise BadInput(
            "--listen http: HOST and PORT say where, as for replicas of services"
        ) from None
    except OSError as error:
        raise BadInput(f"--listen http: {error.strerror or error}") from None
