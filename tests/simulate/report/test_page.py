"""The page: whole, well-formed, self-contained, escaped, repeatable and small."""

from __future__ import annotations

import dataclasses
import re
from html.parser import HTMLParser
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest

from dlsched.core.errors import BadInput
from simulate.report import write_report
from simulate.report.page import render
from simulate.results.tables import ReplayResult

KEYS = ("compare", "jct", "delay", "occupancy", "gantt", "preemptions", "losses", "fairness")
VOID = {"meta", "input", "br", "link"}


class Balance(HTMLParser):
    """Fails on an element that is closed out of order, and gathers ids and loads."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.ids: list[str] = []
        self.loads: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag not in VOID:
            self.open.append(tag)
        self.note(tag, dict(attrs))

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.note(tag, dict(attrs))

    def note(self, tag: str, attrs: dict[str, str | None]) -> None:
        if attrs.get("id"):
            self.ids.append(str(attrs["id"]))
        self.loads += [f"{tag} {key}" for key in ("src", "href", "xlink:href") if key in attrs]
        if tag in {"script", "link", "iframe", "object", "image", "img"}:
            self.loads.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def parsed(page: str) -> Balance:
    reader = Balance()
    reader.feed(page)
    reader.close()
    assert reader.open == []
    return reader


def drawings(page: str) -> list[ElementTree.Element]:
    return [ElementTree.fromstring(svg) for svg in re.findall(r"<svg .*?</svg>", page, re.DOTALL)]


def pictures(page: str) -> list[ElementTree.Element]:
    return [svg for svg in drawings(page) if svg.get("role") == "img"]


def test_each_drawing_is_well_formed_and_described(study_runs: list[ReplayResult]) -> None:
    found = pictures(render(study_runs))
    assert len(found) > 20
    for svg in found:
        title, desc = list(svg)[:2]
        assert title.tag.endswith("title")
        assert (title.text or "").strip()
        assert (desc.text or "").strip()
        assert svg.get("aria-labelledby") == f"{title.get('id')} {desc.get('id')}"


def test_every_picture_is_there_at_every_load(study_runs: list[ReplayResult]) -> None:
    page = render(study_runs)
    ids = parsed(page).ids
    for load in (0, 1):
        assert {f"{key}-l{load}" for key in KEYS} <= set(ids)
    assert "loads" in ids
    assert len(ids) == len(set(ids))


def test_the_page_loads_nothing(study_runs: list[ReplayResult]) -> None:
    page = render(study_runs)
    assert parsed(page).loads == []
    bare = page.replace('xmlns="http://www.w3.org/2000/svg"', "")
    for loaded in ("http://", "https://", "url(", "@import", "<script"):
        assert loaded not in bare
    assert "default-src 'none'" in page


def test_no_coordinate_is_unknown(study_runs: list[ReplayResult]) -> None:
    for svg in pictures(render(study_runs)):
        for part in svg.iter():
            for key in ("d", "x", "y", "width", "height"):
                assert not re.search(r"nan|inf|None", part.get(key, ""))


def test_names_are_escaped_everywhere(make) -> None:
    evil = "<b>&\"'</svg><script>alert(1)</script>\x00\x1b\ud800"
    run = make(evil, vcs=(evil, "ok"), trace=evil, warnings=(evil,))
    jobs = dataclasses.replace(run.jobs, job_id=np.array([evil] * len(run.jobs), dtype=object))
    run = dataclasses.replace(
        run, jobs=jobs, summary={**run.summary, "options": {evil: evil}, "semantics": evil}
    )
    page = render([run, make("plain")], title=evil)
    parsed(page)
    assert drawings(page)
    assert "<script" not in page
    assert "<b>&" not in page
    assert "\x00" not in page
    page.encode("utf-8")


def test_same_results_give_the_same_bytes(make, tmp_path: Path) -> None:
    for name in ("a.html", "b.html"):
        write_report([make(n=40), make("srtf", n=40)], tmp_path / name)
    assert (tmp_path / "a.html").read_bytes() == (tmp_path / "b.html").read_bytes()


def test_the_order_of_seeds_does_not_matter(make) -> None:
    runs = [make(n=30, seed=seed) for seed in (1, 2, 3)]
    assert render(runs) == render(runs[::-1])


def test_no_results_make_a_page_that_says_so() -> None:
    page = render([])
    parsed(page)
    assert "nothing was replayed" in page


@pytest.mark.parametrize("jobs", [0, 1, 2])
def test_hardly_any_jobs(make, jobs: int) -> None:
    page = render([make(n=jobs)])
    assert {*KEYS} <= set(parsed(page).ids)
    assert drawings(page) or jobs == 0


def test_unknown_figures_are_dashes_and_jobs_that_never_started_are_no_trouble(make) -> None:
    run = make(n=20)
    nan = np.full(20, np.nan)
    jobs = dataclasses.replace(run.jobs, first_start_time=nan, finish_time=nan, duration=nan)
    blank = dict.fromkeys(run.summary, None)
    dark = dataclasses.replace(run, label="dark", jobs=jobs, summary={**blank, "policy": "dark"})
    page = render([run, dark])
    parsed(page)
    assert re.search(r'<th scope="row">dark</th><td>–', page)
    alone = render([dark])
    assert "No job finished in any run." in alone
    assert "No job started in any run." in alone


def test_without_recorded_placements_the_page_says_why(make) -> None:
    page = render([make(segments=False)])
    assert "Placements were not recorded" in page


def test_title_block_names_the_experiment(study_runs: list[ReplayResult]) -> None:
    page = render(study_runs, title="Spring study")
    head = page[: page.index("At a glance")]
    for said in ("Spring study", "small", "4x4:v100", "16 GPUs", "fifo, srtf", "0.8, 1.2"):
        assert said in head
    assert "1, 2, 3" in head


def test_warnings_and_options_are_shown(make) -> None:
    page = render([make(warnings=("3 rows were dropped",))])
    assert "3 rows were dropped" in page
    assert "placement.name" in page
    assert "min-nodes" in page


def test_different_numbers_of_completed_jobs_are_pointed_out(make) -> None:
    one, two = make("fifo"), make("srtf")
    fewer = dataclasses.replace(two, summary={**two.summary, "completed": 3})
    assert "completed different numbers of jobs" in render([one, fewer])
    assert "completed different numbers of jobs" not in render([one, two])


def test_figures_over_a_part_of_the_jobs_are_pointed_out(make) -> None:
    run = make(n=60)
    part = dataclasses.replace(run, summary={**run.summary, "jobs": 40})
    assert "over 40 of 60 jobs" in render([part])


def test_an_empty_window_is_bad_input(make, tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="window"):
        write_report([make(n=5)], tmp_path / "a.html", window=(10.0, 10.0))


def test_a_path_that_cannot_be_written_is_bad_input(make, tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="cannot write the report"):
        write_report([make(n=5)], tmp_path / "no" / "a.html")


def test_thirty_runs_stay_apart(make) -> None:
    runs = [make(f"p{k}", n=30, seed=1) for k in range(30)]
    page = render(runs)
    parsed(page)
    assert len(page) < 3_000_000


def test_two_hundred_thousand_jobs_make_a_small_file(make_large) -> None:
    page = render([make_large(200_000), make_large(200_000, label="las", seed=1)])
    assert len(page.encode()) < 1_000_000
    assert {*KEYS} <= set(parsed(page).ids)
