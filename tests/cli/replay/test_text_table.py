from __future__ import annotations

from dlsched.cli.replay.text_table import TextTable


def table():
    made = TextTable(title="times")
    made.add("policy", ["fifo", "first-fit"], left=True)
    for name in ("avg", "median", "p95"):
        made.add(name, ["10", "9"], best={1})
    return made


def test_a_pipe_gets_one_table_whatever_its_width():
    assert list(table().lines()) == [
        "times",
        "policy     avg  median  p95",
        "fifo        10      10   10",
        "first-fit    9       9    9",
    ]


def test_a_narrow_terminal_gets_parts_that_each_name_their_rows():
    assert list(table().lines(width=23)) == [
        "times",
        "policy     avg  median",
        "fifo        10      10",
        "first-fit    9       9",
        "",
        "policy     p95",
        "fifo        10",
        "first-fit    9",
    ]


def test_colours_stress_the_best_and_only_on_demand():
    coloured = list(table().lines(colour=True))
    assert "\x1b[1;32m  9\x1b[0m" in coloured[3]
    assert "\x1b[1;32m" not in coloured[2]
    assert not any("\x1b" in line for line in table().lines())
