"""`dlsched flows`: flows over shared links under several disciplines, as fluid."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from dlsched.cli.named_number import named_number
from dlsched.cli.option_groups import option
from dlsched.core.errors import BadInput, DlschedError

if TYPE_CHECKING:
    from simulate.network.comparison import Result
    from simulate.network.flows import Flow

SCHEMA = "dlsched.flows/1"
OWN = 8  # queues of a commodity switch; one of them is for deadlines


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
    from simulate.network.comparison import compare, discipline_of, limits_of  # noqa: PLC0415
    from simulate.network.flow_files import read_flows  # noqa: PLC0415
    from simulate.network.queueing import Queues  # noqa: PLC0415

    names = [name.strip() for name in discipline.split(",") if name.strip()]
    for name in names:
        discipline_of(name, Queues())
    if not 1 <= queues <= OWN:
        raise BadInput(f"--queues must be 1 to {OWN}, not {queues}")
    if not 0 <= floor < 1:
        raise BadInput(f"--floor must be from 0 to below 1, not {floor:g}")
    rates = dict(named_number(text, "--link must be NAME=RATE with a rate") for text in links)
    given = {flag: _limits(flag, text) for flag, text in (("--alpha", alpha), ("--beta", beta))}
    flows = read_flows(file, rates)
    if not flows:
        raise BadInput(f"{file}: has no flows")
    made = limits_of(flows, rates, queues) if None in given.values() else ()
    known, unknown = given["--beta"], given["--alpha"]
    served = Queues(
        alpha=made if unknown is None else unknown,
        beta=made if known is None else known,
        floor=floor,
    )
    results = compare(flows, rates, names, served)
    if flows_out is not None:
        _write(flows_out, flows, results)
    if as_json:
        told = {
            "schema": SCHEMA,
            "alpha": list(served.alpha),
            "beta": list(served.beta),
            "results": [result.figures() for result in results],
        }
        typer.echo(json.dumps(told, allow_nan=False))
        return
    for line in _table(results):
        typer.echo(line)


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


def _table(results: Sequence[Result]) -> list[str]:
    from dlsched.cli.replay.text_table import TextTable  # noqa: PLC0415

    def column(name: str) -> list[str]:
        values = [getattr(result, name) for result in results]
        return ["-" if value is None else f"{value:.4g}" for value in values]

    met = [f"{each.deadlines - each.missed}/{each.deadlines}" for each in results]
    table = TextTable()
    table.add("Discipline", [each.discipline for each in results], left=True)
    table.add("Deadlines met", met)
    for title, name in (
        ("Late by (s)", "mean_late_s"),
        ("Others mean (s)", "mean_others_s"),
        ("Others 95% (s)", "p95_others_s"),
        ("Last end (s)", "last_end_s"),
    ):
        table.add(title, column(name))
    return list(table.lines())


def _write(path: Path, flows: Sequence[Flow], results: Sequence[Result]) -> None:
    from dlsched.system.output_files import appearing_whole  # noqa: PLC0415

    names = [result.discipline for result in results]
    lines = [",".join(["flow_id", "kind", "arrival", "deadline", *names])]
    for flow in flows:
        due = "" if flow.deadline is None else f"{flow.deadline:.12g}"
        ends = [f"{float(result.ends[flow.id]):.12g}" for result in results]
        lines.append(",".join([str(flow.id), flow.kind, f"{flow.arrival:.12g}", due, *ends]))
    try:
        with appearing_whole(path) as part:
            part.write_text("\n".join(lines) + "\n", encoding="utf-8", newline="\n")
    except OSError as error:
        raise DlschedError(f"{path}: can't be written ({error.strerror or error})") from None
    print(f"dlsched: {path}: {len(flows)} flows", file=sys.stderr)
