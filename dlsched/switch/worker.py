"""A worker: a process that has built everything, and waits for its turn on the device.

Nothing of a model is on the device before its turn: the tensors of all models are views of the one
block of device memory, at places that the controller knows as well, and the controller fills them,
group by group. A service computes each group as soon as it has arrived. The training keeps a copy
of its last whole iteration in host memory; told to stop, it ends at the next layer, and goes on
from that copy when it has the device again.
"""

from __future__ import annotations

import copy
from multiprocessing.connection import Connection
from multiprocessing.synchronize import Event
from typing import Any

import torch

from dlsched.switch.layout import Layout, layout_of, measured_groups
from dlsched.switch.program import OF_SERVICES, OF_TRAININGS, load


class _Stopped(Exception):
    """The training was told to stop."""


def inference_worker(pipe: Connection, block: torch.Tensor, services: dict[str, str]) -> None:
    """Answer requests, one after another, until the controller hangs up."""
    torch.set_num_threads(1)
    built = {name: _Service(path, block, pipe) for name, path in services.items()}
    pipe.send("built")
    while (message := _next(pipe)) is not None:
        name, value, ends = message
        try:
            pipe.send(("output", built[name].answer(value, ends)))
        except Exception as error:  # a model of the user's, which another request may suit
            built[name].wait_for_all(ends)
            pipe.send(("error", f"{type(error).__name__}: {error}"))


class _Service:
    """A model whose parameters arrive while it computes."""

    def __init__(self, path: str, block: torch.Tensor, pipe: Connection) -> None:
        program = load(path, OF_SERVICES)
        self._model, example = program.build().eval(), program.example()
        self._layout = layout_of(self._model, example)
        self._block, self._pipe, self._arrived = block, pipe, 0
        self._group_of: dict[torch.nn.Module, int] = {}
        self._model.register_forward_pre_hook(lambda _module, _given: self._wait(0))
        for layer in self._layout.layers:
            layer.register_forward_pre_hook(
                lambda module, _given: self._wait(self._group_of[module])
            )
        self._layout.move_into(block)

    def answer(self, value: torch.Tensor, ends: list[int]) -> torch.Tensor:
        """Compute the answer to an input, while the model arrives in groups with these ends."""
        group = 0
        for number, layer in enumerate(self._layout.layers):
            group += group < len(ends) - 1 and number > ends[group]
            self._group_of[layer] = group
        self._arrived = 0
        with torch.no_grad():
            found: torch.Tensor = self._model(value)
        self.wait_for_all(ends)
        return found

    def wait_for_all(self, ends: list[int]) -> None:
        """Wait for all groups, also those of layers that were not used."""
        self._wait(len(ends) - 1)

    def _wait(self, group: int) -> None:
        """Wait until a group has arrived."""
        while self._arrived <= group:
            self._pipe.recv()
            self._arrived += 1


def training_worker(pipe: Connection, block: torch.Tensor, path: str, stop: Event) -> None:
    """Train whenever the controller says so, until the training is done or it hangs up."""
    torch.set_num_threads(1)
    training = _Training(path, block, stop)
    pipe.send("built")
    while _next(pipe) is not None:
        is_done = training.go_on()
        pipe.send(("done" if is_done else "stopped", training.iterations))
        if is_done:
            return


class _Training:
    """A training that may lose the device after any layer."""

    def __init__(self, path: str, block: torch.Tensor, stop: Event) -> None:
        self._program = load(path, OF_TRAININGS)
        self._model, self._optimizer = self._program.build()
        self._layout: Layout = layout_of(self._model, None)
        self._stop = stop
        self._host = torch.empty(self._layout.size, dtype=torch.uint8)
        self._block = block
        self.iterations = 0
        self._layout.copy_into(self._host)
        self._layout.move_into(block)
        self._kept: Any = copy.deepcopy(self._optimizer.state_dict()), torch.get_rng_state()
        for layer in self._layout.layers:
            layer.register_forward_hook(self._check)
            for parameter in layer.parameters(recurse=False):
                if parameter.requires_grad:
                    parameter.register_post_accumulate_grad_hook(self._check)  # type: ignore[no-untyped-call]  # PyTorch has no types for it

    def _check(self, *_given: Any) -> None:
        if self._stop.is_set():
            raise _Stopped

    def go_on(self) -> bool:
        """Train from the last whole iteration until told to stop; returns whether all is done."""
        self._block[: self._layout.size].copy_(self._host)
        state, numbers = self._kept
        self._optimizer.load_state_dict(copy.deepcopy(state))
        torch.set_rng_state(numbers)
        try:
            while not self._stop.is_set():
                self._program.iteration(self._model, self._optimizer, self.iterations)
                self.iterations += 1
                self._layout.copy_into(self._host)
                self._kept = copy.deepcopy(self._optimizer.state_dict()), torch.get_rng_state()
        except _Stopped:
            pass
        except StopIteration:
            return True
        self._optimizer.zero_grad(set_to_none=True)
        self._optimizer.state.clear()
        return False


def _next(pipe: Connection) -> Any:
    """The controller's next message; None when it has hung up."""
    try:
        return pipe.recv()
    except EOFError:
        return None


def host_copy(path: str) -> tuple[torch.Tensor, Layout, list[int]]:
    """The parameters of a service in host memory, their layout, and its groups."""
    program = load(path, OF_SERVICES)
    model, example = program.build().eval(), program.example()
    layout = layout_of(model, example)
    block = torch.empty(layout.size, dtype=torch.uint8)
    layout.copy_into(block)
    return block, layout, measured_groups(model, layout, example)
