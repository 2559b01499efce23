"""Trainings on GPUs of several types: what fits there, what starts cost, moves that are free."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from dlsched.core.cluster.description import parse_cluster_spec
from dlsched.core.context import RoundContext
from dlsched.core.errors import BadInput
from dlsched.core.goodput.fitting import Observations, objective
from dlsched.core.goodput.params import PerfParams
from dlsched.core.goodput.throughput import accumulation_time, optimiser_time
from dlsched.core.options import NoOptions
from dlsched.core.scheduling import SchedulingPolicy
from dlsched.core.units import Units
from dlsched.core.walk.node_counts import lay_out
from dlsched.core.walk.walk import Walk
from simulate.goodput import typed_training
from simulate.goodput.hardware import TypedApplication
from simulate.goodput.published_fit import _Objective, published_fit
from simulate.goodput.typed_files import holds_typed_applications, read_typed_applications
from simulate.goodput.typed_training import TypedTraining
from simulate.profiles.open import open_applications
from simulate.replay import prepare, replay
from simulate.results.tables import ReplayResult
from simulate.settings import RunSettings
from simulate.traces.open import open_trace

SIZES = (32, 64, 128)
CLUSTER = "2x4:slow+2x4:fast"


def step(kind: str, gpus: int, nodes: int, local: int) -> tuple[float, float]:
    """Made-up seconds of a step and of its synchronising."""
    sync = 0.01 * (gpus > 1) + 0.05 * (nodes - 1)
    return round((0.02 + 0.001 * local) * (4 if kind == "slow" else 1) + sync, 6), sync


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Cifar10 and a pipeline, each on two types."""
    placements = ["application,gpu_type,placement,local_bsz,step_time,sync_time"]
    spread = ["application,gpu_type,num_nodes,num_replicas,local_bsz,step_time,sync_time"]
    for kind in ("slow", "fast"):
        for shape in ("1", "2", "4", "44"):
            gpus = sum(map(int, shape))
            for local in SIZES[: 3 if shape != "4" else 2]:
                times = step(kind, gpus, len(shape), local)
                placements.append(f"cifar10,{kind},{shape},{local},{times[0]},{times[1]}")
        for local in SIZES[:1]:
            times = step(kind, 16, 4, local)
            spread.append(f"cifar10,{kind},4,16,{local},{times[0]},{times[1]}")
    placements += ["gpt_pmp,rtx,8,1,0.1,0.2", "gpt_pmp,rtx,88,1,0.1,0.4", "gpt_pmp,rtx,8,2,9,0.2"]
    runs = ["application,batch_size,epoch_index,progress,iteration,grad_sqr,grad_var"]
    for name, sizes, epochs in (("cifar10", (128, 4096), 100), ("gpt_pmp", (48, 384), 2)):
        for size in sizes:
            for epoch in range(epochs):
                done = 20 * (epoch + 1)
                runs.append(f"{name},{size},{epoch},{done},{done},0.5,400")
    (tmp_path / "placements.csv").write_text("\n".join(placements) + "\n")
    (tmp_path / "scalability.csv").write_text("\n".join(spread) + "\n")
    (tmp_path / "validation.csv").write_text("\n".join(runs) + "\n")
    return tmp_path


@pytest.fixture
def cifar10(folder: Path) -> TypedApplication:
    return read_typed_applications(folder)["cifar10"]


def run(
    folder: Path, jobs: str, policy: str = "sia", *options: str, **more: object
) -> ReplayResult:
    path = folder / "jobs.csv"
    path.write_text("name,submit_s,application,num_replicas,batch_size\n" + jobs)
    return replay(
        open_trace(path),
        parse_cluster_spec(str(more.pop("cluster", CLUSTER))),
        RunSettings(policy=policy, options=("semantics=sia", *options), check=True),
        applications=open_applications(str(folder)),
    )


def test_a_folder_with_a_column_of_types_is_recognised(folder: Path, tmp_path: Path) -> None:
    assert holds_typed_applications(folder)
    assert not holds_typed_applications(tmp_path / "nothing")
    found = read_typed_applications(folder)
    assert sorted(found) == ["cifar10", "gpt_pmp"]
    assert sorted(found["cifar10"].on) == ["fast", "slow"]
    assert (found["cifar10"].restart_s, found["cifar10"].slowdown) == (50.0, 1.8)


def test_what_fits_is_what_was_measured(cifar10: TypedApplication) -> None:
    there = cifar10.on["slow"]
    assert there.most_local((2,)) == 128
    assert there.most_local((4,)) == 64
    assert there.most_local((4, 3)) == 32  # only four nodes of 16 have as many
    assert cifar10.limits_on("slow").local_max == 128


