"""The speeds that live rounds believe: none at first, then the measured ones."""

from __future__ import annotations

from collections.abc import Iterable
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from dlsched.core.speed.belief import AsBelieved, Belief
from dlsched.core.units import Units
from dlsched.daemon.reported.speeds import SpeedTable, kind_of
from dlsched.daemon.round.decide import decide
from dlsched.daemon.round.measured import MeasuredSpeeds, changed_since, measured_speeds
from dlsched.daemon.round.prepared_round import prepare
from dlsched.daemon.round.snapshot import LiveSnapshot
from dlsched.daemon.round.snapshot_builder import take_snapshot
from dlsched.db.contents import JobContent, program_of
from dlsched.db.records import JobBody
from dlsched.db.speeds import MEASURED, SpeedKey, SpeedRow, SpeedsForgotten, SpeedsSet
from dlsched.policies.estimators.pairs import GuessedPairs, PairOptions
from dlsched.protocol.messages import JobId, RunId

RUN = RunId("r1")
V1 = SpeedKey("cnn", 64, "v100", 1)
ONE = np.ones(1, np.int64)
OPEN = PairOptions()


def book_of(*rows: tuple[str, str, int, float] | SpeedRow, at: float = 5.0) -> SpeedTable:
    book = SpeedTable()
    book.load(
        row
        if isinstance(row, SpeedRow)
        else SpeedRow(
            key=SpeedKey(row[0], 0, row[1], row[2]), steps_per_s=row[3], at=at, changed_at=at
        )
        for row in rows
    )
    return book


def speeds_of(book: SpeedTable, kinds: Iterable[tuple[str, int]], gangs: Any) -> MeasuredSpeeds:
    known = dict(enumerate(kinds))
    found = measured_speeds(book.columns(known, {job: job for job in known}), np.array(gangs))
    assert found is not None
    return found


def alone(speeds: MeasuredSpeeds, rows: list[int], scales: list[int], types: Any) -> Any:
    return speeds.alone(np.array(rows), np.array(scales), types).tolist()


# -- what a job is a training of -------------------------------------------------------------------


def test_a_job_is_known_by_its_model_or_by_its_script() -> None:
    def kind(where: str = "", **content: Any) -> Any:
        return kind_of(JobBody(name="a", program=program_of(JobContent(**content), where)))

    named = JobBody(name="a", model="cnn", batch_size=64.0, program="x.py#0123456789abcdef")
    assert kind_of(named) == ("cnn", 64)

    def command(*argv: str, where: str = "/home/ann") -> str:
        return str(kind(where, argv=argv)[0])

    one = command("python", "train.py", "--lr", "0.1")
    assert one.startswith("train.py#")
    assert one == command("python", "train.py", "--lr", "0.1")
    assert one != command("python", "train.py", "--lr", "0.2")  # a model may be there, too
    assert one != command("python", "other.py", "--lr", "0.1")
    assert one != command("python", "train.py", where="/home/bob")
    assert command("python", "/x/t.py") == command("python", "/x/t.py", where="/elsewhere")
    assert command("/bin/tool", "1") != command("/bin/tool", "2")
    script = b"#!/bin/sh\npython train.py\n"
    known = ("script#b4ad738635bf", 0)  # in the tables of speeds of earlier releases
    assert kind(script=script) == known != kind(script=b"other")
    assert kind(script=script, argv=("7",)) != known
    assert kind_of(JobBody(name="nothing")) == ("", 0)
    assert command("python", "wild\udcff.py")


# -- measuring -------------------------------------------------------------------------------------


def test_a_run_is_measured_once_it_is_warm() -> None:
    book = SpeedTable()
    assert book.rate_of(RUN, V1, 1, 0.0, 10.0) is None
    assert book.rate_of(RUN, V1, 50, 9.0, 10.0) is None  # not long enough yet
    assert book.rate_of(RUN, V1, 60, 12.0, 10.0) is None  # it was warming up
    assert book.rate_of(RUN, V1, 60, 30.0, 10.0) is None  # stands still: for how long is unknown
    assert book.rate_of(RUN, V1, 260, 52.0, 10.0) == 5.0
    assert book.rate_of(RUN, None, 300, 70.0, 10.0) is None
    assert book.rate_of(RUN, V1, 200, 80.0, 10.0) is None  # fewer steps than before: from a restart
    assert book.rate_of(RUN, V1, 300, 90.0, 10.0) is None


