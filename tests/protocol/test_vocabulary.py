"""The closed sets of the vocabulary, and the enums of the schema that carry them."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest
from google.protobuf.descriptor import EnumDescriptor

from pharoah_protocol import vocabulary
from pharoah_protocol.v1 import services
from pharoah_protocol.vocabulary import CodedEnum

CODED = {
    name: member
    for name, member in vars(vocabulary).items()
    if isinstance(member, type) and issubclass(member, CodedEnum) and member is not CodedEnum
}


def schema_enums() -> dict[str, EnumDescriptor]:
    files = {service.file.name: service.file for service in services()}
    return {name: enum for file in files.values() for name, enum in file.enum_types_by_name.items()}


@pytest.mark.parametrize("descriptor", schema_enums().values(), ids=schema_enums())
def test_an_enum_of_the_schema_has_the_names_and_numbers_of_its_closed_set(descriptor: EnumDescriptor) -> None:
    coded, prefix = CODED[descriptor.name], f"{re.sub(r'(?<=[a-z])(?=[A-Z])', '_', descriptor.name).upper()}_"
    listed = {value.name.removeprefix(prefix).lower(): value.number for value in descriptor.values}
    assert listed.pop("unspecified", 0) == 0
    assert listed == {str(member): member.code for member in coded}


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
