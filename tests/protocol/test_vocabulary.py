"""The closed sets of the vocabulary, and the enums of the schema that carry them."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest
from google.protobuf.descriptor import EnumDescriptor

from pharoah_protocol import vocabulary
from pharoah_protocol.v1 import services
from pharoah_protocol.vocabulary import CodedEnum, EndState, IncidentState

CODED = {
    name: member
    for name, member in vars(vocabulary).items()
    if isinstance(member, type) and issubclass(member, CodedEnum) and member is not CodedEnum
}
IN_SCHEMA: dict[str, type[CodedEnum]] = {"EndState": EndState, "AlertState": IncidentState}
"""Enum of the schema to the closed set that it carries. `Listing` only selects a listing of the operator."""
NOT_IN_SCHEMA = {EndState.LOST, IncidentState.QUIET, IncidentState.DISMISSED}
"""States that only the provider sees."""


def schema_enums() -> dict[str, EnumDescriptor]:
    files = {service.file.name: service.file for service in services()}
    return {name: enum for file in files.values() for name, enum in file.enum_types_by_name.items()}


def test_every_enum_of_the_schema_has_a_closed_set() -> None:
    assert schema_enums().keys() == IN_SCHEMA.keys() | {"Listing"}
    assert set(CODED) & schema_enums().keys() <= IN_SCHEMA.keys()


@pytest.mark.parametrize("name", IN_SCHEMA)
def test_names_and_numbers_of_the_schema_are_those_of_the_vocabulary(name: str) -> None:
    coded, descriptor = IN_SCHEMA[name], schema_enums()[name]
    prefix = descriptor.values_by_number[0].name.removesuffix("UNSPECIFIED")
    listed = {value.name.removeprefix(prefix).lower(): value.number for value in descriptor.values if value.number}
    assert listed == {str(member): member.code for member in coded if member not in NOT_IN_SCHEMA}


@pytest.mark.parametrize("coded", CODED.values())
def test_codes_are_unique_and_read_back(coded: type[CodedEnum]) -> None:
    assert len({member.code for member in coded}) == len(coded)
    assert all(coded.from_code(member.code) is member for member in coded)
    with pytest.raises(ValueError, match="not known to this release"):
        coded.from_code(200)


def test_every_member_of_every_coded_set_is_documented() -> None:
    tree = ast.parse(Path(str(vocabulary.__file__)).read_text())
    for node in tree.body:
        if isinstance(node, ast.ClassDef) and node.name in CODED:
            for member, following in zip(node.body[1:], [*node.body[2:], None], strict=True):
                if isinstance(member, ast.Assign):
                    assert isinstance(following, ast.Expr), f"{node.name}: {ast.unparse(member)} has no docstring"
