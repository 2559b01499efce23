"""The parts of the page with more than fits on it."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from dlsched.cli.web.cluster_view import MOST_ENDED
from dlsched.cli.web.gpu_cells import MOST_NODES, nodes_html
from dlsched.cli.web.past_days import MOST_USERS, past_days_figure
from dlsched.client.job_records import Job
from dlsched.client.records import Gpu, Node
from simulate.report.drawing.charts import Bars
from simulate.report.page import figure_html


def test_of_many_nodes_those_out_of_service_are_shown() -> None:
    nodes = [Node(name=f"n{k}", state="idle", devices=(Gpu(index=0),), gpus=1) for k in range(1000)]
    nodes[999] = Node(name="n999", state="down", reason="no <power>", devices=(Gpu(index=0),))
    text = nodes_html(nodes, {})
    assert text.count("node-card") == MOST_NODES
    assert "no &lt;power&gt;" in text
    assert f"{1000 - MOST_NODES} more nodes" in text
    assert text.count('class="out"') == 1


def test_a_shared_gpu_names_all_its_jobs() -> None:
    gpu = Gpu(index=2, jobs=(7, 8), utilization=0.5, memory_used_bytes=2**30)
    node = Node(name="n1", state="mixed", devices=(gpu,), jobs=(7, 8), job_names=("7", "5_3"))
    text = nodes_html([node], {7: Job(job_id=7, name="train", user="ann")})
    assert 'title="GPU 2, job 7 train (ann), job 5_3, 50 %, 1G"' in text


def test_the_past_days_name_the_users_with_the_most_gpu_time_and_what_is_left_out() -> None:
    jobs = [
        Job(
            job_id=k,
            user=f"u{k % 15}",
            state="COMPLETED" if k % 3 else "FAILED",
            gpus=1 + k % 9,
            gpu_s=3600.0 * (k % 15),
            submitted_at=1e9 + k,
            first_started_at=1e9 + 2 * k,
            ended_at=1e9 + 3 * k,
        )
        for k in range(MOST_ENDED)
    ]
    figure = past_days_figure(jobs, 1e9 + 3 * MOST_ENDED)
    bars = figure.panels[2]
    assert isinstance(bars, Bars)
    assert [bar.label for bar in bars.bars] == [f"u{14 - k}" for k in range(MOST_USERS)] + [
        "others"
    ]
    total = sum(job.gpu_s or 0.0 for job in jobs) / 3600.0
    assert abs(sum(bar.value for bar in bars.bars) - total) < 1e-6
    assert "there are more" in figure.caption
    assert len(figure_html(figure, 1, "past")) < 100_000


def test_without_jobs_the_past_days_say_so() -> None:
    assert past_days_figure([], 1e9).absent == "No job has ended."


TIMES = st.none() | st.floats(1e9 - 1e6, 1e9 + 1e6)
ENDED = st.builds(
    Job,
    job_id=st.integers(1, 9),
    user=st.sampled_from(["ann", "bob", ""]),
    state=st.sampled_from(["COMPLETED", "CANCELLED", "FAILED", "TIMEOUT"]),
    gpus=st.integers(0, 16),
    gpu_s=st.none() | st.floats(0.0, 1e9),
    submitted_at=TIMES,
    first_started_at=TIMES,
    ended_at=TIMES,
)


@given(st.lists(ENDED, max_size=5))
def test_the_past_days_are_drawn_for_any_jobs_that_have_ended(ended: list[Job]) -> None:
    """Among them those that were cancelled before they began, and those without GPUs."""
    assert figure_html(past_days_figure(ended, 1e9), 1, "past").startswith("<figure")
