"""Ranks that hand their state over to those of the next run: no file, no sample lost."""

from __future__ import annotations

import contextlib
import hashlib
import json
import select
import socket
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from dlsched.job import messages as words
from dlsched.job.gang.hand_over import (
    FROM_BEFORE,
    LENGTH,
    NotHandedOver,
    Parcel,
    Place,
    Plan,
    Receiver,
    bring,
)
from dlsched.job.runtime import Runtime
from dlsched.job.saving.checkpoint_folder import CheckpointFolder
from dlsched.job.saving.states import States
from tests.job.conftest import ScriptedKeeper

# Ranks with a state of all, one of each rank and a position in the data. They print what they used.
PROGRAM = """
import os, sys, time
from dlsched.job import attach

with attach(folder="ckpt", every_s=None) as job:
    total, own = [0], [0]
    def load_total(f):
        total[0] = int(f.read())
        if os.environ.get("BROKEN"): raise ValueError("no")
    job.checkpoint.register("total", save=lambda f: f.write(str(total[0]).encode()),
                            load=load_total, try_load=False)
    job.checkpoint.register("own", save=lambda f: f.write(str(own[0]).encode()),
                            load=lambda f: own.__setitem__(0, int(f.read())), each_rank=True)
    sampler = job.sampler(600, seed=3, pad=False)
    first = job.restore()
    print("from", first, total[0], own[0], flush=True)
    for chosen in sampler.batches(2, epochs=1):
        print("used", *chosen, flush=True)
        total[0] += 1
        own[0] += 1 + job.rank
        time.sleep(float(os.environ["PACE"]))
        if not job.step():
            break
    print("at", job.steps, total[0], own[0])
"""


@pytest.fixture
def keepers(tmp_path: Path) -> Iterator[list[ScriptedKeeper]]:
    """Those of the present run and of the next one."""
    folders = [tmp_path / "1", tmp_path / "2"]
    for each in folders:
        each.mkdir()
    made = [ScriptedKeeper(each) for each in folders]
    made[0].answer = lambda message: (
        words.CheckpointAnswer(accepted=True, path=message.path)
        if isinstance(message, words.CheckpointMade)
        else None
    )
    yield made
    for keeper in made:
        keeper.close()


class Adjustment:
    """Ranks that train, and ranks that wait for their state."""

    def __init__(self, ranks: Any, ports: Any, keepers: list[ScriptedKeeper]) -> None:
        self.ranks, self.ports, self.keepers = ranks, ports, keepers

    def start(self, run: int, size: int, **environment: str) -> list[Any]:
        keeper = self.keepers[run - 1]
        common = {
            "DLSCHED_CTL_SOCK": keeper.path, "DLSCHED_RUN": str(run), "DLSCHED_JOB_ID": "7",
            "DLSCHED_IN_PLACE": "1", "DLSCHED_RUN_ID": f"r{run}",
            # the present run has steps left when the next one is ready, on a busy machine too
            "PACE": "0.1" if run == 1 else "0.001",
        }  # fmt: skip
        gang: list[Any] = self.ranks.gang(PROGRAM, size, self.ports(), **{**common, **environment})
        return gang

    def ready(self) -> Plan:
        """Where the new ranks wait, each one brought the state by the one before."""
        told = self.keepers[1].wait_for(words.Ready)
        places = [Place("127.0.0.1", port, rank - 1) for rank, port in enumerate(told.ports)]
        return Plan(told.word, tuple(places))

    def stop(self, plan: Plan | None) -> None:
        where = "" if plan is None else plan.to_text()
        for place in range(len(self.keepers[0].connections)):
            self.keepers[0].say(words.Stop(reason="resize", hand_over=where), to=place)

    def go_on(self) -> None:
        for place in range(len(self.keepers[1].connections)):
            self.keepers[1].say(words.TakeOver(), to=place)

    def abort(self) -> None:
        """Ask all new ranks that are left to end."""
        for place in range(len(self.keepers[1].connections)):
            with contextlib.suppress(OSError):  # of the one that was killed
                self.keepers[1].say(words.Stop(reason="abort"), to=place)

    def end(self, gang: list[Any]) -> list[tuple[int, list[str], str]]:
        return [self.ranks.end(process) for process in gang]


@pytest.fixture
def adjustment(ranks: Any, free_ports: Any, keepers: list[ScriptedKeeper]) -> Adjustment:
    return Adjustment(ranks, free_ports, keepers)


@pytest.fixture
def free_ports() -> Any:
    def free() -> int:
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            return int(probe.getsockname()[1])

    return free


def used(outs: list[list[str]]) -> list[int]:
    return [int(x) for out in outs for line in out for x in line.split()[1:] if "used" in line]


