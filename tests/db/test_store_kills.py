"""P1: whatever was said to be stored is there after SIGKILL, on both databases."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from dlsched.db.store import Store
from dlsched.protocol.messages import JobId

pytestmark = pytest.mark.slow

CHILD = """
import sys, time
from dlsched.db.store import Store
from tests.db.ledgers import submit

store = Store.open(sys.argv[1])
while (term := store.contend("child")) is None:  # the server may not know yet of the kill
    time.sleep(0.05)
first = store.load().ledger.next_job
for number in range(1, 100_000):
    store.persist(term.epoch, number, [submit(first + number - 1)], 1.0)
    print(first + number - 1, flush=True)
"""


@pytest.mark.parametrize("after", [1, 7, 25])
def test_a3_nothing_that_was_answered_is_lost_to_a_kill(url: str, after: int) -> None:
    seen: list[int] = []
    for _ in range(2):
        with subprocess.Popen(
            [sys.executable, "-c", CHILD, url],
            stdout=subprocess.PIPE,
            text=True,
            cwd=Path(__file__).parents[2],
        ) as child:
            assert child.stdout is not None
            for _line in range(after):
                seen.append(int(child.stdout.readline()))
            child.kill()
            seen += [int(line) for line in child.stdout.read().split()]
    assert len(seen) == len(set(seen)) >= 2 * after  # no id twice
    with Store.open(url) as store:
        found = {job.job.job: job for job in store.jobs(map(JobId, seen))}
        assert set(seen) <= found.keys()
        for number in seen:
            spec = found[JobId(number)].spec
            assert spec is not None
            assert spec.body.name == f"job{number}"
        ledger = store.load().ledger
        assert ledger.next_job > max(seen)
        assert ledger.epoch == 2
        assert len(ledger.jobs) <= len(seen) + 2  # at most one commit a kill was not told
        assert all(job.request.request_id for job in ledger.jobs.values())
