"""Every method has a rule, and rules let the right callers in."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Iterator
from types import SimpleNamespace

import pytest

import dlsched.rpc.v1
from dlsched.core.errors import BadInput, InvariantBroken, NotAllowed
from dlsched.rpc.authorisation import RULES, require_owner
from dlsched.rpc.identity import DAEMON, Identity, Role, identity_of, login, node, operator

ANN = Identity(kind="user", name="ann", uid=1001)
ROOT = Identity(kind="user", name="root", uid=0, is_operator=True)
OLGA = Identity(kind="operator", name="olga", is_operator=True)
N1 = Identity(kind="node", name="n1")
LOGIN = Identity(kind="login", name="l1")
THE_DAEMON = Identity(kind="daemon", name="")
CALLERS = {"ann": ANN, "root": ROOT, "olga": OLGA, "n1": N1, "login": LOGIN, "daemon": THE_DAEMON}


def methods() -> Iterator[tuple[str, object]]:
    """Every method of every service that has been generated, and its message."""
    for module in pkgutil.iter_modules(dlsched.rpc.v1.__path__):
        if module.name.endswith("_pb2"):
            found = importlib.import_module(f"dlsched.rpc.v1.{module.name}").DESCRIPTOR
            for service in found.services_by_name.values():
                for method in service.methods:
                    yield f"/{service.full_name}/{method.name}", method


def test_every_method_has_a_rule_and_every_rule_a_method() -> None:
    known = {name for name, _ in methods()}
    assert len(known) > 20
    assert {name for name in RULES if not name.startswith("/grpc.")} == known


def test_a_rule_about_the_speaker_names_a_field_of_the_message() -> None:
    for name, method in methods():
        speaks_as = RULES[name].speaks_as
        if speaks_as:
            assert speaks_as in method.input_type.fields_by_name  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("method", "let_in"),
    [
        ("/dlsched.v1.Control/Submit", "ann root"),
        ("/dlsched.v1.Control/Queue", "ann root olga"),
        ("/dlsched.v1.Control/CreateToken", "ann root olga"),
        ("/dlsched.v1.Control/SetPolicy", "root olga"),
        ("/dlsched.v1.Control/SetNodes", "root olga"),
        ("/dlsched.v1.Leader/Sync", "n1"),
        ("/dlsched.v1.Runs/Launch", "n1"),
        ("/dlsched.v1.Control/Attach", "ann root olga"),
        ("/dlsched.v1.Control/Forward", "ann root olga"),
        ("/dlsched.v1.Agent/Attach", "daemon"),
        ("/dlsched.v1.Agent/Forward", "daemon"),
        ("/dlsched.v1.Agent/Nudge", "daemon"),
        ("/dlsched.v1.Agent/SendSignal", "daemon"),
        ("/dlsched.v1.Agent/Witness", "n1"),
        ("/grpc.health.v1.Health/Check", "ann root olga n1 login daemon"),
        ("/grpc.reflection.v1.ServerReflection/ServerReflectionInfo", "root olga"),
    ],
)
def test_which_callers_are_admitted(method: str, let_in: str) -> None:
    message = SimpleNamespace(node="n1", asker="n1")
    found = {
        name
        for name, caller in CALLERS.items()
        if RULES[method].refusal(caller, method) is None
        and RULES[method].misspoken(caller, message) is None
    }
    assert found == set(let_in.split())


def test_a_node_speaks_for_itself_only() -> None:
    rule = RULES["/dlsched.v1.Leader/Sync"]
    assert rule.misspoken(N1, SimpleNamespace(node="n1")) is None
    why = rule.misspoken(N1, SimpleNamespace(node="n2"))
    assert why == "node n1 cannot speak for node n2"


def test_a_user_without_an_account_runs_no_jobs() -> None:
    rule = RULES["/dlsched.v1.Control/Submit"]
    stranger = Identity(kind="user", name="eve", via="token")
    why = rule.refusal(stranger, "/dlsched.v1.Control/Submit")
    assert why == "submitting jobs is for users of the cluster; eve has no account there"


def test_a_refused_user_reads_what_the_call_does_and_no_name_of_a_method() -> None:
    refused = {name: rule.refusal(ANN, name) for name, rule in RULES.items()}
    for_operators = {name: why for name, why in refused.items() if RULES[name].operators_only}
    assert len(for_operators) > 10
    for name, why in for_operators.items():
        assert why is not None
        assert name.rpartition("/")[2] not in why
    why = for_operators["/dlsched.v1.Control/SetNodes"]
    assert why == "changing nodes is for operators only; ann is none"


def test_a_job_is_its_owners_and_the_operators() -> None:
    for caller in (ANN, ROOT, OLGA):
        require_owner(caller, "ann", "job 17")
    bob = Identity(kind="user", name="bob", uid=1002)
    with pytest.raises(NotAllowed, match=r"^job 17 belongs to ann, not to bob$"):
        require_owner(bob, "ann", "job 17")
    # a node called like a user is no user
    with pytest.raises(NotAllowed):
        require_owner(Identity(kind="node", name="ann"), "ann", "job 17")


def test_a_handler_outside_the_door_gets_no_identity() -> None:
    with pytest.raises(InvariantBroken):
        identity_of(object())


@pytest.mark.parametrize("role", [DAEMON, node("n1"), login("l1"), operator("Olga")], ids=str)
def test_a_role_is_read_back_from_its_uri(role: Role) -> None:
    assert Role.parse(role.uri) == role


@pytest.mark.parametrize(
    "uri",
    [
        "",
        "dlsched://",
        "dlsched://node",
        "dlsched://node/",
        "dlsched://node/N1",
        "dlsched://node/n1/x",
        "dlsched://node/.",
        "dlsched://daemon/",
        "dlsched://daemon/x",
        "dlsched://user/ann",
        "https://daemon",
        "dlsched://node/n1\n",
        "dlsched://node/*",
    ],
)
def test_what_is_no_role_is_refused(uri: str) -> None:
    with pytest.raises(BadInput):
        Role.parse(uri)
