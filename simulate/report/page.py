"""The report as one HTML file that needs nothing else: no network, no script, no font file."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from html import escape
from pathlib import Path

from dlsched import __version__
from dlsched.core.errors import BadInput, plural
from simulate.report.drawing.charts import Figure, Table
from simulate.report.drawing.draw import draw_panel, swatch
from simulate.report.drawing.style import MOST_TABS, style_sheet
from simulate.report.findings import cautions, findings
from simulate.report.series import LoadPictures, Pictures, pictures
from simulate.report.study import Study, load_text
from simulate.report.wording import DASH, clean, count_text, number_text
from simulate.results.assumptions import assumed
from simulate.results.tables import ReplayResult


def write_report(
    results: Sequence[ReplayResult],
    path: str | Path,
    *,
    title: str | None = None,
    window: tuple[float, float] | None = None,
) -> None:
    """Write the report of some runs as one self-contained HTML file.

    Runs with the same label and load are seeds of one another. The same results give the same
    bytes.

    Args:
        results: the runs.
        path: of the file.
        title: of the page; made from the runs when None.
        window: what the Gantt charts show, start and end in seconds from the trace's start; without
            it they show the time around the longest queue.

    Raises:
        BadInput: the window is empty, or the file cannot be written.
    """
    page = render(results, title=title, window=window)
    try:
        Path(path).write_text(page, encoding="utf-8", newline="\n")
    except OSError as error:
        raise BadInput(f"cannot write the report {path}: {error.strerror}") from error


def render(
    results: Sequence[ReplayResult],
    *,
    title: str | None = None,
    window: tuple[float, float] | None = None,
) -> str:
    """The page as text; raises BadInput when the window is empty."""
    check_window(window)
    shown = pictures(results, window=window)
    study = shown.study
    name = clean(title) if title else default_title(study)
    body = [header(name, study), findings_section(study)]
    if shown.study.groups:
        body.append(section("Summary", "".join(map(table_html, shown.summary)) + table_key(shown)))
        body.append(figures_section(shown))
        body.append(options_section(study))
    body.append(
        f"<footer>Made by dlsched {escape(__version__)}. Times are in the trace’s clock; "
        "JCT is finish minus submit, queueing delay first start minus submit.</footer>"
    )
    return document(name, body)


def document(
    name: str, body: Sequence[str], *, style: str = "", refresh_s: int | None = None
) -> str:
    """A whole page of these parts, with the style sheet in it.

    Args:
        name: its title.
        body: its parts, as HTML.
        style: further rules of style.
        refresh_s: after so many seconds a browser asks for the page again; None: never.
    """
    again = "" if refresh_s is None else f'<meta http-equiv="refresh" content="{refresh_s}">\n'
    return (
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        # The browser itself refuses whatever would leave the file.
        '<meta http-equiv="Content-Security-Policy" '
        "content=\"default-src 'none'; style-src 'unsafe-inline'\">\n"
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f'<meta name="generator" content="dlsched {escape(__version__)}">\n'
        f"{again}<title>{escape(name)}</title>\n<style>{style_sheet()}{style}</style>\n</head>\n<body>\n<main>\n"
        + "\n".join(body)
        + "\n</main>\n</body>\n</html>\n"
    )


def check_window(window: tuple[float, float] | None) -> None:
    """A window must have a positive length."""
    if window is not None and not window[0] < window[1]:
        raise BadInput(
            "the window of the Gantt chart is empty: "
            f"it starts at {window[0]} s and ends at {window[1]} s"
        )


def default_title(study: Study) -> str:
    """The title of a report for which none was given."""
    traces = list(dict.fromkeys(clean(run.trace) for run in study.runs))
    if not traces:
        return "Replay report"
    what = ", ".join(traces)
    if len(study.labels) == 1:
        return f"{study.labels[0]} on {what}"
    return f"{len(study.labels)} policies on {what}"


def unique(values: Sequence[str]) -> str:
    """Distinct values in order, or an en dash."""
    return ", ".join(dict.fromkeys(v for v in values if v)) or DASH


def header(name: str, study: Study) -> str:
    """Title, the facts of the experiment, and what to beware of."""
    runs = study.runs
    facts = [
        ("Trace", unique([clean(r.trace) for r in runs])),
        ("Cluster", unique([cluster_text(r) for r in runs])),
        ("Policies", unique(list(study.labels))),
        ("Semantics", unique([clean(r.summary.get("semantics") or "") for r in runs])),
        ("Jobs", unique([count_text(len(r.jobs)) for r in runs])),
        ("Load", load_fact(study)),
        ("Seeds", unique([str(seed) for seed in study.seeds])),
        ("Assumed", assumed(runs) or DASH),
        ("dlsched", __version__),
    ]
    said = "".join(f"<dt>{escape(k)}</dt><dd>{escape(v)}</dd>" for k, v in facts)
    lead = f"Replay of {plural(len(runs), 'run')}" if runs else "No runs"
    text = (
        f'<header><h1>{escape(name)}</h1><p class="lead">{escape(lead)}</p>'
        f'<dl class="facts">{said}</dl></header>'
    )
    beware = cautions(study)
    if beware:
        items = "".join(f"<li>{escape(clean(w))}</li>" for w in beware)
        text += f'<aside class="warnings"><b>Read with care</b><ul>{items}</ul></aside>'
    return text


def cluster_text(run: ReplayResult) -> str:
    """The cluster's spec and its GPUs."""
    gpus = int(run.cluster.node_gpus.sum())
    nodes = int(run.cluster.node_gpus.shape[0])
    return f"{clean(run.cluster.spec)} ({plural(nodes, 'node')}, {plural(gpus, 'GPU')})"


