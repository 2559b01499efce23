"""`dlsched replay --from-db` reads every job that has ended."""

from __future__ import annotations

import csv
from pathlib import Path

from dlsched.cli.replay.history_replay import open_history
from dlsched.core.service_clock import NEW
from dlsched.db.reading.queries import PAGE_BYTES
from dlsched.db.served import JobServed
from dlsched.db.store import Store
from dlsched.protocol.ledger import Attach
from dlsched.protocol.messages import JobId
from tests.db.ledgers import assign, ended, node, received, submit


def test_jobs_that_ask_for_much_are_all_in_the_trace(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/store.db"
    long = "x" * (PAGE_BYTES // 4)  # so that a page has few of them
    with Store.open(url) as store:
        term = store.contend("daemon-1")
        assert term is not None
        writes = [node("n1"), *(submit(job, comment=long) for job in range(1, 11))]
        store.persist(term.epoch, 1, writes, 1.0)
        for job in range(1, 11):
            store.persist(term.epoch, 2 * job, [assign(job, ("n1", (0,)))], 10.0 * job)
            times = {"since": 10.0 * job + 5.0, "first_start": 10.0 * job}
            account = NEW._replace(**times, held_s=5.0, executed=5.0, attained=5.0)
            told = Attach(JobServed(job=JobId(job), run_id="", holds=False, account=account))
            over = [received(job, held_s=5.0), told, ended(job, "n1")]
            store.persist(term.epoch, 2 * job + 1, over, 10.0 * job + 5.0)
    history = open_history(url, None)
    try:
        with open(history.trace, encoding="utf-8") as file:
            assert len(list(csv.DictReader(file))) == 10
    finally:
        history.close()