@pytest.mark.parametrize(("before", "after"), [(2, 3), (3, 1), (1, 2), (2, 2)])
def test_new_ranks_go_on_with_the_state_of_the_old_ones(
    adjustment: Adjustment, tmp_path: Path, before: int, after: int
) -> None:
    old = adjustment.start(1, before)
    adjustment.keepers[0].wait_for(words.StepDone)
    new = adjustment.start(2, after, DLSCHED_FOLLOWS="1")
    adjustment.stop(adjustment.ready())
    ends = adjustment.end(old)
    assert [(code, err) for code, _, err in ends] == [(143, "")] * before
    told = adjustment.keepers[0].all_of(words.Leaving)
    assert [(each.handed_over, each.finished) for each in told] == [(True, False)] * before
    assert not adjustment.keepers[1].all(words.StepDone)  # though they have all states
    adjustment.go_on()
    later = adjustment.end(new)
    assert [(code, err) for code, _, err in later] == [(0, "")] * after
    (step,) = {int(out[-1].split()[1]) for _, out, _ in ends}
    for rank, (_, out, _) in enumerate(later):
        own = step * (1 + rank) if rank < before else 0
        assert out[0] == f"from {step} {step} {own}"
    outs = [out for _, out, _ in (*ends, *later)]
    assert sorted(used(outs)) == list(range(600))
    assert not list(tmp_path.rglob("manifest.json"))


@pytest.mark.parametrize("victim", ["new", "none told"])
def test_without_all_new_ranks_the_old_ones_leave_a_checkpoint(
    adjustment: Adjustment, tmp_path: Path, victim: str
) -> None:
    old = adjustment.start(1, 2)
    adjustment.keepers[0].wait_for(words.StepDone)
    new = adjustment.start(2, 2, DLSCHED_FOLLOWS="1")
    plan = adjustment.ready()
    if victim == "new":
        new[1].kill()
        new[1].wait()
    adjustment.stop(plan if victim == "new" else None)
    ends = adjustment.end(old)
    assert [code for code, _, _ in ends] == [143, 143]
    told = adjustment.keepers[0].all_of(words.Leaving)
    assert [each.handed_over for each in told] == [False, False]
    step = int(ends[0][1][-1].split()[1])
    (made,) = adjustment.keepers[0].all(words.CheckpointMade)
    assert made.step == step
    complained = "the state is not handed over" in ends[0][2]
    assert complained == (victim == "new")
    adjustment.abort()
    ends = [adjustment.ranks.end(each)[0] for each in new]
    assert ends == ([143, -9] if victim == "new" else [143, 143])


def test_a_follower_without_its_keeper_ends(adjustment: Adjustment) -> None:
    new = adjustment.start(2, 1, DLSCHED_FOLLOWS="1")
    adjustment.ready()
    for each in adjustment.keepers[1].connections:
        each.shutdown(socket.SHUT_RDWR)
    code, _, err = adjustment.ranks.end(new[0])
    assert code == 1
    assert "the keeper is gone, so nothing can be taken over" in err


# -- one end ---------------------------------------------------------------------------------------


@contextlib.contextmanager
def receivers(count: int, word: str = "w") -> Iterator[list[Receiver]]:
    """Ends that take whatever comes, each in a thread."""
    made = [Receiver(rank) for rank in range(count)]
    done = threading.Event()

    def take(each: Receiver) -> None:
        while not done.is_set():
            if select.select([each], [], [], 0.5)[0]:
                each.take()

    threads = [threading.Thread(target=take, args=(each,), daemon=True) for each in made]
    for receiver, thread in zip(made, threads, strict=True):
        receiver.expect(word)
        thread.start()
    yield made
    done.set()
    for receiver, thread in zip(made, threads, strict=True):
        thread.join(10)
        receiver.close()


def plan_for(made: list[Receiver], sources: list[int], word: str = "w") -> Plan:
    places = [Place("127.0.0.1", r.port, s) for r, s in zip(made, sources, strict=True)]
    return Plan(word, tuple(places))


COMMON = Parcel(5, own=False, own_ranks=0, states={"a": b"x" * 100_000, "empty": b""})


@pytest.mark.parametrize(
    "sources", [[-1, 0, 1, 2], [-1, -1, -1, -1], [-1, 0, -1, 2], [1, -1, 1, 1]]
)
def test_each_new_rank_gets_the_state_once_by_its_own_way(sources: list[int]) -> None:
    with receivers(4) as made:
        plan = plan_for(made, sources)
        bring(plan, COMMON, plan.served_by(FROM_BEFORE))
        assert [each.copied for each in made] == [COMMON.bytes] * 4
        assert all(each.states() == COMMON.states for each in made)
        assert [each.step for each in made] == [5] * 4


