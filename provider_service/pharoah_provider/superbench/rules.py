"""Rules: which metrics of a node are compared with its baseline, and how (`rules.yaml`).

Pharoah writes rules as JSON, which is YAML as well (YAML 1.2, section 1.2). It reads both, YAML with PyYAML. A rule is
data: Pharoah does not evaluate its criteria, which are Python.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pharoah_provider.superbench.results import SuperBenchError, text_of
from pharoah_system.bounded_reading import UnreadableInput, parse_json, parse_yaml

_ROOT, _RULES, _VERSION = "superbench", "rules", "version"
_TEXTS = ("function", "criteria", "categories")


@dataclass(frozen=True)
class Rule:
    """One rule. Its fields are those of SuperBench: function, criteria, categories, metrics, statistics, and others.
    Raises ValueError that names the field."""

    name: str
    fields: Mapping[str, Any]

    def __post_init__(self) -> None:
        if not isinstance(self.name, str) or not isinstance(self.fields, Mapping):
            raise ValueError(f"rule {self.name!r}: expected the name of a rule and an object of its fields")
        if not _is_json(self.fields):
            raise ValueError(f"rule {self.name}: it holds a value or a key that JSON does not have")
        for field in _TEXTS:
            if field in self.fields and not isinstance(self.fields[field], str):
                raise ValueError(f"rule {self.name}: {field}: expected a text")
        if not all(isinstance(metric, str) for metric in self._list()):
            raise ValueError(f"rule {self.name}: metrics: expected a list of texts")

    def _list(self) -> list[Any]:
        listed = self.fields.get("metrics", [])
        return listed if isinstance(listed, list) else [None]

    @property
    def metrics(self) -> tuple[str, ...]:
        """Regular expressions of the metrics that the rule is about."""
        return tuple(self._list())


@dataclass(frozen=True)
class RuleFile:
    """All rules of a file."""

    version: str
    """The version of SuperBench that the file is for, such as `v0.11`; empty where it states none."""
    rules: tuple[Rule, ...]
    others: Mapping[str, Any]
    """What stands beside the rules, kept as it is."""


def read_rules(path: Path) -> RuleFile:
    """The rules of a file in YAML or JSON. Raises SuperBenchError that names the rule, and OSError."""
    try:
        data = _parse(path, text_of(path))
        if not isinstance(data, dict) or not isinstance(data.get(_ROOT), dict):
            raise ValueError(f"expected an object with the key {_ROOT}")
        others = dict(data.pop(_ROOT))
        rules = others.pop(_RULES, None)
        if not isinstance(rules, dict):
            raise ValueError(f"{_ROOT}.{_RULES}: expected an object of rules")
        if not _is_json(others):
            raise ValueError(f"{_ROOT}: it holds a value or a key that JSON does not have")
        version = data.pop(_VERSION, "")
        if data or not isinstance(version, str):
            raise ValueError(f"expected the keys {_VERSION} (a text) and {_ROOT} only")
        return RuleFile(version, tuple(Rule(name, fields) for name, fields in rules.items()), others)
    except SuperBenchError:
        raise
    except UnreadableInput as error:
        raise SuperBenchError(str(error)) from None
    except ValueError as error:
        raise SuperBenchError(f"{path}: {error}") from None


def rules_text(file: RuleFile) -> str:
    """The content of a file of rules, as JSON."""
    version = {_VERSION: file.version} if file.version else {}
    rules = {rule.name: dict(rule.fields) for rule in file.rules}
    return json.dumps({**version, _ROOT: {**file.others, _RULES: rules}}, indent=2, allow_nan=False) + "\n"


def _is_json(data: object) -> bool:
    """Whether JSON keeps the data as it is: YAML has dates, infinite numbers and keys that are no texts, too."""
    try:
        return bool(json.loads(json.dumps(data, allow_nan=False)) == data)
    except (ValueError, TypeError):
        return False


def _parse(path: Path, text: str) -> Any:
    """The data of a text in JSON, or else in YAML. Raises UnreadableInput."""
    try:
        return parse_json(text, path)
    except UnreadableInput:
        pass
    try:
        return parse_yaml(text, path)
    except UnreadableInput as error:
        raise UnreadableInput(path, f"it is neither JSON nor YAML that can be read: {error.problem}") from None
