"""Cells of tables for spreadsheet programs, which take some texts for formulas."""

from __future__ import annotations

_FORMULAS = ("=", "+", "-", "@", "\t", "\r")


def plain_cell(value: object) -> object:
    """A cell that no program computes: a text that begins like a formula gets an apostrophe.

    Numbers stay as they are, also those that are written as text.
    """
    if not isinstance(value, str) or not value.startswith(_FORMULAS):
        return value
    try:
        float(value)
    except ValueError:
        return f"'{value}"
    return value
