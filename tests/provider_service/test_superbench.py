"""Files of SuperBench: results, baselines and rules, written by its documented formats."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from evaluation.figures import Figures
from evaluation.validation.superbench import KEY, Kind, measure, roundtrip_is_identical
from pharoah_provider.superbench import (
    NodeResult,
    Rule,
    RuleFile,
    SuperBenchError,
    baseline_text,
    read_baseline,
    read_results,
    read_rules,
    results_text,
    rules_text,
)

RULES = r"""
# rules of a test
version: v0.11
superbench:
  rules:
    slow_links:
      function: variance
      criteria: 'lambda x: x < -0.05'
      categories: Links
      metrics:
        - copies:.*/bandwidth_\d+
    failed:
      function: value
      criteria: lambda x:x>0
      categories: Failed
      metrics: [copies/return_code]
      store: True
    mean:
      statistics: [mean, p90]
      categories: Links
      aggregate: copies/bandwidth_(\d+)
      metrics: [copies/bandwidth]
"""
NUMBERS = st.integers(-(2**70), 2**70) | st.floats(allow_nan=False, allow_infinity=False)
NAMES = st.text(min_size=1).filter(lambda name: name != "node")


def test_rules_in_yaml_are_read_and_written_as_json_that_yaml_reads_too(tmp_path: Path) -> None:
    path = tmp_path / "rules.yaml"
    path.write_text(RULES)
    rules = read_rules(path)
    assert rules.version == "v0.11" and [rule.name for rule in rules.rules] == ["slow_links", "failed", "mean"]
    assert rules.rules[0].metrics == (r"copies:.*/bandwidth_\d+",)
    assert rules.rules[1].fields["store"] is True
    assert yaml.safe_load(rules_text(rules)) == yaml.safe_load(RULES)
    path.write_text(rules_text(rules))
    assert read_rules(path) == rules


@given(st.lists(st.tuples(NAMES, st.dictionaries(NAMES, NUMBERS | st.none())), max_size=4))
def test_results_are_the_same_after_writing_and_reading(nodes: list[tuple[str, dict[str, int | float | None]]]) -> None:
    results = [NodeResult(node, metrics) for node, metrics in nodes]
    assert [NodeResult.from_data(json.loads(line)) for line in results_text(results).splitlines()] == results


def test_results_and_baselines_of_files_are_the_same_after_writing(tmp_path: Path) -> None:
    metrics = {"copies/return_code": 0, "copies/bandwidth:0": 25.5, "copies/bandwidth:1": 3e-12, "größe\u2028/x": None}
    results = tmp_path / "results-summary.jsonl"
    results.write_text("\n".join(json.dumps({"node": n, **metrics}, ensure_ascii=False) for n in ("n1", "n2")))
    assert [result.node for result in read_results(results)] == ["n1", "n2"]
    assert read_results(results)[1].metrics == metrics
    baseline = tmp_path / "baseline.json"
    baseline.write_text(json.dumps({"copies/bandwidth": 25.5, "copies/return_code": 0}))
    assert json.loads(baseline_text(read_baseline(baseline))) == {"copies/bandwidth": 25.5, "copies/return_code": 0}


@pytest.mark.parametrize(
    ("read", "content", "named"),
    [
        (read_results, b'{"node": "n1"}\n[]', "row 2: expected one JSON object for each node"),
        (read_results, b'{"x/y": 1}', "row 1: the key node is missing"),
        (read_results, b'{"node": "n1", "x/y": "fast"}', "row 1: x/y: 'fast' is not a number"),
        (read_results, b'{"node": "n1", "x/y": NaN}', "x/y: nan is not a number"),
        (read_results, b'{"node": 7}', "node: 7 is not a name"),
        (read_results, b"\xff", "not a text in UTF-8"),
        (read_baseline, b"[1]", "expected one JSON object of metrics"),
        (read_baseline, b'{"x/y": null}', "x/y: None is not a number"),
        (read_rules, b"a: [", "it is neither JSON nor YAML that can be read"),
        (read_rules, b"rules: {}", "expected an object with the key superbench"),
        (read_rules, b"superbench: {}", "superbench.rules: expected an object of rules"),
        (read_rules, b"superbench: {rules: {a: {metrics: x}}}", "rule a: metrics: expected a list of texts"),
        (read_rules, b"superbench: {rules: {a: {criteria: 3}}}", "rule a: criteria: expected a text"),
        (read_rules, b"superbench: {rules: {a: {x: 2020-01-01}}}", "rule a: it holds a value or a key that JSON"),
        (read_rules, b"superbench: {rules: {a: {1: x}}}", "rule a: it holds a value or a key that JSON"),
        (read_rules, b"superbench: {rules: {a: 3}}", "rule 'a': expected the name of a rule"),
        (read_rules, b"{version: 3, superbench: {rules: {}}}", "expected the keys version (a text) and superbench"),
    ],
)
def test_a_file_that_cannot_be_used_is_named(
    read: Callable[[Path], object], content: bytes, named: str, tmp_path: Path
) -> None:
    path = tmp_path / "file"
    path.write_bytes(content)
    with pytest.raises(SuperBenchError) as error:
        read(path)
    assert str(error.value).startswith(f"{path}: ") and named in str(error.value)


def test_yaml_without_its_reader_is_an_error_that_says_what_to_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "yaml", None)
    path = tmp_path / "rules.yaml"
    path.write_text(RULES)
    with pytest.raises(SuperBenchError, match="install PyYAML"):
        read_rules(path)
    path.write_text(rules_text(RuleFile("v1", (Rule("a", {"metrics": ["x"]}),), {})))
    assert read_rules(path).rules[0].metrics == ("x",)


def test_the_evaluation_sees_a_file_that_changes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "a_rules.yaml").write_text(RULES)
    (tmp_path / "baseline.json").write_text('{"copies/bandwidth": 25}')
    (tmp_path / "r.jsonl").write_text('{"node": "n1", "copies/bandwidth": 25.0}\n')
    figures = Figures("validation")
    measure(figures, argparse.Namespace(data=tmp_path))
    assert figures.values[KEY] is True
    monkeypatch.setattr("evaluation.validation.superbench.baseline_text", lambda _: '{"copies/bandwidth": 25.0}')
    assert not roundtrip_is_identical(Kind.BASELINE, tmp_path / "baseline.json"), "an integer became a float"
    (tmp_path / "r.jsonl").unlink()
    nothing = Figures("validation")
    measure(nothing, argparse.Namespace(data=tmp_path))
    assert nothing.values[KEY] is False, "no file of a kind is no success"