def test_what_is_believed_to_fit_does_not_bind_the_world(cifar10: TypedApplication) -> None:
    there = replace(cifar10.on["slow"], ceiling=57)
    believing = replace(cifar10, on={"slow": there})
    assert believing.limits_on("slow").local_max == 57
    assert believing.split_on(there, 512, (4,)) == cifar10.split_on(there, 512, (4,))
    assert there.most_local((2,)) == 128


def test_a_batch_is_split_over_what_fits(cifar10: TypedApplication) -> None:
    there = cifar10.on["fast"]
    assert cifar10.split_on(there, 512, (4,)).batch == 512
    assert cifar10.split_on(there, 512, (4,)).accumulation == 1
    assert cifar10.split_on(there, 512, (1,)).accumulation == 3
    assert cifar10.split_on(there, 129, (1,)).accumulation == 1  # one GPU, above the initial batch


def test_trainings_that_have_measured_the_same_are_fitted_once(
    cifar10: TypedApplication, monkeypatch: pytest.MonkeyPatch
) -> None:
    fits: list[int] = []

    def counted(seen: Observations) -> PerfParams:
        fits.append(len(seen.local))
        return published_fit(seen)

    monkeypatch.setattr(typed_training, "published_fit", counted)
    typed_training._published_fit.cache_clear()
    found = []
    for shape in ((1,), (1,), (2,)):
        training = TypedTraining(cifar10, 512)
        training.gpu_type = "slow"
        training.begin(shape, 0.0, batch=512, tunes=False)
        training.advance(5.0)
        found += [training.perf_on("slow"), training.perf_on("slow")]
    assert fits == [1, 1]  # of the two on one GPU, and of the one on two
    assert found[0] == found[1] == found[2] != found[4]


def test_a_model_is_each_type_s_own(cifar10: TypedApplication) -> None:
    training = TypedTraining(cifar10, 512)
    training.gpu_type = "slow"
    training.begin((1,), 0.0, batch=512, tunes=True)
    training.advance(5.0)
    assert training.perf_on("slow") is not None
    assert training.perf_on("fast") is None
    assert (training.profiled_on("slow"), training.profiled_on("fast")) == (1, 0)
    training.reconsider()
    assert not training.reconsider()  # it has learnt nothing since


def test_an_unmeasured_shape_runs_like_the_nearest_measured_one(folder: Path) -> None:
    """20 GPUs like the 16 that were; 6 as 1-5 on one node too many, or on two types, like 4-2."""
    ends = [
        run(folder, f"a,0,cifar10,{gpus},512\n", "fifo", cluster=cluster).jobs.finish_time[0]
        for gpus, cluster in ((20, "5x4:fast"), (16, "4x4:fast"))
    ]
    assert ends[0] == ends[1]
    on_many = run(folder, "a,0,cifar10,5,320\n", "fifo", cluster="5x1:fast").jobs
    on_two = run(folder, "a,0,cifar10,5,320\n", "fifo", cluster="1x4:fast+1x1:slow").jobs
    as_slow = run(folder, "a,0,cifar10,5,320\n", "fifo", cluster="1x4:slow+1x1:slow").jobs
    assert on_many.finish_time[0] < on_two.finish_time[0] == as_slow.finish_time[0]


@pytest.mark.parametrize("policy", ["optimus", "afs", "sia", "pollux", "fifo"])
def test_jobs_grow_beyond_what_was_measured(folder: Path, policy: str) -> None:
    jobs = "".join(f"j{row},{300 * row},cifar10,4,2048\n" for row in range(3))
    result = run(folder, jobs, policy, cluster="6x4:fast+2x4:slow")
    assert result.jobs.status.tolist() == ["completed"] * 3


def test_a_pipeline_s_iteration_passes_all_microbatches(folder: Path) -> None:
    there = read_typed_applications(folder)["gpt_pmp"].on["rtx"]
    assert there.unit == 8
    assert there.times.at((8,), 48) == pytest.approx((3 * (7 * 0.1 + 48 * 0.1) + 0.2, 0.2))


def test_a_pipeline_runs_on_whole_replicas(folder: Path) -> None:
    result = run(folder, "gpt_pmp-0,0,gpt_pmp,8,48\n", cluster="2x8:rtx")
    assert result.jobs.status.tolist() == ["completed"]
    assert result.jobs.gpu_seconds[0] % 8 == 0


def test_a_start_takes_each_application_its_own_time(folder: Path) -> None:
    result = run(folder, "a,10,cifar10,4,512\n", "sia", "jobs=rigid")
    jobs = result.jobs
    alone = TypedTraining(read_typed_applications(folder)["cifar10"], 512)
    alone.gpu_type = "fast"
    alone.begin((4,), 60.0 + 50.0, batch=512, tunes=False)
    assert jobs.first_start_time[0] == 60.0
    assert jobs.finish_time[0] == pytest.approx(alone.look(), abs=1.0)


