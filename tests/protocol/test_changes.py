"""Changes by their kinds: the same as a look at each of them."""

from __future__ import annotations

import hypothesis.strategies as st
from hypothesis import given

from dlsched.protocol import messages as m
from dlsched.protocol.ledger import (
    OF_SUBMISSIONS,
    Attach,
    CancelJob,
    Changes,
    Request,
    Restart,
    Submit,
    Write,
)

KINDS = (Submit, CancelJob, Restart, str, float)
a_change = st.one_of(
    st.integers(1, 9).map(
        lambda k: Submit(request=Request(request_id=m.RequestId(str(k))), job=m.JobId(k))
    ),
    st.integers(1, 9).map(lambda k: CancelJob(m.JobId(k), "why")),
    st.integers(1, 9).map(lambda k: Restart(m.JobId(k))),
    st.sampled_from(["a", "b", 0.5, 1, None]).map(Attach),
)


@given(st.lists(a_change), st.sets(st.sampled_from(KINDS)))
def test_changes_and_rows_of_some_kinds_come_in_order(
    writes: list[Write], kinds: set[type]
) -> None:
    changes = Changes(writes)
    assert list(changes) == writes
    expected = [w.row if isinstance(w, Attach) else w for w in writes]
    assert list(changes.of(*kinds)) == [each for each in expected if type(each) in kinds]
    assert changes.kinds == {type(write) for write in writes}


def test_changes_of_what_is_there_are_those_beyond_submissions() -> None:
    cancel = CancelJob(m.JobId(1), "why")
    changes = Changes([Attach("a"), cancel, Attach(0.5)])
    assert changes.kinds - OF_SUBMISSIONS == {CancelJob}
    assert changes.of(*(changes.kinds - OF_SUBMISSIONS)) == [cancel]
    assert changes.of(str) == ["a"]
    assert not Changes().of(str)
