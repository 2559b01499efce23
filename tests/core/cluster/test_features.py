"""Constraints on nodes: read, kept in one spelling, and met or not."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dlsched.core.cluster.features import (
    alternatives_of,
    constraint_text,
    features_of,
    holds,
    parse_constraint,
    refuse_unknown,
)
from dlsched.core.errors import BadInput

NAMES = ("a100", "h100", "nvlink", "ib")


@pytest.mark.parametrize(
    ("text", "kept"),
    [
        ("A100", "a100"),
        ("a100|h100", "a100|h100"),
        ("nvlink & a100", "a100&nvlink"),
        ("a100&nvlink|h100", "a100&nvlink|h100"),
        ("(a100|h100)&ib", "a100&ib|h100&ib"),
        ("((ib))", "ib"),
        ("", ""),
    ],
)
def test_a_constraint_has_one_spelling(text: str, kept: str) -> None:
    found = parse_constraint("-C", text)
    assert constraint_text(found) == kept
    assert alternatives_of(kept) == tuple(tuple(sorted(names)) for names in found)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("a100&", "a name is missing"),
        ("|a100", "a name is missing"),
        ("(a100", r"a \) is missing"),
        ("a100)", "one too many"),
        ("a100 ib", "'ib' is one too many"),
        ("[a100|h100]", "no brackets"),
        ("a100*2", "no brackets"),
        ("&".join(f"(a{k}|b{k})" for k in range(8)), "more than 64 alternatives"),
    ],
)
def test_what_is_malformed_is_refused(text: str, said: str) -> None:
    with pytest.raises(BadInput, match=said):
        parse_constraint("-C", text)


words = st.recursive(
    st.sampled_from(NAMES),
    lambda inner: st.tuples(inner, st.sampled_from("&|"), inner).map(
        lambda t: f"({t[0]}{t[1]}{t[2]})"
    ),
    max_leaves=6,
)


@given(text=words, has=st.sets(st.sampled_from(NAMES)))
def test_it_means_what_python_means_by_and_and_or(text: str, has: set[str]) -> None:
    expression = text.replace("&", " and ").replace("|", " or ")
    meant = eval(expression, {name: name in has for name in NAMES})
    assert holds(parse_constraint("-C", text), has) is bool(meant)


def test_features_of_a_node_have_its_gpu_type() -> None:
    assert features_of(("NVLink",), "A100") == {"nvlink", "a100"}
    with pytest.raises(BadInput, match=r"feature 'nvlnk' is not known; known: a100, nvlink \(did"):
        refuse_unknown("-C", (("nvlnk",),), {"nvlink", "a100"})
