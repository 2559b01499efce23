"""`dlsched leaderboard` as a user calls it."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.dask_cluster import dask_cluster


def test_a_page_is_made_resumed_and_equal(dlsched, tmp_path: Path) -> None:
    pages = [tmp_path / f"{number}.md" for number in range(2)]
    words = (
        "leaderboard", "--division", "rigid", "--track", "philly-like", "--policy", "fifo,srtf",
        "--jobs", 60, "--seeds", 3, "--load", "1.2", "--resume", tmp_path / "runs",
        "--executor", "processes:1",
    )  # fmt: skip
    first = dlsched(*words, "-o", pages[0])
    assert first.code == 0, first.err
    assert "rigid: 1 of 12: philly-like at 1.2, 1: fifo, seed 0\n" in first.err
    assert first.err.count("rigid: ") == 12  # fifo once, srtf as told three ways, three seeds
    kept = {path: path.stat().st_mtime_ns for path in (tmp_path / "runs").iterdir()}
    assert len(kept) == 12
    assert dlsched(*words, "-o", pages[1]).code == 0
    assert kept == {path: path.stat().st_mtime_ns for path in (tmp_path / "runs").iterdir()}
    assert pages[0].read_bytes() == pages[1].read_bytes()
    text = pages[0].read_text()
    assert "### philly-like, load 1.2" in text
    assert re.search(
        r"^- Told true durations, `srtf` is best: an average JCT 1.\d\d times", text, re.M
    )
    assert "- Told no durations, `fifo` is best:" in text
    rows = [line.split("|") for line in text.splitlines() if line.startswith("| 1")]
    assert {(row[2].strip(), row[3].strip()) for row in rows} >= {
        ("srtf", "truth"),
        ("fifo", "nothing"),
    }


@pytest.mark.slow
@pytest.mark.filterwarnings("default")  # a library's own warnings are not ours
def test_two_dask_workers_make_the_page_that_this_process_makes(dlsched, tmp_path: Path) -> None:
    words = (
        "leaderboard", "--division", "rigid", "--track", "philly-like", "--policy",
        "fifo,conservative", "--jobs", 60, "--seeds", 2, "--load", "1.2",
    )  # fmt: skip
    own = dlsched(
        *words, "--executor", "processes:1", "--resume", tmp_path / "own", "-o", tmp_path / "own.md"
    )
    assert own.code == 0, own.err
    (tmp_path / "dask").mkdir()
    with dask_cluster(tmp_path / "dask", workers=2) as address:
        far = dlsched(
            *words, "--executor", f"dask://{address}", "--resume", tmp_path / "far",
            "-o", tmp_path / "far.md",
        )  # fmt: skip
    assert far.code == 0, far.err
    assert far.err.count("rigid: ") == 8
    assert rows_of(tmp_path / "far.md") == rows_of(tmp_path / "own.md")


def rows_of(page: Path) -> list[str]:
    """Its lines without the last column, which says how long decisions took."""
    return [line.rsplit("|", 2)[0] for line in page.read_text().splitlines()]


@pytest.mark.parametrize(
    ("words", "line"),
    [
        (("--division", "ridgid"), "--division 'ridgid' is not known; known: rigid, deadlines"),
        (("--track", "venus"), "--track 'venus' is not known; known: philly, helios, pai"),
        (("--policy", "fif"), "policy of the leaderboard 'fif' is not known"),
        (("--track", "pai", "--data", "."), "no recorded trace of pai: --data DIR, or --trace"),
        (("--trace", "moon=x.csv"), "--trace must be TRACK=FILE with a track of philly, helios"),
        (("--trace", "pai=x.csv"), "--trace pai: no file x.csv"),
        (("--load", "0"), "--load"),
        (("--data", "nowhere"), "--data: no folder nowhere"),
        (("--track", "venus-like", "-o", "nowhere/x.md"), "--output nowhere/x.md: "),
    ],
)
def test_bad_words_are_one_line(
    dlsched, words: tuple[str, ...], line: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    refused = dlsched("leaderboard", *words)
    assert refused.code == 2
    assert line in refused.err
    assert refused.err.count("\n") == 1
    assert not list(tmp_path.iterdir())