class Wandering(SchedulingPolicy[NoOptions]):
    """Gives the only job another node every round."""

    name = "wandering"
    preemptive = True
    rests = False

    def allocate(self, units: Units, ctx: RoundContext, walk: Walk) -> None:
        """To the next node."""
        nodes = len(ctx.occupancy.cluster)
        lay_out(walk, {int(row): [(ctx.number % nodes, 2)] for row in ctx.active})


@pytest.mark.parametrize(("cluster", "starts"), [("3x4:fast", 1), ("1x4:fast+1x4:slow", None)])
def test_a_move_to_gpus_of_the_same_shape_is_free(
    folder: Path, cluster: str, starts: int | None
) -> None:
    path = folder / "jobs.csv"
    path.write_text("name,submit_s,application,num_replicas,batch_size\na,0,cifar10,2,2048\n")
    engine = prepare(
        open_trace(path),
        parse_cluster_spec(cluster),
        RunSettings(policy="fifo", options=("semantics=sia",), round_s=60.0),
        applications=open_applications(str(folder)),
    )
    engine.parts.scheduling = Wandering(NoOptions())
    engine.horizon = 600.0
    engine.run()
    table = engine.world.table
    assert starts is None or table.starts.tolist() == [starts]
    assert starts is not None or table.starts[0] > 3


@pytest.mark.parametrize("jobs", ["asked", "fixed-batch", "rigid"])
@pytest.mark.parametrize("policy", ["sia", "gavel", "fifo"])
def test_all_jobs_are_done(folder: Path, policy: str, jobs: str) -> None:
    mine = [f"jobs={jobs}"] if policy == "sia" else []
    lines = "".join(f"j{n},{n * 37},cifar10,{2 ** (n % 4)},512\n" for n in range(8))
    result = run(folder, lines, policy, *mine)
    assert result.jobs.status.tolist() == ["completed"] * 8


def test_the_same_run_twice_is_the_same(folder: Path) -> None:
    lines = "".join(f"j{n},{n * 20},cifar10,4,512\n" for n in range(6))
    first, second = run(folder, lines), run(folder, lines)
    assert first.jobs.finish_time.tolist() == second.jobs.finish_time.tolist()


def test_a_job_without_measurements_is_refused(folder: Path) -> None:
    with pytest.raises(
        BadInput, match="job a: cifar10 was measured on fast, slow, and the cluster"
    ):
        run(folder, "a,0,cifar10,1,128\n", cluster="2x4:v100")


@pytest.mark.parametrize(
    ("table", "line", "complaint"),
    [
        ("placements", "cifar10,slow,1,256,0,0", "step_time must be above 0"),
        ("placements", "cifar10,slow,1,256,0.1,0.2", "sync_time 0.2 must be below step_time 0.1"),
        ("placements", "cifar10,slow,x,256,0.1,0", "placement must be digits from 1 to 9, not 'x'"),
        ("placements", "cifar10,slow,1,nan,0.1,0", "local_bsz"),
    ],
)
def test_impossible_rows_are_refused(folder: Path, table: str, line: str, complaint: str) -> None:
    path = folder / f"{table}.csv"
    path.write_text(path.read_text() + line + "\n")
    with pytest.raises(BadInput, match=complaint):
        read_typed_applications(folder)


def seen() -> Observations:
    truth = PerfParams(0.05, 0.002, 0.10, 0.01, 0.02, 0.003, 1.5)
    keys = [(1, 1, 64), (1, 1, 128), (1, 2, 64), (1, 4, 64), (2, 8, 64), (2, 8, 256), (4, 16, 128)]
    nodes, replicas, local = np.array(keys).T
    return Observations(
        nodes,
        replicas,
        local,
        accumulation_time(truth, local),
        optimiser_time(truth, nodes, replicas, local),
    )


def test_the_published_fit_s_gradient_is_that_of_its_objective() -> None:
    function, point = _Objective(seen()), np.array([0.06, 0.003, 0.2, 0.02, 0.03, 0.002, 1.8])
    value, slope = function(point)
    assert value == pytest.approx(objective(PerfParams(*point.tolist()), seen()), rel=1e-6)
    for place in range(len(point)):
        near = point.copy()
        near[place] += 1e-7
        assert (function(near)[0] - value) / 1e-7 == pytest.approx(slope[place], rel=1e-3, abs=1e-4)


def test_a_fit_of_one_measurement_splits_its_time_evenly() -> None:
    one = Observations(*(np.array([each]) for each in (1, 1, 128, 0.306, 0.306)))
    found = published_fit(one)
    assert found.alpha_c == pytest.approx(0.153)
    assert found.beta_c == pytest.approx(0.00119531, rel=1e-3)
    assert found.alpha_n == pytest.approx(1.1e-8)
    assert found.gamma == pytest.approx(1.001, abs=2e-3)
