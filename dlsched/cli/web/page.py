"""The page as HTML, drawn with the report's own code: one file, no script."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

from dlsched import __version__
from dlsched.cli.jobs.job_columns import COLUMNS, Row, rows_of
from dlsched.cli.jobs.whatif.page import predicted_figure
from dlsched.cli.output.listing import Column
from dlsched.cli.output.times import column_text, local_text
from dlsched.cli.web.cluster_view import DAYS, Seen
from dlsched.cli.web.gpu_cells import CELL_STYLE, nodes_html
from dlsched.cli.web.past_days import past_days_figure
from dlsched.client.submission.durations import duration_text
from dlsched.core.errors import plural
from simulate.report.drawing.charts import Figure
from simulate.report.page import document, figure_html, section
from simulate.report.wording import clean

REFRESH_S = 30
MOST_ROWS = 200  # of each table
_WAITING = ("id", "name", "user", "vc", "gpus", "type", "delay", "where")
_RUNNING = ("id", "name", "user", "vc", "gpus", "type", "time", "left", "end", "gpu_use", "where")
_WIDE_ONLY = {"vc", "type", "delay", "end", "gpu_use"}  # columns that a narrow screen leaves out
_STYLE = CELL_STYLE + (
    "table.jobs{min-width:100%}table.jobs td,table.jobs th{white-space:nowrap;text-align:left}"
    "table.jobs .n{text-align:right}table.jobs td:last-child{white-space:normal;min-width:16em;"
    "overflow-wrap:anywhere}"
    "table.jobs td:nth-child(2){white-space:normal;min-width:8em;overflow-wrap:anywhere}"
    "@media screen and (max-width:760px){table.jobs .o{display:none}"
    "table.jobs td,table.jobs th{padding:4px 4px}table.jobs td:last-child{min-width:9em}"
    "table.jobs td:nth-child(2){min-width:5em}}"
    ".green{color:#009e73}.yellow{color:#c98a00}.red{color:#d55e00}"
)


def cluster_page(seen: Seen) -> str:
    """The page as text."""
    rows = list(rows_of(seen.queue.rows(), seen.at, predicted=True))
    waiting = [row for row in rows if row.job.is_pending]
    running = [row for row in rows if not row.job.is_pending]
    name = clean(seen.status.cluster or "cluster")
    total = seen.queue.summary
    body = [
        _head(name, seen),
        section(
            f"Nodes: {total.busy_gpus} of {plural(total.gpus, 'GPU')} busy",
            nodes_html(seen.nodes, {row.job.job_id: row.job for row in running}),
        ),
        section(f"Waiting: {plural(total.pending, 'job')}", _table(waiting, _WAITING, "waits")),
        section(f"Running: {plural(total.running, 'job')}", _table(running, _RUNNING, "runs")),
        section("Predicted schedule", figure_html(_schedule(seen), 1, "schedule")),
        section(f"The past {DAYS} days", figure_html(_past(seen), 2, "past")),
        f"<footer>dlsched {escape(__version__)}; this page is made anew every {REFRESH_S} s and "
        "changes nothing.</footer>",
    ]
    return document(name, body, style=_STYLE, refresh_s=REFRESH_S)


def _head(name: str, seen: Seen) -> str:
    status, total = seen.status, seen.queue.summary
    round_text = (
        "none yet" if not status.round else f"{status.round}, {status.round_s * 1e3:.0f} ms"
    )
    facts = [
        ("Policy", status.policy),
        ("Newest round", round_text),
        ("Nodes", f"{status.nodes_up} up, {status.nodes_late} late, {status.nodes_down} down"),
        ("Jobs", f"{total.running:,} running, {total.pending:,} waiting"),
        ("Leader", f"{status.leader}, up {duration_text(status.up_s)}"),
        ("As of", local_text(seen.at)),
    ]
    said = "".join(f"<dt>{escape(k)}</dt><dd>{escape(clean(v))}</dd>" for k, v in facts)
    problems = [*status.problems]
    if total.policy_failure:
        problems.insert(0, f"the policy starts nothing now: {total.policy_failure}")
    beware = ""
    if problems:
        items = "".join(f"<li>{escape(clean(each))}</li>" for each in problems)
        beware = f'<aside class="warnings"><b>To look at</b><ul>{items}</ul></aside>'
    colour = status.health if status.health in {"green", "yellow", "red"} else "yellow"
    return (
        f'<header><h1>{escape(name)} <span class="{colour}" title="{escape(status.health)}">'
        f'&#9679;</span></h1><dl class="facts">{said}</dl></header>{beware}'
    )


def _table(rows: Sequence[Row], names: Sequence[str], verb: str) -> str:
    if not rows:
        return f'<p class="absent">No job {verb}.</p>'
    columns = [COLUMNS[name] for name in names]
    head = "".join(f'<th scope="col"{_side(each)}>{escape(each.title)}</th>' for each in columns)
    lines = [
        "".join(f"<td{_side(each)}>{escape(clean(each.text(row)))}</td>" for each in columns)
        for row in rows[:MOST_ROWS]
    ]
    more = len(rows) - MOST_ROWS
    rest = f'<p class="key">{plural(more, "more line")}: dlsched queue -a</p>' if more > 0 else ""
    return (
        f'<div class="scroll"><table class="jobs"><thead><tr>{head}</tr></thead>'
        f"<tbody><tr>{'</tr><tr>'.join(lines)}</tr></tbody></table></div>{rest}"
    )


def _side(column: Column[Row]) -> str:
    classes = [*(["n"] if column.right else []), *(["o"] if column.name in _WIDE_ONLY else [])]
    return f' class="{" ".join(classes)}"' if classes else ""


def _schedule(seen: Seen) -> Figure:
    fetched = seen.schedule
    if fetched.value is not None:
        return predicted_figure(fetched.value)
    why = fetched.why or "It is being predicted; the next page has it."
    return Figure(key="schedule", title="Predicted placements", absent=why)


def _past(seen: Seen) -> Figure:
    fetched = seen.ended
    if fetched.value is not None:
        return past_days_figure(fetched.value, fetched.at)
    why = fetched.why or "The history is being read; the next page has it."
    return Figure(key="past", title=f"Since {column_text(seen.at - DAYS * 86400)}", absent=why)