def test_a_time_in_which_another_job_joined_is_not_measured() -> None:
    book, beside = SpeedTable(), V1._replace(partner="rnn", partner_batch_size=8)
    for step, at in ((1, 0.0), (101, 20.0)):
        book.rate_of(RUN, V1, step, at, 10.0)
    assert book.rate_of(RUN, V1, 201, 40.0, 10.0) == 5.0
    assert book.rate_of(RUN, beside, 251, 55.0, 10.0) is None  # came somewhere in between
    assert book.rate_of(RUN, beside, 301, 75.0, 10.0) == 2.5
    assert book.rate_of(RUN, V1, 351, 90.0, 10.0) is None
    assert book.rate_of(RUN, V1, 401, 100.0, 10.0) == 5.0


def test_the_believed_speed_is_half_the_new_and_half_the_old_one() -> None:
    book = SpeedTable()
    [first] = book.measured(V1, 10.0, at=1.0)
    assert book.take(first)
    assert book.rows[V1] == SpeedRow(
        key=V1, steps_per_s=10.0, measurements=1, source=MEASURED, at=1.0, changed_at=1.0
    )
    [second] = book.measured(V1, 11.0, at=2.0)
    book.take(second)
    known = book.rows[V1]
    assert (known.steps_per_s, known.measurements, known.changed_at) == (10.5, 2, 1.0)
    assert book.measured(V1, 10.6, at=3.0) == ()  # as it was: nothing to store
    [third] = book.measured(V1, 21.0, at=4.0)
    book.take(third)
    assert (book.rows[V1].steps_per_s, book.rows[V1].changed_at) == (15.75, 4.0)
    assert book.take(SpeedsForgotten(keys=(V1,)))
    assert not book.rows
    assert not book.take("something else")


def test_a_measurement_that_confirms_an_import_changes_no_plan() -> None:
    book = book_of(SpeedRow(key=V1, steps_per_s=10.0, measurements=0, source="root", at=1.0))
    (stored,) = book.measured(V1, 10.0, 9.0)
    assert isinstance(stored, SpeedsSet)
    (row,) = stored.rows
    assert (row.steps_per_s, row.measurements, row.source, row.at) == (10.0, 1, MEASURED, 9.0)
    assert row.changed_at == book.rows[V1].changed_at
    book.take(stored)
    assert book.measured(V1, 10.0, 12.0) == ()  # and from then on there is nothing to say


