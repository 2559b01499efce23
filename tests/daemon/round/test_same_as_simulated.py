"""The live round decides what the simulated world's round decides.

A small live world with agents that obey at once and jobs that end on time is driven over a trace,
and every job must start, be preempted, move and end when and as often as in a replay of that trace.
"""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dlsched.core.cluster.description import Cluster, Node
from dlsched.core.cluster.site_rules import SiteRules
from dlsched.daemon.live.nodes import ClusterRules
from dlsched.daemon.live.tenant_limits import limits_of_classes
from dlsched.daemon.round.plan import carry_out, verify
from dlsched.db.records import CheckpointCommitted
from dlsched.policies.registry import names
from dlsched.protocol.ledger import Attach, JobStatus
from dlsched.tenants.fields import PriorityClass
from dlsched.tenants.fields import PriorityClass as PriorityClassRow

pytestmark = pytest.mark.slow

ROUND_S = 60.0
POLICIES = names("scheduling")
OPTIONS = {
    "what-if": ("what-if.scheduling=las,srtf",),
    "pollux": ("pollux.restart_s=10",),  # what no job has told yet, each world assumes for itself
}
trace_of = st.lists(
    st.tuples(
        st.one_of(st.integers(0, 300), st.sampled_from([0.0, 60.0, 120.0])),
        st.integers(1, 6),
        st.integers(1, 400),
    ),
    min_size=1,
    max_size=12,
)


class Driver:
    """Carries a trace through the live classes in virtual time."""

    def __init__(
        self,
        lab: Any,
        jobs: list[tuple[float, int, float]],
        tenants: list[str],
        killed: bool = False,
        shares: Sequence[float | None] = (),
        classes: Sequence[str] = (),
    ) -> None:
        self.classes = classes or [""] * len(jobs)  # in the order of arrival
        self.shares = shares or [None] * len(jobs)  # of a GPU, in the order of arrival
        self.killed = killed  # the daemon is killed before each decision
        self.figures: dict[int, tuple[int, int, float]] = {}
        self.lab = lab
        self.left: dict[int, float] = {}
        self.ends: list[tuple[float, int, int]] = []
        self.started: dict[int, float] = {}
        self.finished: dict[int, float] = {}
        order = sorted(range(len(jobs)), key=lambda k: jobs[k][0])
        self.arrivals = [(float(jobs[k][0]), *jobs[k][1:], tenants[k]) for k in order]

    def run(self, limit: float = 40_000.0) -> None:
        upcoming = 0
        for tick in itertools.count():
            horizon = tick * ROUND_S
            while True:
                nexts = [horizon]
                if upcoming < len(self.arrivals):
                    nexts.append(self.arrivals[upcoming][0])
                if self.ends:
                    nexts.append(self.ends[0][0])
                now = min(nexts)
                touched = self.complete(now)
                while upcoming < len(self.arrivals) and self.arrivals[upcoming][0] <= now:
                    _, gpus, duration, user = self.arrivals[upcoming]
                    says = {"expected_s": float(duration), "gpu_share": self.shares[upcoming]}
                    says["priority_class"] = self.classes[upcoming]
                    job = self.lab.submit(now, gpus, user=user, **says)
                    self.left[job] = float(duration)
                    upcoming += 1
                    touched = True
                if now == horizon:
                    self.decide(now, "full")
                    break
                if touched:
                    self.decide(now, "fill")
            if upcoming == len(self.arrivals) and len(self.finished) == len(self.arrivals):
                return
            assert horizon < limit, "it never ends"

    def complete(self, now: float) -> bool:
        touched = False
        while self.ends and self.ends[0][0] <= now:
            at, job, run = heapq.heappop(self.ends)
            live = self.lab.ledger.live_run(job)
            if live is not None and live.key.run == run:
                self.lab.end(at, job)
                assert self.lab.ledger.jobs[job].status is JobStatus.COMPLETED
                self.finished[job] = at
                self.note(job)
                touched = True
        return touched

    def note(self, job: int) -> None:
        columns = self.lab.live.jobs
        row = columns.row_of.get(job)
        if row is not None:
            names = ("preemptions", "migrations", "attained")
            self.figures[job] = tuple(columns.get(name, row) for name in names)

    def decide(self, now: float, mode: str) -> None:
        if self.killed:
            limits = self.lab.live.eligibility.tenant_limits
            self.lab.restart(now)
            self.lab.live.set_quotas(limits.quotas, limits.parents)  # as stored tenants are read
        state = self.lab.state
        decided = self.lab.decide(now, mode)
        problems = verify(decided, state.live)
        assert not problems, problems
        for job in decided.suspended:  # it saves all that it has done
            run = self.lab.ledger.live_run(job)
            self.lab.write(
                now,
                Attach(
                    CheckpointCommitted(
                        job=job,
                        run_id=run.key.run_id,
                        at=now,
                        path="c",
                        step=1,
                        size_bytes=1,
                        sha256="",
                    )
                ),
            )
        if mode == "fill" and decided.changes_nothing:  # nothing of it is stored, as in the daemon
            state.note_order(decided)
            return
        plan = carry_out(decided, state)
        before = self.runs()
        self.lab.carry(now, plan)
        for job, run in self.runs().items():
            if before.get(job) != run:
                row = state.live.jobs.row_of[job]
                done = state.live.jobs.get("executed", row)
                heapq.heappush(self.ends, (now + max(self.left[job] - done, 0.0), job, run))
                self.started.setdefault(job, now)

    def runs(self) -> dict[int, int]:
        return {r.key.job: r.key.run for r in self.lab.ledger.runs.values() if not r.is_over}


