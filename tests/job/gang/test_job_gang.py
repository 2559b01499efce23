from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import time
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dlsched.job import messages as words
from dlsched.job.gang.agreement import Agreement, Numbers, Wish

# Ranks that are not coupled but by the library, of unequal speed. Each prints the step it stops at.
PROGRAM = """
import os, sys, time
from dlsched.job import attach

pace = float(sys.argv[1]) * (1 + int(os.environ["RANK"]))
most = int(sys.argv[2])
with attach(folder="ckpt", every_s=None) as job:
    value = [0]
    job.checkpoint.register("value", save=lambda f: f.write(str(value[0]).encode()),
                            load=lambda f: value.__setitem__(0, int(f.read())))
    own = [0]
    job.checkpoint.register("own", save=lambda f: f.write(str(own[0]).encode()),
                            load=lambda f: own.__setitem__(0, int(f.read())), each_rank=True)
    first = job.restore()
    print("from", first, value[0], own[0], flush=True)
    go = True
    while go and job.steps < most:
        value[0] += 1
        own[0] += 1 + job.rank
        time.sleep(pace)
        go = job.step()
        if job.steps == first + 5:
            print("five", flush=True)
    print("at", job.steps, value[0], own[0])
"""


def lines(process: Any, count: int) -> list[str]:
    return [process.stdout.readline().strip() for _ in range(count)]


@pytest.mark.parametrize("asked", [0, 2])
def test_all_ranks_stop_after_the_same_step_and_go_on_together(
    ranks: Any, free_port: int, asked: int
) -> None:
    gang = ranks.gang(PROGRAM, 3, free_port, "0.0005", "100000")
    for process in gang:
        assert lines(process, 2) == ["from 0 0 0", "five"]
    os.kill(gang[asked].pid, signal.SIGTERM)
    ends = [ranks.end(process) for process in gang]
    assert [(code, err) for code, _, err in ends] == [(143, "")] * 3
    stops = [out[-1].split() for _, out, _ in ends]
    (step,) = {int(stop[1]) for stop in stops}
    assert [int(stop[3]) for stop in stops] == [step, 2 * step, 3 * step]

    later = ranks.gang(PROGRAM, 2, free_port, "0", str(step))  # of fewer ranks
    outs = [ranks.end(process)[1] for process in later]
    assert [out[0] for out in outs] == [f"from {step} {step} {step * k}" for k in (1, 2)]


def test_a_stop_that_one_keeper_asks_for_stops_the_gang(
    ranks: Any, free_port: int, keeper: Any
) -> None:
    gang = ranks.gang(
        PROGRAM, 2, free_port, "0.0005", "100000", DLSCHED_CTL_SOCK=keeper.path, DLSCHED_RUN="1"
    )
    keeper.wait_for(words.StepDone)
    keeper.say(words.Stop(deadline_s=1.0), to=0)
    ends = [ranks.end(process) for process in gang]
    assert [code for code, _, _ in ends] == [143, 143]
    assert len({out[-1].split()[1] for _, out, _ in ends}) == 1


def test_ranks_that_end_by_themselves_delay_no_other_rank(ranks: Any, free_port: int) -> None:
    gang = ranks.gang(PROGRAM, 3, free_port, "0", "57")
    assert [ranks.end(process)[0] for process in gang] == [0, 0, 0]


def test_an_unknown_connection_at_the_port_is_refused(ranks: Any, free_port: int) -> None:
    first = ranks.gang(PROGRAM, 2, free_port, "0.0005", "100000")[0]
    stranger = ranks.start(
        PROGRAM,
        "0",
        "10",
        environment={
            "RANK": "1",
            "WORLD_SIZE": "2",
            "MASTER_PORT": str(free_port),
            "DLSCHED_JOB_ID": "another",
        },
    )
    assert lines(first, 2)[1] == "five"
    os.kill(first.pid, signal.SIGTERM)
    assert ranks.end(first)[0] == 143
    stranger.kill()


