"""Batch sizes that adapt: the rules by hand, the world's counting, and what is refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from dlsched.core.cluster.description import parse_cluster_spec
from dlsched.core.errors import BadInput
from simulate.profiles.batch_rules import BatchPatterns, Training, epochs_of, profile_of
from simulate.profiles.open import open_profiles
from simulate.replay import replay
from simulate.settings import RunSettings
from simulate.traces.open import open_trace

TRACE = "job_id,model,batch_size,scale_factor,total_steps,mode,duration_s,arrival_time_s\n"
SPEEDS = """accelerator,scale_factor,model,batch_size,steps_per_s
v100,1,LM,40,20
v100,1,LM,80,12
v100,1,Own,8,10
"""
SIZES = "model,initial_batch_size,scale_factor,from_epoch,batch_size\nLM,40,1,0,40\nLM,40,1,3,80\n"


@pytest.fixture
def replayed(tmp_path: Path) -> Any:
    """Replay jobs under a policy on one GPU."""

    def call(rows: str, *options: str, sizes: str | None = SIZES, policy: str = "fifo") -> Any:
        trace, speeds = tmp_path / "trace.csv", tmp_path / "throughputs.csv"
        trace.write_text(TRACE + rows)
        speeds.write_text(SPEEDS)
        named = str(speeds)
        if sizes is not None:
            (tmp_path / "batch_size.csv").write_text(sizes)
            named += f",{tmp_path / 'batch_size.csv'}"
        throughputs, patterns, *_ = open_profiles(named)
        settings = RunSettings(policy=policy, options=options, check=True)
        cluster = parse_cluster_spec("1x1:v100")
        return replay(
            open_trace(trace), cluster, settings, throughputs=throughputs, patterns=patterns
        )

    return call


def patterns(tmp_path: Path, text: str) -> BatchPatterns:
    path = tmp_path / "sizes.csv"
    path.write_text(text)
    return BatchPatterns.read(path)


def test_accordion_leaves_critical_regimes_after_three_tenths() -> None:
    job = Training("LM", 40, 1, 1492 * 50, "accordion")
    assert epochs_of(job) == 50
    profile = profile_of(job, None, lambda size: 1.0)
    assert profile.batch_size.tolist() == [40] * 16 + [80] * 34
    assert profile.seconds[0] == pytest.approx(59_675 / 40)


def test_gradient_noise_follows_its_table_and_falls_back_after_two_doublings(
    tmp_path: Path,
) -> None:
    table = patterns(tmp_path, SIZES)
    profile = profile_of(Training("LM", 40, 1, 1492 * 6, "gns"), table, lambda size: 1.0)
    assert profile.batch_size.tolist() == [40, 40, 40, 80, 80, 80]
    twice = patterns(tmp_path, SIZES.replace("LM,40", "LM,20").replace("40\n", "20\n"))
    profile = profile_of(Training("LM", 20, 1, 2984 * 5, "gns"), twice, lambda size: 1.0)
    assert profile.batch_size.tolist() == [20, 20, 20, 80, 20]


@pytest.mark.parametrize("job", [("Transformer", 16, "accordion"), ("LM", 80, "gns")])
def test_a_job_that_cannot_adapt_keeps_its_batch_size(job: tuple[str, int, str]) -> None:
    model, size, mode = job
    assert not Training(model, size, 1, 1000, mode).adapts


def test_under_our_clocks_a_job_takes_the_time_of_its_profile(replayed: Any) -> None:
    result = replayed("0,LM,40,1,8952,gns,1,0\n", "semantics=events")
    alone = 3 * 59_675 / 40 / 20 + 3 * 59_675 / 80 / 12
    assert result.jobs.jct.tolist() == pytest.approx([alone])
    assert result.jobs.duration.tolist() == pytest.approx([alone])


def test_in_rounds_of_steps_progress_is_rounded_up_to_whole_epochs(replayed: Any) -> None:
    # 2400 steps a round, 1492 an epoch: after round 1, in epoch 2, epoch 3 is in sight and the job
    # asks; after round 2 (4800 steps, taken for 4 epochs) it has 80, and 2 epochs of 746 to go
    result = replayed("0,LM,40,1,8952,gns,1,0\n", "semantics=shockwave")
    assert result.jobs.jct.tolist() == pytest.approx([240 + 2 * 746 / 12])


@pytest.mark.parametrize("policy", ["shockwave", "gavel", "las"])
def test_any_policy_serves_jobs_that_adapt(replayed: Any, policy: str) -> None:
    rows = "0,LM,40,1,8952,gns,1,0\n1,LM,40,1,30000,accordion,1,10\n2,LM,80,1,4000,static,1,20\n"
    for semantics in ("rounds", "shockwave"):
        result = replayed(rows, f"semantics={semantics}", policy=policy)
        assert result.summary["completed"] == 3


@pytest.mark.parametrize(
    ("rows", "sizes", "message"),
    [
        ("0,LM,40,1,8952,gns,1,0\n", None, "job 0 adapts its batch size (gns): --profiles needs"),
        ("0,Own,8,1,100,gns,1,0\n", SIZES, "nothing is known of the epochs of Own"),
        ("0,LM,40,1,8952,grows,1,0\n", SIZES, "mode must be one of static, accordion, gns"),
        ("0,LM,40,2,8952,gns,1,0\n", SIZES, "job 0: "),
        ("0,LM,40,1,8952,gns,1,0\n", SIZES.replace(",80", ",160"), "job 0: the profile has no"),
        ("0,LM,40,1,8952,gns,1,0\n", SIZES.replace(",80", ",x"), "batch_size.csv:3: "),
        ("0,LM,40,1,8952,gns,1,0\n", SIZES.replace(",80", ",0"), "sizes must be from 1 up"),
        ("0,LM,40,1,8952,gns,1,0\n", SIZES.replace("scale_factor", "gang"), "needs a column"),
    ],
)
def test_impossible_jobs_are_refused_in_one_line(
    replayed: Any, rows: str, sizes: str | None, message: str
) -> None:
    with pytest.raises(BadInput) as caught:
        replayed(rows, sizes=sizes)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_profiles_without_throughputs_are_refused(tmp_path: Path) -> None:
    sizes = tmp_path / "sizes.csv"
    sizes.write_text(SIZES)
    with pytest.raises(BadInput, match="holds no throughputs"):
        open_profiles(str(sizes))
    with pytest.raises(BadInput, match="second table of batch sizes"):
        open_profiles(f"{sizes},{sizes}")
