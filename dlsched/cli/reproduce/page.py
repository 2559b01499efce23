"""The page `docs/reproduced.md`, made from what was reproduced."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from dlsched.cli.reproduce.catalogue import Reproduction
from dlsched.cli.reproduce.comparing import Compared

HEAD = """# Published figures beside ours

Made by `dlsched reproduce --all --page docs/reproduced.md`; `--list` names what there is. Each
command can be typed as it stands: `{data}` is the folder of published data (`DLSCHED_DATA`), which
is not part of dlsched, and `{work}` a folder for one run, with the files shown before the commands.
*Paper*: printed in it; *authors*: their recorded results; *artifact*: their code, run again. "To
the digit": the same in all printed ones. *A trend*: on generated data in place of the paper's; the
published figure is only a bound.

"""


def page_of(found: Iterable[tuple[Reproduction, list[Compared]]]) -> str:
    """The page as Markdown."""
    pairs = list(found)
    counts = Counter(row.verdict for _, rows in pairs for row in rows)
    told = "; ".join(f"{verdict}: {count}" for verdict, count in sorted(counts.items()))
    lines = [f"{sum(counts.values())} figures of {len(pairs)} reproductions; {told}.", ""]
    for each, rows in pairs:
        lines += [f"## {each.name}", "", f"{each.system}: {each.shows} ({each.source}).", ""]
        for name, text in each.files.items():
            lines += [f"`{{work}}/{name}`:", "", "```text", text.rstrip(), "```", ""]
        lines += ["```sh", *each.commands, "```", ""]
        lines += ["| Run | Figure | Published | Ours | Asked | Verdict |"]
        lines += ["| --- | --- | ---: | ---: | --- | --- |"]
        lines += [
            f"| {row.label} | {named(row)} | {row.figure.published} | {shown(row)} "
            f"| {row.condition} | {row.verdict} |"
            for row in rows
        ]
        reasons = dict.fromkeys(row.figure.because for row in rows if row.figure.because)
        lines += ["", *(f"Why: {reason}\n" for reason in reasons)] if reasons else [""]
    return HEAD + "\n".join(lines).rstrip() + "\n"


def named(row: Compared) -> str:
    """Our name of the figure."""
    return f"{row.figure.path}, over {row.figure.over}" if row.figure.over else row.figure.path


def shown(row: Compared) -> str:
    """Our number with as many digits as the published one."""
    return f"{row.ours:.{row.digits}f}"
