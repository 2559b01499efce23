"""Tables of figures for a paper, in LaTeX: needs the package booktabs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from simulate.report.compare import metric_table
from simulate.report.metrics import Metric
from simulate.report.study import Study
from simulate.results.tables import ReplayResult

_SPECIAL = str.maketrans(
    {
        "\\": r"\textbackslash{}",
        "&": r"\&",
        "%": r"\%",
        "$": r"\$",
        "#": r"\#",
        "_": r"\_",
        "{": r"\{",
        "}": r"\}",
        "~": r"\textasciitilde{}",
        "^": r"\textasciicircum{}",
        "<": r"\textless{}",
        ">": r"\textgreater{}",
        "ρ": r"$\rho$",
        "±": r"$\pm$",
        "≈": r"$\approx$",
        "×": r"$\times$",
        "−": "$-$",
        "–": "--",
        "·": r"$\cdot$",
        "\u00a0": "~",
    }
)


def latex_text(text: str) -> str:
    """A text with what LaTeX takes for commands escaped."""
    return text.translate(_SPECIAL)


def latex_tables(results: Sequence[ReplayResult], metrics: Sequence[Metric]) -> str:
    """A `tabular` for each trace: a row for each label and load, a column for each figure.

    Means over seeds with half widths of their 95 % intervals; the best of a column is bold, and so
    is what cannot be told from it. Figures that no run knows are left out.
    """
    traces = list(dict.fromkeys(result.trace for result in results))
    parts = []
    for trace in traces:
        study = Study.of([result for result in results if result.trace == trace])
        named = [f"% {trace}"] if len(traces) > 1 else []
        parts.append("\n".join([*named, *_tabular(study, metrics)]))
    return "\n\n".join(parts) + "\n"


def _tabular(study: Study, metrics: Sequence[Metric]) -> Iterator[str]:
    table = metric_table(study, "", metrics)
    bold = table.best | table.near
    yield r"\begin{tabular}{l" + "r" * (len(table.columns) - 1) + "}"
    yield r"\toprule"
    yield _row(["Policy", *map(latex_text, table.columns[1:])])
    yield r"\midrule"
    groups = dict(_starts(table.groups))
    for place, cells in enumerate(table.rows):
        if place in groups:
            if place:
                yield r"\addlinespace"
            span = len(table.columns)
            yield rf"\multicolumn{{{span}}}{{l}}{{{latex_text(groups[place])}}} \\"
        yield _row(
            rf"\textbf{{{latex_text(cell)}}}" if (place, column) in bold else latex_text(cell)
            for column, cell in enumerate(cells)
        )
    yield r"\bottomrule"
    yield r"\end{tabular}"


def _row(cells: Sequence[str] | Iterator[str]) -> str:
    return " & ".join(cells) + r" \\"


def _starts(groups: Sequence[tuple[str, int]]) -> Iterator[tuple[int, str]]:
    """The first row of each group, with its heading."""
    row = 0
    for heading, count in groups:
        yield row, heading
        row += count