def compare(
    live: Any,
    lab: Any,
    policy: str,
    jobs: Any,
    tenants: Any,
    *,
    killed: bool = False,
    learn_from: int = 512,
    **given: Any,
) -> None:
    given["options"] = (*given.get("options", ()), *OPTIONS.get(policy, ()))
    result = lab.run(
        lab.trace(jobs, user=tenants),
        policy,
        cluster="2x4",
        clock="rounds",
        round_s=ROUND_S,
        **given,
    )
    parts = {"scheduling": policy, "placement": given.get("placement", "")}
    parts["admission"] = given.get("admission", "")
    small = live.LiveLab(parts=parts, options=given["options"], round_s=ROUND_S,
                         min_run_s=given.get("min_run", 0.0), learn_from=learn_from)  # fmt: skip
    driver = Driver(small, jobs, tenants, killed)
    table = result.jobs
    fits = table.status == "completed"
    if not fits.all():
        return  # a job that never fits is refused at once, which is not the round's business
    driver.run()
    for row in range(len(jobs)):
        job = row + 1
        got = (driver.started[job], driver.finished[job])
        assert got == pytest.approx((table.first_start_time[row], table.finish_time[row])), job
        if job in driver.figures:
            preempted, moved, attained = driver.figures[job]
            assert (preempted, moved) == (table.preemptions[row], table.migrations[row]), job
            assert attained == pytest.approx(table.gpu_seconds[row])


@pytest.mark.parametrize("policy", POLICIES)
@settings(max_examples=10)
@given(jobs=trace_of, users=st.lists(st.sampled_from(["ann", "bob"]), min_size=12, max_size=12))
def test_jobs_start_move_and_end_as_in_a_replay(
    live: Any, lab: Any, policy: str, jobs: Any, users: list[str]
) -> None:
    compare(live, lab, policy, jobs, users[: len(jobs)])


@pytest.mark.parametrize("policy", POLICIES)
@settings(max_examples=6)
@given(jobs=trace_of, users=st.lists(st.sampled_from(["ann", "bob"]), min_size=12, max_size=12))
def test_a_daemon_killed_before_each_round_decides_as_if_nothing_had_happened(
    live: Any, lab: Any, policy: str, jobs: Any, users: list[str]
) -> None:
    compare(live, lab, policy, jobs, users[: len(jobs)], killed=True)


