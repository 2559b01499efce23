"""Schedules that no test has, drawn from the commit, for some minutes on every core.

    python -m tests.protocol.fresh_seeds --minutes 3 --schedules 1000
    python -m tests.protocol.fresh_seeds --theme joining --play 5278

Commits with the same content draw the same seeds in the same order, and a number of schedules ends
a run on a fast machine: so what CI will play can be played before, and one that failed again.
Each failure is printed with what plays it again; the exit status is 1 then.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import subprocess
import sys
import time
import traceback
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from itertools import count, islice
from multiprocessing import get_context

from dlsched.core.errors import InvariantBroken
from tests.protocol.simulation import schedules

FIRST = 1_000_000  # lower seeds are those of tests
STORIES = 5  # at most, that are printed whole


def commit() -> str:
    """What is committed here, whatever the commit says; a name for all others without one."""
    words = ["git", "rev-parse", "HEAD^{tree}"]
    found = subprocess.run(words, capture_output=True, text=True, check=False)
    return found.stdout.strip() or "no commit"


def draw(origin: str, themes: Sequence[str]) -> Iterator[tuple[str, int]]:
    """Theme after theme, each with a seed that follows from `origin` and its place."""
    for place in count():
        for theme in themes:
            digest = hashlib.sha256(f"{origin} {theme} {place}".encode()).digest()
            yield theme, FIRST + int.from_bytes(digest[:4])


def play(theme: str, seed: int) -> str:
    """What went wrong in a schedule; empty when every promise was kept."""
    try:
        schedules.play(theme, seed)
    except InvariantBroken as broken:
        return str(broken)
    except Exception:  # a step that raises ends a daemon or an agent
        return traceback.format_exc()
    return ""


def play_for(
    origin: str, themes: Sequence[str], share: tuple[int, int], until: float, most: int | None
) -> list[tuple[str, int, str]]:
    """Play one process's share of the seeds; theme, seed and what went wrong.

    Args:
        origin: what they are drawn from.
        themes: of the schedules.
        share: which of how many processes this is.
        until: when to end, in seconds of the monotonic clock.
        most: how many seeds all processes play together; None: without a bound.
    """
    played = []
    for theme, seed in islice(draw(origin, themes), share[0], most, share[1]):
        if time.monotonic() >= until:
            break
        wrong = play(theme, seed)
        played.append((theme, seed, wrong))
        if wrong:
            again = f"python -m tests.protocol.fresh_seeds --theme {theme!r} --play {seed}"
            print(f"FAILED {again}\n  {wrong.strip().splitlines()[0]}", flush=True)
    return played


def main() -> int:
    """Play seeds as the command line asks; the exit status."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--minutes", type=float, default=3.0, help="for how long (default: 3)")
    parser.add_argument("--schedules", type=int, help="at most so many (default: no bound)")
    parser.add_argument("--theme", action="append", choices=sorted(schedules.THEMES))
    parser.add_argument("--play", type=int, metavar="SEED", help="this one alone")
    parser.add_argument("--origin", default="", help="draw from this (default: the commit)")
    parser.add_argument("--processes", type=int, default=os.cpu_count() or 1)
    asked = parser.parse_args()
    themes, origin = asked.theme or sorted(schedules.THEMES), asked.origin or commit()
    if asked.play is not None:
        wrong = [play(theme, asked.play) for theme in themes]
        print("\n".join(filter(None, wrong)) or "every promise was kept")
        return int(any(wrong))
    print(f"fresh schedules of {len(themes)} themes from {origin}", flush=True)
    until = time.monotonic() + 60.0 * asked.minutes
    with ProcessPoolExecutor(asked.processes, mp_context=get_context("spawn")) as pool:
        shares = [(k, asked.processes) for k in range(asked.processes)]
        done = [
            pool.submit(play_for, origin, themes, share, until, asked.schedules) for share in shares
        ]
        played = [each for one in done for each in one.result()]
    failed = [each for each in played if each[2]]
    for theme, seed, wrong in failed[:STORIES]:
        print(f"\n== {theme} {seed}\n{wrong}")
    counts = Counter(theme for theme, *_ in played)
    print(", ".join(f"{theme} {n}" for theme, n in sorted(counts.items())))
    print(f"{len(played)} schedules played, {len(failed)} failed")
    return int(bool(failed))


if __name__ == "__main__":
    sys.exit(main())