def test_a_rank_waits_for_its_own_state_too() -> None:
    both = Parcel(5, own=False, own_ranks=1, states={"a": b"x"})
    with receivers(2) as made:
        plan = plan_for(made, [-1, -1])
        bring(plan, both, [0, 1])
        assert [each.step for each in made] == [None, 5]
        bring(plan, Parcel(4, own=True, own_ranks=0, states={"r": b"old"}), [0])
        assert made[0].step is None  # of another step
        bring(plan, Parcel(5, own=True, own_ranks=0, states={"r": b"new"}), [0])
        assert made[0].step == 5
        assert made[0].states() == {"a": b"x", "r": b"new"}


def test_a_stranger_and_half_a_parcel_change_nothing() -> None:
    with receivers(1) as made:
        plan = plan_for(made, [-1], word="guess")
        with pytest.raises(NotHandedOver):
            bring(plan, COMMON, [0])
        for junk in (b"", b"\0" * 7, b"\0" * 32 + LENGTH.pack(2) + b"[]"):
            with socket.create_connection(("127.0.0.1", made[0].port), 5) as link:
                link.sendall(junk)
        proof = hashlib.sha256(b"w").digest()
        header = json.dumps({
            "plan": plan.to_text(), "step": 1, "own": False, "own_ranks": 0,
            "states": [["a", 1000]],
        }).encode()  # fmt: skip
        for half in (LENGTH.pack(1 << 60), LENGTH.pack(len(header)) + header + b"x" * 999):
            with socket.create_connection(("127.0.0.1", made[0].port), 5) as link:
                link.sendall(proof + half)
        bring(plan_for(made, [-1]), COMMON, [0])  # it still listens
        assert made[0].step == 5


@pytest.mark.parametrize("text", [b"[" * 200_000, b'{"states": [["a", Infinity]]}'])
def test_nothing_of_a_stranger_is_decoded(text: bytes) -> None:
    """Each of these texts is more than the decoder can bear."""
    with receivers(1) as made:
        with socket.create_connection(("127.0.0.1", made[0].port), 5) as link:
            link.sendall(b"\0" * 32 + LENGTH.pack(len(text)) + text)
        bring(plan_for(made, [-1]), COMMON, [0])
        assert made[0].step == 5


def test_strangers_that_say_nothing_delay_no_state() -> None:
    with receivers(1) as made, contextlib.ExitStack() as held:
        for said in [b"", b"\0"] * 40:  # more than may wait
            link = socket.create_connection(("127.0.0.1", made[0].port), 5)
            held.enter_context(link).sendall(said)
        bring(plan_for(made, [-1]), COMMON, [0])  # while all of them are connected
        assert made[0].step == 5


def test_a_copy_that_fails_further_on_is_no_copy() -> None:
    with receivers(1) as made:
        with socket.socket() as gone:
            gone.bind(("127.0.0.1", 0))
            port = gone.getsockname()[1]
        plan = Plan("w", (Place("127.0.0.1", made[0].port, -1), Place("127.0.0.1", port, 0)))
        with pytest.raises(NotHandedOver):
            bring(plan, COMMON, [0])
        assert made[0].step is None


def test_what_is_handed_over_is_what_a_checkpoint_has(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    from dlsched.job import attach  # noqa: PLC0415
    from dlsched.job.torch import register_training  # noqa: PLC0415

    def made(folder: Path) -> Any:
        torch.manual_seed(1)
        net = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.BatchNorm1d(4))
        optimizer = torch.optim.Adam(net.parameters())
        job = attach(folder=folder, every_s=None, environment={})
        register_training(job, model=net, optimizer=optimizer)
        return job, net, optimizer, job.sampler(100)

    def train(job: Any, net: Any, optimizer: Any, sampler: Any, steps: int) -> list[float]:
        losses = []
        for chosen in sampler.batches(8):
            optimizer.zero_grad()
            loss = (net(torch.randn(len(chosen), 4)) - chosen[0]).square().mean()
            loss.backward()
            optimizer.step()
            losses.append(float(loss.detach()))
            job.step()
            if len(losses) == steps:
                break
        return losses

    before = made(tmp_path / "a")
    before[0].restore()
    train(*before, 5)
    states: States = before[0].checkpoint.states
    common, own = states.contents(each_rank=False), states.contents(each_rank=True)
    before[0].save()
    before[0].close()
    after_restart, in_place = made(tmp_path / "a"), made(tmp_path / "b")
    in_place[0].checkpoint.states.load_contents({**common, **own})
    taken = train(*in_place, 5)
    assert after_restart[0].restore() == 5
    assert train(*after_restart, 5) == taken
    for job in (after_restart[0], in_place[0]):
        job.close()
    assert CheckpointFolder(tmp_path / "a").newest_first()
    assert not (tmp_path / "b").exists()


def test_the_environment_says_what_a_rank_is() -> None:
    runtime = Runtime.of({"DLSCHED_IN_PLACE": "1", "DLSCHED_FOLLOWS": "1"})
    assert (runtime.in_place, runtime.follows) == (True, True)
    assert (Runtime.of({}).in_place, Runtime.of({}).follows) == (False, False)