def load_fact(study: Study) -> str:
    """Load factors, with the offered load where summaries know it."""
    said = []
    for load in study.loads:
        text = "as recorded" if load is None else f"{load:.4g}"
        offered = {run.summary.get("offered_load") for g in study.at(load) for run in g.runs}
        known = [v for v in offered if isinstance(v, (int, float))]
        if len(known) == len(offered) == 1:
            text += f" (offered {number_text(known[0], 3)})"
        said.append(text)
    return ", ".join(said) or DASH


def findings_section(study: Study) -> str:
    """The take-aways, or that there is nothing."""
    if not study.groups:
        return '<p class="absent">There are no results: nothing was replayed.</p>'
    said = findings(study)
    if not said:
        return ""
    items = "".join(f"<li>{escape(kept_together(s))}</li>" for s in said)
    return f'<section><h2>At a glance</h2><ul class="findings">{items}</ul></section>'


def kept_together(text: str) -> str:
    """Numbers and their units on one line."""
    return re.sub(r"(?<=\d) (?=(?:s|min|h|d|%)(?:\W|$))", "\u00a0", text)


def section(title: str, body: str) -> str:
    """A headed part of the page."""
    return f"<section><h2>{escape(title)}</h2>{body}</section>"


def table_html(table: Table) -> str:
    """A table that can be selected and copied as cells."""
    head = "".join(f'<th scope="col">{escape(clean(c))}</th>' for c in table.columns)
    groups = table.groups or (("", len(table.rows)),)
    bodies = []
    row = 0
    for heading, count in groups:
        lines = []
        if heading:
            lines.append(
                f'<tr class="group"><th colspan="{len(table.columns)}" scope="rowgroup">'
                f"{escape(clean(heading))}</th></tr>"
            )
        for r in range(row, row + count):
            name, *cells = table.rows[r]
            tds = "".join(
                f"<td{cell_class(table, r, c)}>{escape(clean(cell))}{cell_mark(table, r, c)}</td>"
                for c, cell in enumerate(cells, start=1)
            )
            lines.append(f'<tr><th scope="row">{escape(clean(name))}</th>{tds}</tr>')
        bodies.append(f"<tbody>{''.join(lines)}</tbody>")
        row += count
    return (
        f'<div class="scroll"><table><caption>{escape(clean(table.caption))}</caption>'
        f"<thead><tr>{head}</tr></thead>{''.join(bodies)}</table></div>"
    )


def cell_class(table: Table, row: int, column: int) -> str:
    """Marks the best of a column."""
    return ' class="best"' if (row, column) in table.best else ""


def cell_mark(table: Table, row: int, column: int) -> str:
    """Marks what cannot be told from the best; others of the column keep the room for it."""
    if not any(c == column for _, c in table.near):
        return ""
    return f"<i>{' ≈' if (row, column) in table.near else ''}</i>"


def table_key(shown: Pictures) -> str:
    """What the marks in the summary table mean."""
    said = []
    if any(t.best for t in shown.summary):
        said.append(
            "<b>Bold</b>: best of its column"
            + (" at that load" if len(shown.study.loads) > 1 else "")
            + "."
        )
    if any(len(g.runs) > 1 for g in shown.study.groups):
        said.append("± is half of the 95 % interval over seeds (Student’s t).")
    if any(t.near for t in shown.summary):
        said.append(
            "≈: not told apart from the best (the 95 % interval of the difference, paired by seed, "
            "includes 0)."
        )
    if any(DASH in row for table in shown.summary for row in table.rows):
        said.append(f"{DASH}: not known.")
    return f'<p class="key">{" ".join(said)}</p>' if said else ""


