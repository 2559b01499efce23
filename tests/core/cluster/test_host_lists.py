"""Host lists: what they expand to, what is refused, and folding as the way back."""

from __future__ import annotations

import tracemalloc

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dlsched import host_lists
from dlsched.core.cluster.host_lists import expand, node_names
from dlsched.core.errors import BadInput
from dlsched.host_lists import fold
from tests.counting import python_calls


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("n1", "n1"),
        ("n[1-3,7]", "n1 n2 n3 n7"),
        ("n[01-03]", "n01 n02 n03"),
        ("n[08-11]", "n08 n09 n10 n11"),
        ("a[1-2]b[3-4]", "a1b3 a1b4 a2b3 a2b4"),
        ("a,b[1],c.d-e", "a b1 c.d-e"),
        ("n1,n1,n[1-2]", "n1 n2"),
        ("n[1-2]-ib", "n1-ib n2-ib"),
        ("n[098-101]", "n098 n099 n100 n101"),
    ],
)
def test_lists(text: str, names: str) -> None:
    assert expand("-w", text) == names.split()


@pytest.mark.parametrize(
    "text",
    [
        *("", ",", "a,", ",a", "a,,b", "n[1", "n]1[", "n1]", "n[[1]]", "n[]", "n[a]", "n[1-]"),
        *("n[-1]", "n[3-1]", "n[001-10]", "n[1-2-3]", "a b", "n[1-999999]", "n[1-400][1-400]"),
        *("-n", "n;rm", "n/1", "n\x1b", "n[1\n]", "é", "n[١]", "n" * 300),
    ],
)
def test_malformed_lists_are_refused(text: str) -> None:
    with pytest.raises(BadInput, match=r"^-w: ") as told:
        expand("-w", text)
    assert "\n" not in str(told.value)
    assert len(str(told.value)) < 200


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("n[1-999]," * 1_000 + "n1", "more than 1,000 hosts"),
        ("n1," * 1_001 + "n1", "more than 1,000 hosts"),
        ("n" * 200_000 + "[1-900]", "is not a host name"),
        ("n[1]" * 50_000, "is not a host name"),
    ],
    ids=["ranges", "names", "long part", "many parts"],
)
def test_the_work_for_a_list_is_bounded_by_its_hosts(
    text: str, why: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(host_lists, "MOST", 1_000)

    def refused() -> None:
        with pytest.raises(BadInput, match=why):
            expand("-w", text)

    tracemalloc.start()
    try:
        assert python_calls(refused) < 10_000
        assert tracemalloc.get_traced_memory()[1] < 4 << 20
    finally:
        tracemalloc.stop()


NAME = st.from_regex(r"[a-c]{1,2}[0-9]{0,3}(-[x-z]{1,2}[0-9]{0,2})?", fullmatch=True)


@given(st.lists(NAME, min_size=1, max_size=40))
def test_folding_is_the_way_back(names: list[str]) -> None:
    assert sorted(expand("-w", fold(names))) == sorted(set(names))


@given(st.text(max_size=30))
def test_any_text_is_expanded_or_refused(text: str) -> None:
    try:
        names = expand("-w", text)
    except BadInput:
        return
    assert names
    assert sorted(expand("-w", fold(names))) == sorted(names)


def test_folding() -> None:
    assert fold(["n4", "n3"]) == "n[3-4]"
    assert fold(["n10", "n9", "n1"]) == "n[1,9-10]"
    assert fold(["n08", "n09", "n10", "login"]) == "login,n[08-10]"
    assert fold([]) == ""


def test_capital_letters_in_names_of_live_nodes_are_small_ones() -> None:
    assert node_names("node", ["GPU[08-09]", "gpu08", "N1"]) == ["gpu08", "gpu09", "n1"]