# A live round looks at each arrival and end, also where a replay sees that nothing could start.
ONCE_DIFFERENT = {
    "gavel": [(0, 2, 121), (0, 3, 65), (0, 3, 121), (0, 3, 121), (1, 1, 56)],  # sums are rounded
    "gandiva-fair": [(0, 5, 158), (60, 3, 228), (60, 5, 233), (216, 5, 184)],
    "themis": [(110, 5, 365), (120, 6, 233), (0, 2, 177), (120, 6, 29), (0, 3, 118), (60, 2, 65)],
    # it gave jobs servers in the order in which they had started
    "gandiva": [(0, 3, 394), (25, 6, 262), (45, 6, 235), (99, 5, 364), (139, 4, 309), (190, 2, 274),
                (260, 3, 65), (292, 6, 190)],
    # GPUs that a fill reserved
    "muri-antman": [(0, 1, 269), (0, 5, 260), (52, 1, 217), (60, 2, 17), (60, 3, 162), (77, 4, 306),
                    (115, 5, 393), (120, 3, 343), (120, 5, 339), (168, 6, 111), (274, 6, 292)],
    # how long jobs had waited that came between two rounds
    "mlfs": [(0, 1, 269), (0, 5, 260), (52, 1, 217), (60, 2, 17), (60, 3, 162), (77, 4, 306),
             (115, 5, 393), (120, 3, 343), (120, 5, 339), (168, 6, 111), (274, 6, 292)],
    # the number of the round, which draws its random numbers
    "pollux": [(25, 1, 347), (37, 2, 50), (75, 2, 348), (127, 2, 164), (154, 1, 58), (226, 5, 132)],
}  # fmt: skip


@pytest.mark.parametrize("killed", [False, True])
@pytest.mark.parametrize("policy", ONCE_DIFFERENT)
def test_looking_for_idle_gpus_in_vain_decides_nothing(
    live: Any, lab: Any, policy: str, killed: bool
) -> None:
    jobs: Any = ONCE_DIFFERENT[policy]
    compare(live, lab, policy, jobs, ["ann"] * len(jobs), killed=killed)


@pytest.mark.parametrize("policy", POLICIES)
@settings(max_examples=6)
@given(jobs=trace_of)
def test_a_live_state_that_packs_its_rows_often_decides_equally(
    live: Any, lab: Any, policy: str, jobs: Any
) -> None:
    compare(live, lab, policy, jobs, ["ann"] * len(jobs), learn_from=0)


@pytest.mark.parametrize("placement", ["consolidated", "worst-fit", "best-fit", "random"])
@settings(max_examples=6)
@given(jobs=trace_of, policy=st.sampled_from(["las", "srtf", "fifo"]))
def test_every_placement_agrees_with_the_replay(
    live: Any, lab: Any, placement: str, jobs: Any, policy: str
) -> None:
    jobs = [(submit, min(gpus, 4), length) for submit, gpus, length in jobs]
    compare(live, lab, policy, jobs, ["ann"] * len(jobs), placement=placement)


@pytest.mark.parametrize("killed", [False, pytest.param(True, marks=pytest.mark.slow)])
@pytest.mark.parametrize("policy", POLICIES)
@settings(max_examples=8)
@given(
    jobs=trace_of,
    shares=st.lists(st.sampled_from([None, 0.5, 0.5, 0.3]), min_size=12, max_size=12),
)
def test_jobs_that_need_part_of_a_gpu_share_it_as_in_a_replay(
    live: Any, lab: Any, policy: str, killed: bool, jobs: Any, shares: list[float | None]
) -> None:
    compare_parts(live, lab, policy, jobs, shares, killed=killed)


def test_time_on_gpus_that_were_given_after_its_decision_counts_under_gavel(
    live: Any, lab: Any
) -> None:
    jobs = [(0, 3, 84), (60, 1, 232), (282, 6, 265), (58, 5, 222), (60, 5, 366), (20, 2, 400),
            (133, 2, 326), (0, 5, 334), (0, 4, 202)]  # fmt: skip
    compare_parts(live, lab, "gavel", jobs, [0.5, 0.3, 0.3, 0.3, 0.3, 0.5, 0.3, 0.5, 0.3])


