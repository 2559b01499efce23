"""`dlsched reproduce` as a user calls it, and its page."""

from __future__ import annotations

import json
import math
import os
import re
from pathlib import Path
from typing import Any

import pytest

from dlsched.cli.reproduce.catalogue import Figure, Reproduction, Run, catalogue
from dlsched.cli.reproduce.comparing import Compared, reproduce
from dlsched.core.errors import DlschedError

ROOT = Path(os.environ.get("DLSCHED_DATA", Path(__file__).parents[3] / "shared" / "data"))
PAGE = Path(__file__).parents[2] / "docs" / "reproduced.md"
SHORT_S = 2.5  # CPU-seconds; longer ones run with the exhaustive tests


@pytest.mark.parametrize(
    ("figure", "ours", "verdict"),
    [
        (Figure(path="avg_jct", published="0.118"), 0.1179487, "as published"),
        (Figure(path="avg_jct", published="0.118"), 0.1174, "differs"),
        (Figure(path="avg_jct", published="200", within=0.02), 203.9, "as published"),
        (Figure(path="avg_jct", published="200", within=0.02), 195.0, "differs"),
        (Figure(path="avg_jct", published="5.5", at_least=True), 6.1, "as published"),
        (Figure(path="avg_jct", published="5.5", at_least=True), 5.4, "differs"),
        (Figure(path="avg_jct", published="1", because="ties"), 2.0, "differs, explained"),
        (Figure(path="avg_jct", published="1", because="ties"), 1.0, "as published"),
        (Figure(path="avg_jct", published="1"), math.nan, "differs"),
    ],
)
def test_a_figure_is_judged_by_what_was_asked(figure: Figure, ours: float, verdict: str) -> None:
    assert Compared("run", figure, ours).verdict == verdict


@pytest.mark.slow
def test_a_trend_is_reproduced_from_a_generated_trace(dlsched: Any, tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    shown = dlsched("reproduce", "tiresias-against-fifo", "--page", page, "--json")
    assert shown.code == 0, shown.err
    [found] = json.loads(shown.out)["reproductions"]
    [row] = found["figures"]
    assert (row["published"], row["verdict"]) == (5.5, "as published")
    assert row["ours"] > 5.5
    assert "| fifo | avg_jct, over tiresias | 5.5 |" in page.read_text()


def test_the_list_needs_no_data(dlsched: Any, tmp_path: Path) -> None:
    told = json.loads(dlsched("reproduce", "--list", "--json", "--data", tmp_path).out)
    missing = {each["name"]: each["missing"] for each in told["reproductions"]}
    assert set(missing) == set(catalogue())
    assert missing["qssf-against-fifo"] is None
    assert missing["gandiva-reduced"] == f"no {tmp_path}/gandiva/trace_60.csv"
    table = dlsched("reproduce", "--list", "--data", tmp_path).out
    assert re.search(r"^gandiva-reduced +Gandiva +artifact +1 +no", table, re.M)


@pytest.mark.parametrize(
    ("words", "line"),
    [
        (
            ("gandiva-reducd",),
            "called 'gandiva-reducd'; did you mean gandiva-reduced? (see --list)",
        ),
        ((), "name what to reproduce, or --all; --list shows what there is"),
        (("Gandiva", "--all"), "name what to reproduce, or --all"),
        (("Gandiva", "--data", "nowhere"), "--data: no folder nowhere"),
        (("Gandiva", "--data", "."), "gandiva-reduced: no gandiva/trace_60.csv"),
        (("tiresias-against-fifo", "--page", "nowhere/x.md"), "--page nowhere/x.md: "),
    ],
)
def test_bad_words_are_one_line(
    dlsched: Any, words: tuple[str, ...], line: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    refused = dlsched("reproduce", *words)
    assert refused.code == 2
    assert line in refused.err
    assert refused.err.count("\n") == 1


def test_a_command_that_fails_says_its_last_words() -> None:
    run = Run(label="x", words=("replay", "nowhere.csv", "--cluster", "1x1"), figures=())
    wanted = Reproduction(
        name="x", system="x", shows="x", source="paper", cpu_s=1, files={}, prepare=(), runs=(run,)
    )
    with pytest.raises(DlschedError, match=r"ended with 2: dlsched: .*nowhere\.csv"):
        reproduce(wanted, None)


def test_the_files_that_a_command_reads_are_on_the_page() -> None:
    text = PAGE.read_text()
    for each in catalogue().values():
        for name, content in each.files.items():
            assert f"`{{work}}/{name}`:\n\n```text\n{content.rstrip()}\n```" in text, each.name


def test_the_page_has_everything_and_nothing_differs_without_a_reason() -> None:
    text = PAGE.read_text()
    assert re.findall(r"^## (\S+)$", text, re.M) == list(catalogue())
    rows = re.findall(r"^\| (\S+) \| (\S+?)(?:, over \S+)? \| (\S+) \| .* \| (.+) \|$", text, re.M)
    shown = [(label, path, published) for label, path, published, _ in rows if label != "Run"]
    assert [row for row in shown if row[0] != "---"] == [
        (run.label, figure.path, figure.published)
        for each in catalogue().values()
        for run in each.runs
        for figure in run.figures
    ]
    assert {verdict for *_, verdict in rows} <= {
        *("as published", "differs, explained", "Verdict", "---")
    }


@pytest.mark.fidelity
@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=pytest.mark.exhaustive if each.cpu_s > SHORT_S else ())
        for name, each in catalogue().items()
    ],
)
def test_published_figures_come_out(name: str) -> None:
    wanted = catalogue()[name]
    if lost := wanted.missing(ROOT):
        pytest.skip(lost)
    assert {row.verdict for row in reproduce(wanted, ROOT)} <= {
        *("as published", "differs, explained")
    }