def figures_section(shown: Pictures) -> str:
    """What spans loads first, then each load's figures behind a choice."""
    parts = []
    number = 0
    for figure in shown.across:
        number += 1
        parts.append(figure_html(figure, number, figure.key))
    if len(shown.by_load) == 1:
        parts.append(load_html(shown.by_load[0], number, ""))
        return section("Figures", "".join(parts))
    across = section("Figures", "".join(parts)) if parts else ""
    panes = [
        (load_text(one.load).capitalize(), load_html(one, number, f"-l{i}"))
        for i, one in enumerate(shown.by_load)
    ]
    inner = tabs("load", panes, chosen=len(panes) - 1, class_="loads")
    return across + section("One load at a time", inner)


def load_html(one: LoadPictures, before: int, suffix: str) -> str:
    """The figures of one load, numbered on."""
    return "".join(
        figure_html(figure, before + i, figure.key + suffix)
        for i, figure in enumerate(one.figures, start=1)
    )


def tabs(name: str, panes: Sequence[tuple[str, str]], *, chosen: int, class_: str = "") -> str:
    """Alternatives to choose from without script; in print all are shown under their names.

    Args:
        name: unique on the page.
        panes: name and content of each alternative.
        chosen: the one that is shown first.
        class_: a class in the style sheet.
    """
    panes = panes[:MOST_TABS]
    chosen = min(chosen, len(panes) - 1)
    inputs = "".join(
        f'<input type="radio" name="{name}" id="{name}-{i}"{" checked" if i == chosen else ""}>'
        for i in range(len(panes))
    )
    labels = "".join(
        f'<label for="{name}-{i}">{escape(clean(title))}</label>'
        for i, (title, _) in enumerate(panes)
    )
    bodies = "".join(
        f'<div class="pane"><h3>{escape(clean(title))}</h3>{body}</div>' for title, body in panes
    )
    return (
        f'<div class="tabs {class_}">{inputs}<nav>{labels}</nav>'
        f'<div class="panes">{bodies}</div></div>'
    )


def figure_html(figure: Figure, number: int, identity: str) -> str:
    """Legend, panels, caption, and the numbers behind it."""
    if figure.is_absent:
        return (
            f'<figure id="{identity}"><div class="absent"><b>Figure {number}. '
            f"{escape(figure.title)}.</b> {escape(clean(figure.absent))}</div></figure>"
        )
    drawn = [draw_panel(p, f"{identity}-{i}") for i, p in enumerate(figure.panels)]
    if figure.choice:
        panels = tabs(
            f"{identity}-c", list(zip(figure.choice, drawn, strict=True)), chosen=0, class_="gantt"
        )
    else:
        look = "panels stacked" if figure.stacked else "panels"
        panels = f'<div class="{look}">{"".join(drawn)}</div>'
    legend = ""
    if figure.legend:
        items = "".join(
            f"<li>{swatch(key)}<span>{escape(clean(key.label))}</span></li>"
            for key in figure.legend
        )
        legend = f'<ul class="legend">{items}</ul>'
    behind = ""
    if figure.table is not None:
        behind = (
            f"<details><summary>{escape(figure.table.caption)}</summary>"
            f"{table_html(figure.table)}</details>"
        )
    return (
        f'<figure id="{identity}">{legend}{panels}<figcaption><b>Figure {number}. '
        f"{escape(clean(figure.title))}.</b> {escape(clean(figure.caption))}"
        f"</figcaption>{behind}</figure>"
    )


def options_section(study: Study) -> str:
    """The effective options: one column a policy, or one for all where they agree."""
    by_label = {g.label: flat(g.first.summary.get("options")) for g in reversed(study.groups)}
    labels = [label for label in study.labels if label in by_label]
    keys = sorted({key for options in by_label.values() for key in options})
    if not keys:
        return section("Effective options", '<p class="key">None were recorded.</p>')
    head = "".join(f'<th scope="col" class="text">{escape(label)}</th>' for label in labels)
    rows = []
    for key in keys:
        cells = [by_label[label].get(key, DASH) for label in labels]
        if len(set(cells)) == 1 and len(cells) > 1:
            tds = f'<td class="text all" colspan="{len(cells)}">{escape(cells[0])}</td>'
        else:
            tds = "".join(f'<td class="text">{escape(c)}</td>' for c in cells)
        rows.append(f'<tr><th scope="row"><code>{escape(clean(key))}</code></th>{tds}</tr>')
    return section(
        "Effective options",
        f'<div class="scroll"><table><thead><tr><th scope="col">Option</th>{head}</tr></thead>'
        f"<tbody>{''.join(rows)}</tbody></table></div>",
    )


def flat(options: object, prefix: str = "") -> dict[str, str]:
    """Nested options as dotted keys."""
    if not isinstance(options, Mapping):
        return {}
    found: dict[str, str] = {}
    for key, value in options.items():
        if isinstance(value, Mapping):
            found.update(flat(value, f"{prefix}{key}."))
        else:
            found[f"{prefix}{key}"] = DASH if value is None else clean(value)
    return found