def compare_parts(
    live: Any,
    lab: Any,
    policy: str,
    jobs: Any,
    shares: list[float | None],
    *,
    killed: bool = False,
) -> None:
    jobs = sorted(((at, 1 + gpus // 3, length) for at, gpus, length in jobs), key=lambda j: j[0])
    shares = shares[: len(jobs)]
    options = OPTIONS.get(policy, ())
    engine = lab.engine(
        lab.trace(jobs), policy, cluster="2x3", clock="rounds", round_s=ROUND_S, options=options
    )
    table = engine.world.table
    table.gpu_share[:] = [share or 1.0 for share in shares]
    engine.run()
    small = live.LiveLab((3, 3), parts={"scheduling": policy}, options=options, round_s=ROUND_S)
    driver = Driver(small, jobs, ["ann"] * len(jobs), killed, shares)
    driver.run(limit=8_000.0)
    for row in range(len(jobs)):
        job = row + 1
        got = (driver.started[job], driver.finished[job])
        assert got == pytest.approx((table.first_start[row], table.finish[row])), job
        if job in driver.figures:
            preempted, moved, attained = driver.figures[job]
            assert (preempted, moved) == (table.preemptions[row], table.migrations[row]), job
            assert attained == pytest.approx(table.attained[row])


@settings(max_examples=8)
@given(
    jobs=trace_of,
    policy=st.sampled_from(
        ["las", "srtf", "tiresias", "fifo", "mlfs", "afs", "elasticflow", "carbyne"]
    ),
    admission=st.sampled_from(["load-threshold:0.8", "load-threshold:1.2", "quota"]),
    min_run=st.sampled_from([0.0, 90.0]),
)
def test_every_admission_and_fairness_part_agrees_with_the_replay(
    live: Any, lab: Any, jobs: Any, policy: str, admission: str, min_run: float
) -> None:
    compare(live, lab, policy, jobs, ["ann"] * len(jobs), admission=admission, min_run=min_run)


@pytest.mark.parametrize("policy", ["las", "srtf", "multi-queue", "tiresias"])
def test_a_contended_trace_has_many_preemptions_to_agree_about(
    live: Any, lab: Any, policy: str
) -> None:
    jobs = [(7.0 * k, (1, 2, 4, 6, 3)[k % 5], 40.0 + 97 * (k * 7 % 11)) for k in range(40)]
    options = ("limits=200,900",) if policy in ("multi-queue", "tiresias") else ()
    result = lab.run(
        lab.trace(jobs), policy, cluster="2x4", clock="rounds", round_s=ROUND_S, options=options
    )
    assert int(result.jobs.preemptions.sum()) > 10
    for how in ({}, {"killed": True}, {"learn_from": 0}):
        compare(live, lab, policy, jobs, ["ann"] * len(jobs), options=options, **how)


@pytest.mark.parametrize(
    ("policy", "killed"),
    [*itertools.product(POLICIES, (False, True))],
)
@settings(max_examples=8)
@given(
    jobs=trace_of,
    users=st.lists(st.sampled_from(["ann", "bob"]), min_size=12, max_size=12),
    classes=st.lists(st.sampled_from(["", "idle", "urgent", "urgent"]), min_size=12, max_size=12),
    limits=st.tuples(st.integers(1, 7), st.none() | st.integers(1, 5)),
)
def test_limits_on_gpus_hold_as_in_a_replay(
    live: Any, lab: Any, policy: str, killed: bool, jobs: Any, users: Any, classes: Any, limits: Any
) -> None:
    most = min(limits[0], limits[1] or 8)
    chosen = sorted(zip(jobs, users, classes, strict=False), key=lambda each: each[0][0])
    jobs = [
        (at, min(gpus, most) if kind == "urgent" else gpus, length)
        for (at, gpus, length), _, kind in chosen
    ]
    users, classes = [user for _, user, _ in chosen], [kind for _, _, kind in chosen]
    urgent = PriorityClass(name="urgent", gpus=limits[0], gpus_per_user=limits[1])
    rules = SiteRules(classes=(urgent, PriorityClass(name="idle")))
    nodes = [Node(name=name, gpus=4, gpu_type="gpu") for name in ("n1", "n2")]
    trace = lab.trace(jobs, user=users, **{"class": classes})
    cluster = Cluster(nodes, rules=rules)
    given = {"round_s": ROUND_S, "options": OPTIONS.get(policy, ())}
    table = lab.run(trace, policy, cluster=cluster, clock="rounds", **given).jobs
    small = live.LiveLab(parts={"scheduling": policy}, **given,
                         rules=ClusterRules(site=rules))  # fmt: skip
    stored = PriorityClassRow(name="urgent", gpus=limits[0], gpus_per_user=limits[1])
    small.live.set_quotas(limits_of_classes([stored]), {})
    driver = Driver(small, jobs, users, killed, classes=classes)
    driver.run()
    for row in range(len(jobs)):
        got = (driver.started[row + 1], driver.finished[row + 1])
        assert got == pytest.approx((table.first_start_time[row], table.finish_time[row])), row + 1