def test_a_rank_that_does_not_know_the_runs_id_is_no_rank(ranks: Any, free_port: int) -> None:
    names = {"WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port)}
    start = partial(ranks.start, PROGRAM, "0", "20")
    first = start(environment={"RANK": "0", "DLSCHED_RUN_ID": "right", **names})
    for guess in ("", "wrong"):
        stranger = start(environment={"RANK": "1", "DLSCHED_RUN_ID": guess, **names})
        lines(stranger, 1)
        ranks.end(stranger)
    second = start(environment={"RANK": "1", "DLSCHED_RUN_ID": "right", **names})
    assert [ranks.end(each)[0] for each in (first, second)] == [0, 0]


def test_connections_that_say_no_greeting_delay_no_gang(ranks: Any, free_port: int) -> None:
    names = {"WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port)}
    start = partial(ranks.start, PROGRAM, "0", "20")
    first = start(environment={"RANK": "0", **names})
    with contextlib.ExitStack() as held:
        for _ in range(70):  # more than may wait
            held.enter_context(connected(free_port)).sendall(b"dlsched 1 ")
        second = start(environment={"RANK": "1", **names})
        assert [ranks.end(each)[0] for each in (first, second)] == [0, 0]


def connected(port: int) -> socket.socket:
    """A connection to a port at which something will listen."""
    until = time.monotonic() + 60
    while True:
        try:
            return socket.create_connection(("127.0.0.1", port), 5)
        except ConnectionRefusedError:
            assert time.monotonic() < until, "nothing listens"
            time.sleep(0.02)


# -- the rendezvous as such ------------------------------------------------------------------------


class Hub:
    """All ranks in one thread: what each has posted, in order."""

    def __init__(self, size: int) -> None:
        self.posts: list[list[Numbers]] = [[] for _ in range(size)]
        self.read = [0] * size


class Spoke:
    def __init__(self, hub: Hub, rank: int) -> None:
        self.hub, self.rank = hub, rank

    def post(self, words: Numbers) -> None:
        self.hub.posts[self.rank].append(words)

    def collect(self) -> list[Numbers]:
        turn = self.hub.read[self.rank]
        assert all(len(posts) > turn for posts in self.hub.posts), "would wait for ever"
        self.hub.read[self.rank] += 1
        return [posts[turn] for posts in self.hub.posts]

    def close(self) -> None:
        pass


@given(
    size=st.integers(2, 4),
    stride=st.integers(1, 9),
    wishes=st.lists(
        st.tuples(st.integers(0, 3), st.integers(1, 40), st.integers(1, 60)), max_size=4
    ),
    saves=st.sets(st.integers(1, 40), max_size=3),
)
def test_ranks_that_do_the_same_steps_decide_the_same_and_never_wait_for_ever(
    size: int, stride: int, wishes: list[Numbers], saves: set[int]
) -> None:
    """A rank wishes from some step on to stop at some step; all run step by step."""
    hub = Hub(size)
    ranks = [Agreement(Spoke(hub, rank), 0) for rank in range(size)]
    stopped = 0
    for step in range(1, 120):
        verdicts = []
        for rank, agreement in enumerate(ranks):
            own = [at for owner, since, at in wishes if owner % size == rank and since <= step]
            wish = Wish(stop_at=min(own, default=0), save=step in saves, stride=stride)
            verdict = agreement.after(step, wish)
            verdicts.append(verdict)
            if not verdict.stop:
                agreement.meet(step, wish)
        assert len(set(verdicts)) == 1
        if verdicts[0].stop:
            stopped = step
            break
    if not wishes:
        assert not stopped
        return
    soonest = min(max(since, at) for _, since, at in wishes)
    assert soonest <= stopped <= soonest + 2 * stride + 1


def test_a_first_step_that_was_measured_as_nothing_delays_no_stop() -> None:
    """A loop that calls `step` before it trains: its first step takes microseconds."""
    hub = Hub(2)
    ranks = [Agreement(Spoke(hub, rank), 0) for rank in range(2)]
    step, stopped = 0, False
    while not stopped:
        step += 1
        for rank, agreement in enumerate(ranks):
            wish = Wish(stride=5000 if step == 1 else 1, stop_at=int(rank == 1 and step > 2))
            stopped = agreement.after(step, wish).stop
            agreement.meet(step, wish)
    assert step < 8


def test_the_states_of_every_rank_are_in_the_manifest(ranks: Any, free_port: int) -> None:
    gang = ranks.gang(PROGRAM, 2, free_port, "0.0005", "100000")
    assert lines(gang[0], 2)[1] == "five"
    os.kill(gang[0].pid, signal.SIGTERM)
    for process in gang:
        assert ranks.end(process)[0] == 143
    (folder,) = (Path(ranks._folder) / "ckpt").iterdir()
    manifest = json.loads((folder / "manifest.json").read_text())
    assert [(part["state"], part["rank"]) for part in manifest["parts"]] == [
        ("value", None),
        ("own", 0),
        ("own", 1),
    ]
    assert manifest["world_size"] == 2
    assert sorted(path.name for path in folder.iterdir()) == [
        "committed",
        "manifest.json",
        "own.rank0",
        "own.rank1",
        "value",
    ]


FAILING = """
import os, sys
from dlsched.job import attach

rank = int(os.environ["RANK"])
value = [0]

def save(file):
    if rank == 1 and value[0] == 2:
        raise RuntimeError("no space")
    file.write(str(value[0]).encode())

with attach(folder="ckpt", every_s=None, every_steps=1) as job:
    job.checkpoint.register("own", each_rank=True, save=save,
                            load=lambda f: value.__setitem__(0, int(f.read())))
    print(job.restore(), value[0])
    while job.steps < int(sys.argv[1]):
        value[0] += 1
        job.step()
"""


def test_a_rank_that_cannot_save_means_no_checkpoint_for_all_and_the_training_goes_on(
    ranks: Any, free_port: int
) -> None:
    ends = [ranks.end(process) for process in ranks.gang(FAILING, 2, free_port, "2")]
    assert [(code, out) for code, out, _ in ends] == [(0, ["0 0"])] * 2
    assert ends[0][2] == "dlsched.job: no checkpoint after step 2: another rank has failed\n"
    assert ends[1][2] == "dlsched.job: no checkpoint after step 2: RuntimeError: no space\n"
    ends = [ranks.end(process) for process in ranks.gang(FAILING, 2, free_port, "1")]
    assert [(code, out) for code, out, _ in ends] == [(0, ["1 1"])] * 2
