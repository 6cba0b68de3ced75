"""YAML of others: plain data without aliases, which would let a few lines unfold to billions of values."""

from __future__ import annotations

import re
from typing import Any

from pharoah_system.bounded_reading._content import UnreadableInput, decode, encode
from pharoah_system.bounded_reading._values import check_values

MAX_YAML_BYTES = 128 << 10
"""The rules that SuperBench ships for a machine have some tens of kilobytes."""
MAX_SLOW_BYTES = 16 << 10
"""Where PyYAML lacks its parser in C it reads about 30 KB a second."""
MAX_YAML_DEPTH = 24
MAX_YAML_EVENTS = 20_000
"""Scalars, and beginnings and ends of lists and objects; each is made by Python code at the end."""
_LONG_NUMBER = re.compile(r"[-+]?[0-9][0-9A-Fa-fxo_.:eE+-]{39}")
"""A number of 40 characters; YAML 1.1 has numbers to the base of 60, which take time that grows with their square."""


def parse_yaml(content: bytes | str, source: object) -> Any:
    """The data of a document. `source` names it in errors. Raises UnreadableInput, also without PyYAML."""
    try:
        import yaml  # a format of others, and PyYAML is no dependency
    except ImportError:
        raise UnreadableInput(source, "it is YAML; to read that, install PyYAML, or write it as JSON") from None
    loader: Any = getattr(yaml, "CSafeLoader", None)
    raw = encode(content, source, MAX_YAML_BYTES if loader else MAX_SLOW_BYTES)
    loader, text = loader or yaml.SafeLoader, decode(raw, source)
    try:
        _check_events(yaml, text, loader, source)
        data = yaml.load(text, Loader=loader)  # a safe loader: it makes plain data only
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        problem = getattr(error, "problem", None) or str(error)
        place = f"line {mark.line + 1}, column {mark.column + 1}" if mark else ""
        raise UnreadableInput(source, f"not YAML: {problem}", place) from None
    except UnreadableInput:
        raise
    except (ValueError, TypeError, RecursionError, OverflowError, AttributeError, KeyError) as error:
        raise UnreadableInput(source, f"not YAML that can be read: {type(error).__name__}") from None
    check_values(data, source, MAX_YAML_DEPTH)
    return data


def _check_events(yaml: Any, text: str, loader: Any, source: object) -> None:
    depth = 0
    for number, event in enumerate(yaml.parse(text, Loader=loader), 1):
        place = f"line {event.start_mark.line + 1}"
        if isinstance(event, yaml.AliasEvent) or getattr(event, "anchor", None):
            raise UnreadableInput(source, "aliases (& and *) are not read: write the value at each place", place)
        if number > MAX_YAML_EVENTS:
            raise UnreadableInput(source, f"more than {MAX_YAML_EVENTS:,} values and ends of lists", place)
        if isinstance(event, (yaml.SequenceStartEvent, yaml.MappingStartEvent)):
            depth += 1
        elif isinstance(event, (yaml.SequenceEndEvent, yaml.MappingEndEvent)):
            depth -= 1
        elif isinstance(event, yaml.ScalarEvent) and _is_long_number(event):
            raise UnreadableInput(source, "a number of more than 39 characters", place)
        if depth > MAX_YAML_DEPTH:
            raise UnreadableInput(source, f"nested deeper than {MAX_YAML_DEPTH} levels", place)


def _is_long_number(scalar: Any) -> bool:
    return bool((scalar.implicit[0] or scalar.tag) and _LONG_NUMBER.match(scalar.value))