def test_of_too_many_rows_the_oldest_measured_ones_are_dropped(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("dlsched.daemon.reported.speeds.MOST", 3)
    imported = SpeedRow(key=SpeedKey("a", 0, "v100", 1), steps_per_s=1.0, source="root", at=0.0)
    old = SpeedRow(key=SpeedKey("b", 0, "v100", 1), steps_per_s=1.0, at=1.0)
    new = SpeedRow(key=SpeedKey("c", 0, "v100", 1), steps_per_s=1.0, at=2.0)
    book = book_of(imported, old, new)
    forgotten, fresh = book.measured(V1, 3.0, at=3.0)
    assert forgotten == SpeedsForgotten(keys=(old.key,))
    assert isinstance(fresh, SpeedsSet)


# -- believing -------------------------------------------------------------------------------------


def test_no_speeds_are_believed_of_jobs_without_measurements() -> None:
    book = book_of(("cnn", "v100", 1, 10.0))
    assert measured_speeds({}, ONE) is None
    columns = book.columns({0: ("other", 0)}, {0: 0})
    assert measured_speeds(columns, ONE) is None
    speeds = speeds_of(book, [("cnn", 0), ("other", 0)], [1, 1])
    assert alone(speeds, [1], [1], ("k80", "v100")) == [[1.0, 1.0]]
    assert speeds.steps_per_work(np.array([0, 1])).tolist() == [10.0, 1.0]


def test_an_unmeasured_gpu_type_is_as_fast_as_other_kinds_measured_it() -> None:
    book = book_of(("cnn", "v100", 1, 10.0))
    speeds = speeds_of(book, [("cnn", 0)], [1])
    assert alone(speeds, [0], [1], ("k80", "v100")) == [[10.0, 10.0]]
    more = book_of(
        ("cnn", "v100", 1, 10.0),
        *(row for name, k80 in (("a", 2.0), ("b", 4.0), ("c", 5.0)) for row in (
            (name, "v100", 1, 10.0), (name, "k80", 1, k80))),
    )  # fmt: skip
    speeds = speeds_of(more, [("cnn", 0)], [1])
    assert alone(speeds, [0], [1], ("k80", "v100")) == [[4.0, 10.0]]


def test_an_unmeasured_number_of_gpus_is_as_fast_as_the_nearest_one() -> None:
    book = book_of(("cnn", "v100", 1, 10.0), ("cnn", "v100", 8, 50.0), ("cnn", "k80", 8, 5.0))
    speeds = speeds_of(book, [("cnn", 0)], [4])
    assert alone(speeds, [0], [8], ("k80", "v100")) == [[5.0, 50.0]]
    assert alone(speeds, [0], [4], ("k80", "v100")) == [[5.0, 50.0]]
    assert alone(speeds, [0], [2], ("k80", "v100")) == [[1.0, 10.0]]


def test_a_kind_with_zero_steps_on_a_type_is_not_placed_there() -> None:
    book = book_of(("cnn", "v100", 1, 10.0), ("cnn", "k80", 1, 0.0), ("rnn", "k80", 1, 0.0))
    speeds = speeds_of(book, [("cnn", 0), ("rnn", 0)], [1, 1])
    assert alone(speeds, [0, 1], [1, 1], ("k80", "v100")) == [[0.0, 10.0], [0.0, 1.0]]


def test_gpu_types_of_speeds_and_cluster_may_differ() -> None:
    book = book_of(("cnn", "v100", 1, 10.0), ("cnn", "gone", 1, 99.0))
    speeds = speeds_of(book, [("cnn", 0)], [1])
    assert alone(speeds, [0], [1], ("v100",)) == [[10.0]]
    assert alone(speeds, [0], [1], ("new", "v100")) == [[99.0, 10.0]]


def test_pairs_are_known_when_both_halves_are() -> None:
    def pair(one: str, other: str, rate: float) -> SpeedRow:
        return SpeedRow(key=SpeedKey(one, 0, "v100", 1, other, 0), steps_per_s=rate)

    book = book_of(
        ("a", "v100", 1, 10.0), ("b", "v100", 1, 4.0), ("c", "v100", 1, 1.0),
        pair("a", "b", 6.0), pair("b", "a", 3.0), pair("a", "a", 5.0), pair("b", "b", 2.0),
        pair("a", "c", 5.0),
    )  # fmt: skip
    speeds = speeds_of(book, [("a", 0), ("b", 0), ("c", 0)], [1, 1, 1])
    both = speeds.together(
        np.array([0, 1, 0]), np.array([1, 0, 2]), np.ones(3, np.int64), ("v100",)
    )
    assert both.tolist() == [[[6.0, 3.0]], [[3.0, 6.0]], [[0.0, 0.0]]]
    paired = speeds.paired_kinds(("v100",))
    assert paired.tolist() == speeds.codes(np.array([0, 1])).tolist()
    assert speeds.normalised(paired, paired, ("v100",)).tolist() == [[[0.5, 0.6]], [[0.75, 0.5]]]
    assert not speeds.paired_kinds(("k80", "v100")).size


def pair_book(beside_cnn: float, beside_rnn: float) -> SpeedTable:
    """How cnn and rnn run beside each other is known, and how a new kind runs beside them."""
    rows = [
        SpeedRow(key=SpeedKey(name, 0, "v100", 1), steps_per_s=10.0)
        for name in ("cnn", "rnn", "new")
    ]

    def beside(one: str, other: str, rate: float) -> SpeedRow:
        key = SpeedKey(one, 0, "v100", 1, partner=other, partner_batch_size=0)
        return SpeedRow(key=key, steps_per_s=rate)

    rows += [beside("cnn", "cnn", 8.0), beside("rnn", "rnn", 4.0)]
    rows += [beside("cnn", "rnn", 2.0), beside("rnn", "cnn", 1.0)]
    rows += [beside("new", "cnn", beside_cnn), beside("new", "rnn", beside_rnn)]
    rows += [beside("cnn", "new", 7.0), beside("rnn", "new", 6.0)]
    book = SpeedTable()
    book.load(rows)
    return book


def two_new(book: SpeedTable) -> Any:
    known = speeds_of(book, [("new", 0), ("new", 0)], [1] * 2)
    pairs = GuessedPairs(known, PairOptions(probability=0.0))
    return pairs.together(np.array([0]), np.array([1]), ONE, ("v100",)).tolist()


def test_unmeasured_pairs_are_guessed_from_measured_ones() -> None:
    # beside others it does as cnn does, and beside another of its own as two cnn would
    assert two_new(pair_book(8.0, 2.0)) == [[[8.0, 8.0]]]
    assert two_new(pair_book(1.0, 4.0)) == [[[4.0, 4.0]]]


def test_a_measured_pair_is_not_guessed() -> None:
    book = pair_book(8.0, 2.0)
    known = speeds_of(book, [("rnn", 0), ("new", 0)], [1, 1])
    pairs = GuessedPairs(known, PairOptions())
    rows = np.array([0]), np.array([1])
    assert pairs.together(*rows, ONE, ("v100",)).tolist() == [[[6.0, 2.0]]]
    bare = GuessedPairs(speeds_of(book_of(("cnn", "v100", 1, 9.0)), [("cnn", 0)] * 2, [1, 1]), OPEN)
    assert not bare.together(*rows, ONE, ("v100",)).any(), "no reference: nothing is guessed"


def test_a_co_located_job_is_predicted_at_the_measured_speed_of_the_pair() -> None:
    known = speeds_of(pair_book(8.0, 2.0), [("cnn", 0), ("rnn", 0), ("other", 0)], [1] * 3)
    believed = AsBelieved(Belief(by_type=known))
    placement: Any = SimpleNamespace(nodes=(0,), gpus=1)
    units: Any = SimpleNamespace(gang=np.ones(3, np.int64))
    occupancy: Any = SimpleNamespace(type_of=[0], cluster=SimpleNamespace(gpu_types=("v100",)))

    def rate(row: int, *partners: int) -> float:
        return believed.rate(row, placement, units, occupancy, partners)

    assert rate(0) == 1.0
    assert rate(0, 1) == pytest.approx(0.2)
    assert rate(1, 0) == pytest.approx(0.1)
    assert rate(0, 2) == 1.0  # those two were not measured


# -- deciding --------------------------------------------------------------------------------------

GAVEL = {"scheduling": "gavel"}


def two_types(live: Any, **parts: str) -> Any:
    lab = live.LiveLab((), parts=GAVEL | parts, round_s=60.0)
    lab.add_node("n1", 2, "k80")
    lab.add_node("n2", 2, "v100")
    return lab


def types_of(lab: Any, jobs: list[JobId]) -> list[str]:
    kinds = {"n1": "k80", "n2": "v100"}
    return [kinds[next(iter(lab.ledger.live_run(job).members))] for job in jobs]


def learn(lab: Any, rows: dict[str, tuple[float, float]], at: float) -> None:
    lab.live.speeds.take(
        SpeedsSet(
            rows=tuple(
                SpeedRow(key=SpeedKey(name, 0, kind, 1), steps_per_s=rate, at=at, changed_at=at)
                for name, pair in rows.items()
                for kind, rate in zip(("k80", "v100"), pair, strict=True)
            )
        )
    )


@pytest.mark.parametrize("estimator", ["user", "co-location"])
def test_gavel_moves_jobs_to_the_type_where_they_are_faster(live: Any, estimator: str) -> None:
    lab = two_types(live, estimator=estimator)
    jobs = [lab.submit(float(k), model=name) for k, name in enumerate(["cnn", "rnn"] * 2)]
    lab.round(10.0)
    before = types_of(lab, jobs)
    lab.round(70.0)
    assert types_of(lab, jobs) == before  # nothing is known: no job moves
    learn(lab, {"cnn": (1.0, 10.0), "rnn": (10.0, 9.0)}, at=100.0)
    lab.round(130.0)
    assert types_of(lab, jobs) == ["v100", "k80"] * 2
    learn(lab, {"cnn": (10.0, 1.0), "rnn": (9.0, 10.0)}, at=150.0)
    lab.round(190.0)
    assert types_of(lab, jobs) == ["k80", "v100"] * 2


def test_a_snapshot_has_the_measured_speeds(live: Any) -> None:
    lab = two_types(live)
    for name in ("cnn", "rnn"):
        lab.submit(1.0, model=name)
    bare = take_snapshot(lab.state, "full", 5.0)
    assert bare.speeds == {}
    learn(lab, {"cnn": (1.0, 10.0)}, at=3.0)
    snapshot = take_snapshot(lab.state, "full", 5.0)
    data = snapshot.to_bytes()
    again = LiveSnapshot.from_bytes(data)
    assert again.to_bytes() == data
    assert decide(again).to_bytes() == decide(snapshot).to_bytes()
    rows = np.arange(2)
    assert changed_since(snapshot.speeds, 2.0, rows).tolist() == [0]
    assert changed_since(snapshot.speeds, 3.0, rows).tolist() == []


def test_remaining_work_is_predicted_by_steps_where_speeds_are_known(live: Any) -> None:
    lab = two_types(live)
    told = {"model": "cnn", "total_iterations": 1000.0}
    by_steps = lab.submit(0.0, **told)
    by_word = lab.submit(0.0, **told, expected_s=500.0)
    unknown = lab.submit(0.0, model="rnn", total_iterations=10.0, time_limit_s=77.0)

    def left() -> list[float]:
        prepared = prepare(take_snapshot(lab.state, "full", 20.0))
        assert prepared is not None
        rows = [prepared.row_of[job] for job in (by_steps, by_word, unknown)]
        units = Units(prepared.ctx.table, np.array(rows), 20.0)
        found: list[float] = units.remaining_work.tolist()
        return found

    assert left() == [86400.0, 500.0, 77.0]  # nothing has been measured
    learn(lab, {"cnn": (1.0, 4.0)}, at=5.0)
    assert left() == [250.0, 500.0, 77.0]
    lab.round(10.0)
    lab.live.note_steps(by_steps, 400)
    assert left()[0] == 150.0
    lab.live.note_steps(by_steps, 1200)
    assert left()[0] == 0.0


@pytest.mark.parametrize(("beside", "together"), [((9.0, 3.0), True), ((1.0, 4.0), False)])
def test_two_jobs_of_a_new_kind_share_a_gpu_if_the_guess_is_good(
    live: Any, beside: tuple[float, float], together: bool
) -> None:
    parts = GAVEL | {"estimator": "co-location"}
    lab = live.LiveLab((), parts=parts, round_s=60.0, options=("objective=max-min-packed",))
    lab.add_node("n1", 1, "v100")
    lab.live.speeds.take(SpeedsSet(rows=tuple(pair_book(*beside).rows.values())))
    jobs = [lab.submit(float(k), model="new", gpu_share=0.5) for k in range(2)]
    lab.round(60.0)
    running = [job for job in jobs if lab.ledger.live_run(job) is not None]
    assert (len(running) == 2) == together


def test_without_measured_pairs_none_is_guessed(live: Any) -> None:
    parts = GAVEL | {"estimator": "co-location"}
    lab = live.LiveLab((), parts=parts, round_s=60.0, options=("objective=max-min-packed",))
    lab.add_node("n1", 1, "v100")
    learn(lab, {"new": (1.0, 10.0)}, at=0.0)
    jobs = [lab.submit(float(k), model="new", gpu_share=0.5) for k in range(2)]
    lab.round(60.0)
    assert [lab.ledger.live_run(job) is not None for job in jobs] == [True, False]
