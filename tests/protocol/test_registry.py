"""Registries find our entries and those of other distributions, and refuse what cannot be used."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from pharoah_protocol.registry import Registry, RegistryError
from tests.harness.plugins import write_plugin

GROUP = "pharoah.test_entries"
ENTRY = "from tests.protocol.test_registry import Entry\nENTRY = Entry({!r})\n"


@dataclass(frozen=True)
class Entry:
    name: str
    code: int = 0


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A package of entries with one module, `first`."""
    folder = tmp_path / "entries_of_a_test"
    folder.mkdir()
    (folder / "__init__.py").touch()
    (folder / "first.py").write_text(ENTRY.format("first"))
    monkeypatch.syspath_prepend(tmp_path)
    yield folder
    for name in [name for name in sys.modules if name.startswith(("entries_of_a_test", "plugin_of_a_test"))]:
        del sys.modules[name]


def registry() -> Registry[Entry]:
    return Registry(Entry, "entries_of_a_test", GROUP)


def test_each_module_of_the_package_is_an_entry(package: Path) -> None:
    (package / "second.py").write_text(ENTRY.format("a second"))
    assert [entry.name for entry in registry()] == ["a second", "first"]
    assert "first" in registry()


def test_an_entry_of_another_distribution_is_found(package: Path) -> None:
    write_plugin(package.parent, GROUP, ENTRY.format("theirs"))
    assert registry()["theirs"] == Entry("theirs")


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        (ENTRY.format("first"), "an entry with the name 'first' already"),
        ("ENTRY = 3", "is a int, expected a Entry"),
        ("raise OSError('no disk')", "cannot be loaded: OSError: no disk"),
    ],
)
def test_an_entry_that_cannot_be_used_is_refused_and_named(package: Path, source: str, expected: str) -> None:
    write_plugin(package.parent, GROUP, source)
    with pytest.raises(RegistryError, match=f"plugin_of_a_test.*{expected}"):
        list(registry())


def test_entries_share_no_attribute_that_must_be_unique(package: Path) -> None:
    (package / "second.py").write_text(ENTRY.format("second"))
    assert len(registry().entries) == 2
    with pytest.raises(RegistryError, match=r"second: pharoah.test_entries has an entry with the code 0 already"):
        list(Registry(Entry, "entries_of_a_test", GROUP, unique=("code",)))


def test_a_module_without_an_entry_is_refused_and_named(package: Path) -> None:
    (package / "empty.py").touch()
    with pytest.raises(RegistryError, match=r"entries_of_a_test\.empty: has 0 entries"):
        list(registry())


def test_a_name_that_does_not_exist_is_answered_with_those_that_do(package: Path) -> None:
    with pytest.raises(RegistryError, match="'second' is not one of: first"):
        registry()["second"]
