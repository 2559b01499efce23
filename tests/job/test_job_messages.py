from __future__ import annotations

import json

import pytest

from dlsched.job import messages as words

# fmt: off
FROM_JOB = [
    words.Hello(rank=3, capabilities=("stop", "checkpoint"), pid=7),
    words.StepDone(step=5, batch_s=0.25, loss=1.5, gpu_memory=10, metrics={"accuracy": 0.5}),
    words.CheckpointMade(path="/c/0001-000000005", step=5, bytes=9, sha256="ab", save_s=0.5),
    words.SaveFailed(step=5, why="no space left on /c"),
    words.Restored(step=5, restart_s=1.0, save_bytes=9, room_bytes=8, save_s=0.5),
    words.Leaving(finished=True, job=True),
    words.Trained(
        nodes=2, replicas=4, local=(8, 16), steps=(3, 1), accumulation_s=(0.5, 0.75),
        optimiser_s=(0.625, 1.0), gradient_sqr=0.5, gradient_var=4.0, initial=32, maximum=64,
        local_max=16, may_accumulate=True, local_now=8, progress=12.5,
    ),
    words.StepBegin(held_bytes=5, left_s=2.5),
    words.StepEnd(held_bytes=5, most_bytes=9),
    words.RunRanks(argv=("a", "b c"), ntasks=4, environment={"A": "ü"}, label=True),
    words.SignalRanks(number=15),
]
# fmt: on
FROM_KEEPER = [
    words.Stop(reason="migrate", deadline_s=30.0),
    words.StopAt(step=12),
    words.Limit(share=0.5, memory_bytes=1),
    words.Turn(memory_bytes=10, shared=True),
    words.UseBatch(local=16, accumulation=2),
    words.Processors(count=6),
    words.CheckpointAnswer(accepted=False, why="run 2 is over", path="/c/x"),
    words.Started(ranks=4),
    words.Output(rank=1, data=b"\x00\xff\n", stream=2),
    words.Exited(rank=1, code=3, node="n1"),
    words.Done(),
    words.Refused(why="5 ranks on 4 GPUs"),
]


@pytest.mark.parametrize("message", FROM_JOB, ids=lambda m: m.type)
def test_messages_of_a_job_are_decoded_unchanged(message: words.FromJob) -> None:
    assert words.decode_from_job(words.encode(message)) == message


@pytest.mark.parametrize("message", FROM_KEEPER, ids=lambda m: m.type)
def test_messages_of_a_keeper_are_decoded_unchanged(message: words.FromKeeper) -> None:
    assert words.decode_from_keeper(words.encode(message)) == message


def test_a_newer_side_is_understood_as_far_as_possible() -> None:
    assert words.decode_from_keeper(b'{"type":"teleport","to":"mars"}') is None
    packet = b'{"type":"stop","reason":"preempt","colour":"red"}'
    assert words.decode_from_keeper(packet) == words.Stop()


def test_numbers_that_json_does_not_have_are_left_out() -> None:
    packet = words.encode(words.StepDone(step=1, loss=float("nan"), metrics={"x": float("inf")}))
    assert json.loads(packet) == {"type": "step", "step": 1, "metrics": {}, "not_finite": []}


@pytest.mark.parametrize(
    ("packet", "complaint"),
    [
        (b"\xff", "not JSON"),
        (b"[1]", "an object with a `type`"),
        (b'{"type":1}', "an object with a `type`"),
        (b'{"type":"step"}', "step: missing"),
        (b'{"type":"step","step":"5"}', "step.step: a whole number expected, found str"),
        (b'{"type":"step","step":true}', "step.step: a whole number expected, found bool"),
        (b'{"type":"step","step":1,"loss":NaN}', "step.loss: a finite number expected"),
        (b'{"type":"run","argv":"ls"}', "run.argv: a list expected"),
        (b'{"type":"run","argv":[1]}', "run.argv: text expected"),
        (b'{"type":"run","argv":["a"],"environment":{"A":1}}', "run.environment.A: text"),
        (b'{"type":"step","step":1,"metrics":{"a":"b"}}', "step.metrics.a: a number"),
    ],
)
def test_an_unreadable_message_is_an_error_of_one_line(packet: bytes, complaint: str) -> None:
    with pytest.raises(words.BadMessage) as caught:
        words.decode_from_job(packet)
    assert complaint in str(caught.value)
    assert "\n" not in str(caught.value)
