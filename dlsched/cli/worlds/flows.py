"""`dlsched flows`: flows over shared links under several disciplines, as fluid."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Annotated

import typer

from dlsched.cli.named_number import named_number
from dlsched.cli.option_groups import option
from dlsched.cli.replay.option_values import several
from dlsched.cli.worlds.frame import Figure, Output, report, within
from dlsched.core.errors import BadInput

OWN = 8  # queues of a commodity switch; one of them is for deadlines
FIGURES = (
    Figure("Deadlines", "deadlines", "g"),
    Figure("Missed", "missed", "g"),
    Figure("Late by (s)", "mean_late_s"),
    Figure("Others mean (s)", "mean_others_s"),
    Figure("Others 95% (s)", "p95_others_s"),
    Figure("Last end (s)", "last_end_s"),
)


def flows_command(
    file: Annotated[Path, typer.Argument(metavar="FLOWS", help="A CSV file of flows.")],
    links: Annotated[
        list[str], option("--link NAME=RATE", "A link, in units of the sizes a second; repeat it.")
    ],
    discipline: Annotated[
        str, option("--discipline NAME,…", "karuna, edf-first-queues, edf-first, srpt, fair.")
    ] = "karuna,edf-first-queues,edf-first,srpt,fair",
    queues: Annotated[
        int, option("--queues N", "Queues for flows without deadline; limits follow from sizes.")
    ] = OWN - 1,
    alpha: Annotated[
        str | None, option("--alpha A,B,…", "Amounts sent at which a flow of unknown size sinks.")
    ] = None,
    beta: Annotated[
        str | None, option("--beta A,B,…", "Sizes between the queues of known flows.")
    ] = None,
    floor: Annotated[
        float, option("--floor SHARE", "Of each link, for the last queue in any case.")
    ] = 0.05,
    flows_out: Annotated[
        Path | None, option("--flows-out FILE", "When each flow ends under each discipline, CSV.")
    ] = None,
    as_json: Annotated[bool, option("--json", "One JSON object.")] = False,
) -> None:
    """Follow flows that share links: deadlines met, and how long the others take."""
    from simulate.worlds.network.comparison import compare, limits_of  # noqa: PLC0415
    from simulate.worlds.network.disciplines import Queues  # noqa: PLC0415
    from simulate.worlds.network.flow_files import read_flows  # noqa: PLC0415

    within("--queues", queues, 1, OWN)
    within("--floor", floor, 0, math.nextafter(1, 0))
    rates = dict(named_number(text, "--link must be NAME=RATE with a rate") for text in links)
    known, unknown = _limits("--beta", beta), _limits("--alpha", alpha)
    names = several("--discipline", discipline)
    flows = read_flows(file, rates)
    made = limits_of(flows, rates, queues) if known is None or unknown is None else ()
    served = Queues(
        alpha=made if unknown is None else unknown,
        beta=made if known is None else known,
        floor=floor,
    )
    results = compare(flows, rates, names, served)
    about = {
        "flow_id": (flow.id for flow in flows),
        "kind": (flow.kind for flow in flows),
        "arrival": (flow.arrival for flow in flows),
        "deadline": (flow.deadline for flow in flows),
    }
    output = Output(jobs_out=flows_out, as_json=as_json)
    limits = {"alpha": list(served.alpha), "beta": list(served.beta)}
    report(results, FIGURES, output, about, schema="dlsched.flows/1", told=limits)


def _limits(flag: str, text: str | None) -> tuple[float, ...] | None:
    if text is None:
        return None
    try:
        values = [float(item) for item in text.split(",") if item.strip()]
    except ValueError:
        values = [-1.0]
    if values != sorted(set(values)) or any(value <= 0 for value in values):
        raise BadInput(f"{flag} must be ascending numbers above 0, such as 10,100, not {text!r}")
    return tuple(values)
