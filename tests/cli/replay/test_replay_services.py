"""Services beside trainings, from the command line to the page."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

SERVICES = """
[[services]]
name = "ranker"
sla_s = 0.2
share = 0.99
service_time = { dist = "lognormal", mu = -2.8, sigma = 0.4 }
rates = [[0, 5], [300, 60]]
period_s = 900
most = 6
"""


def test_the_command_line_compares_policies_beside_services(dlsched: Any, tmp_path: Path) -> None:
    trace, page, figures = (tmp_path / name for name in ("t.csv", "r.html", "f.json"))
    trace.write_text("job_id,submit_time,num_gpus,duration\na,0,4,900\nb,10,2,600\nc,20,1,100\n")
    file = tmp_path / "s.toml"
    file.write_text(SERVICES)
    files = (
        "--services",
        file,
        "--report",
        page,
        "--summary-out",
        figures,
        "--executor",
        "processes:1",
    )
    shown = dlsched("replay", trace, "--cluster", "2x4", "--policy", "fifo,srtf", *files)
    assert shown.code == 0, shown.err
    assert "Lent GPU-h" in shown.out
    assert "requests of services wait in one queue" in shown.out
    for run in json.loads(figures.read_text()):
        assert 0 < run["services"]["by_service"]["ranker"]["in_time_share"] < 1
    assert "Requests of services in time" in page.read_text()
    missing = dlsched("replay", trace, "--cluster", "2x4", "--services", tmp_path / "no.toml")
    assert missing.code == 2
    assert "no.toml: no such file" in missing.err
