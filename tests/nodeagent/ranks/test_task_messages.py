"""What a process asks for its short tasks, on its way through the keeper: one request at a time."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from dlsched.job import messages as words
from dlsched.nodeagent.keeper.framing import Frames, frame
from dlsched.nodeagent.ranks.task_messages import TaskMessages


class Scene:
    """A keeper that notes what it sends, and processes that note what they get."""

    def __init__(self) -> None:
        self.sent: list[dict[str, Any]] = []
        spec = SimpleNamespace(launch=SimpleNamespace(takes_tasks=True))
        keeper: Any = SimpleNamespace(spec=spec, send_to_agent=self._take)
        self.messages = TaskMessages(keeper)

    def _take(self, message: dict[str, Any]) -> None:
        self.sent.extend(Frames().feed(frame(message)))

    def process(self) -> Any:
        got: list[words.Message] = []
        return SimpleNamespace(is_foreign=False, send_message=got.append, got=got)

    def ask(self, peer: Any, *held: int) -> None:
        self.messages.from_job(peer, words.WantTasks(held=held))

    def answer(self, number: int, *tasks: int) -> None:
        lines = ["true"] * len(tasks)
        answer = {"numbers": list(tasks), "lines": lines, "over": False}
        self.messages.from_agent({"tasks": answer, "number": number})


def test_of_many_requests_one_is_under_way_and_the_newest_follows() -> None:
    scene = Scene()
    peer = scene.process()
    for held in range(1000):
        scene.ask(peer, held)
    assert [each["want_tasks"]["held"] for each in scene.sent] == [[0]]
    scene.answer(1, 7)
    assert [each["want_tasks"]["held"] for each in scene.sent] == [[0], [999]]
    assert [each.numbers for each in peer.got] == [(7,)]


def test_an_answer_that_comes_twice_is_no_answer_to_the_next_request() -> None:
    scene = Scene()
    peer = scene.process()
    scene.ask(peer, 1)
    scene.messages.new_agent()
    scene.answer(1, 7)
    scene.ask(peer, 2)
    scene.answer(1, 7)
    assert len(peer.got) == 1
    scene.answer(2, 8)
    assert [each.numbers for each in peer.got] == [(7,), (8,)]


def test_a_process_that_is_gone_holds_up_no_other() -> None:
    scene = Scene()
    gone, later, peer = scene.process(), scene.process(), scene.process()
    scene.ask(gone, 1)
    scene.ask(later, 2)
    scene.messages.closed(gone)
    scene.messages.closed(later)
    scene.ask(peer, 3)
    scene.answer(1, 7)
    assert not gone.got
    scene.answer(2, 8)
    assert [each.numbers for each in peer.got] == [(8,)]
