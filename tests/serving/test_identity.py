"""Who calls: names in certificates, and a rule for every service."""

from __future__ import annotations

import pytest

from pharoah_protocol.vocabulary import Role
from pharoah_serving.call_guard import RULES
from pharoah_serving.identity import RESERVED_NODES, Certificates
from pharoah_serving.principals import Principal


def test_every_service_has_a_rule() -> None:
    from pharoah_protocol.v1 import services

    assert {service.name for service in services()} == RULES.keys()


@pytest.mark.parametrize(
    ("names", "principal"),
    [
        (["spiffe://corp.example/tenant/lab/one"], Principal(Role.TENANT, "lab/one")),
        (["spiffe://corp.example/tenant/lab"], Principal(Role.TENANT, "lab")),
        (["spiffe://corp.example/agent/n1"], Principal(Role.AGENT, "n1")),
        (["spiffe://corp.example/operator/ops"], Principal(Role.OPERATOR, "ops")),
        (["spiffe://other.example/tenant/lab/one"], None),
        (["spiffe://corp.example.evil/tenant/lab"], None),
        (["spiffe://corp.example/tenant/lab/one/more"], None),
        (["spiffe://corp.example/agent/n1/n2"], None),
        (["spiffe://corp.example/tenant/../operator/x"], None),
        (["spiffe://corp.example/king/lab"], None),
        (["spiffe://corp.example/tenant/"], None),
        (["spiffe://corp.example/tenant/lab", "spiffe://corp.example/operator/ops"], None),
        (["tenant/lab"], None),
        ([], None),
    ],
)
def test_names_of_certificates(names: list[str], principal: Principal | None) -> None:
    assert Certificates("corp.example").principal(names) == principal


@pytest.mark.parametrize("word", ["all", "default", *sorted(RESERVED_NODES)])
def test_no_node_has_a_name_that_means_other_nodes(word: str) -> None:
    for name in (word, word.upper(), word.title()):
        assert Certificates("corp.example").principal([f"spiffe://corp.example/agent/{name}"]) is None
    assert Certificates("corp.example").principal([f"spiffe://corp.example/agent/{word}1"]) is not None
    assert Certificates("corp.example").principal([f"spiffe://corp.example/tenant/{word}"]) is not None


def test_accounts_count_for_their_organisation() -> None:
    assert Principal(Role.TENANT, "lab/one").organisation == Principal(Role.TENANT, "lab").organisation == "lab"
