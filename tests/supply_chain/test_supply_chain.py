"""What `make` installs is pinned by hash, has licences that are allowed, and is listed in a bill of materials."""

from __future__ import annotations

import json
import subprocess
import sys
import tomllib
from functools import cache
from importlib.metadata import distributions
from pathlib import Path

import pytest
from cyclonedx.schema import SchemaVersion
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from supply_chain.licences import faults_of, is_allowed, licence_of
from supply_chain.lock import BUILD, CPU_TORCH, CUDA, DEV, LOCK, ROOT, hashes, pin_versions
from supply_chain.sbom import OURS, bill

FILES = (BUILD, DEV, CUDA)
"""All but the build of torch for CPUs, which has the same version."""
RAY = ROOT / "requirements" / "ray.txt"
"""The file of the environment of one evaluation, which is not installed beside the others."""


@cache
def installed() -> dict[str, str]:
    """Versions by name; the first of two that are found is the one that is imported."""
    found: dict[str, str] = {}
    for one in distributions():
        found.setdefault(canonicalize_name(one.metadata["Name"]), one.version)
    found.pop(OURS)
    return found


@cache
def printed() -> str:
    return bill(distributions())


def test_every_installed_distribution_is_locked_with_a_hash_of_its_version() -> None:
    pins, known = pin_versions(*FILES), hashes(*FILES)
    assert pin_versions(CPU_TORCH) == {"torch": f"{pins['torch']}+cpu"}
    assert {name: version.partition("+")[0] for name, version in installed().items()}.items() <= pins.items()
    assert all(known[name] for name in pins) and pins.keys() == known.keys()


def test_no_distribution_is_pinned_twice() -> None:
    names = [name for file in (*FILES, LOCK) for name in pin_versions(file)]
    assert len(names) == len(set(names))


def test_what_builds_is_pinned_in_the_project_as_in_the_lock() -> None:
    requires = tomllib.loads((ROOT / "pyproject.toml").read_text())["build-system"]["requires"]
    pins = pin_versions(BUILD)
    assert requires == [f"{(one := Requirement(line)).name}=={pins[one.name]}" for line in requires]
    assert {"pip", "setuptools"} <= pins.keys()


def test_the_lock_answers_every_requirement_of_the_project() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    lines = [*project["dependencies"], *(line for extra in project["optional-dependencies"].values() for line in extra)]
    pins = pin_versions(RAY) | pin_versions(*FILES)
    for requirement in map(Requirement, lines):
        assert requirement.name == OURS or requirement.specifier.contains(pins[canonicalize_name(requirement.name)])


def test_a_file_with_another_hash_is_not_installed(tmp_path: Path) -> None:
    """pip itself, with a wheel of our own and the lock's line for another one."""
    wheel = tmp_path / f"iniconfig-{pin_versions(DEV)['iniconfig']}-py3-none-any.whl"
    wheel.write_bytes(b"PK\x05\x06" + bytes(18))  # an empty archive
    version = pin_versions(DEV)["iniconfig"]
    one = sorted(hashes(DEV)["iniconfig"])[0]
    (tmp_path / "lock.txt").write_text(f"iniconfig=={version} --hash=sha256:{one}\n")
    command = [sys.executable, "-m", "pip", "install", "--require-hashes", "--no-deps", "--no-index", "--find-links"]
    command += [str(tmp_path), "--target", str(tmp_path / "out"), "-r", str(tmp_path / "lock.txt")]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode != 0 and "DO NOT MATCH THE HASHES" in done.stderr and not (tmp_path / "out").exists()


def test_all_licences_are_allowed() -> None:
    assert not list(faults_of(distributions()))


@pytest.mark.parametrize(
    ("expression", "allowed"),
    [
        ("MIT", True),
        ("GPL-3.0-only", False),
        ("GPL-2.0-or-later OR MIT", True),
        ("MIT AND LGPL-3.0-only", False),
        ("Apache-2.0 WITH LLVM-exception", True),
        ("GPL-3.0-only WITH GCC-exception-3.1", False),
        ("LicenseRef-ours", False),
    ],
)
def test_an_expression_is_allowed_when_it_leaves_an_allowed_choice(expression: str, allowed: bool) -> None:
    assert is_allowed(expression) is allowed


def test_the_bill_of_materials_is_valid_and_the_same_each_time() -> None:
    # Its grammars take more than a second to compile, in every worker that collects this module.
    from cyclonedx.validation.json import JsonStrictValidator

    assert JsonStrictValidator(SchemaVersion.V1_6).validate_str(printed()) is None
    assert bill(distributions()) == printed()


def test_the_bill_names_every_distribution_with_licence_hashes_and_scope() -> None:
    components = {one["name"]: one for one in json.loads(printed())["components"]}
    assert {name: one["version"] for name, one in components.items()} == installed()
    assert all(one["licenses"] and one["hashes"] for one in components.values())
    scopes = {name: one["scope"] for name, one in components.items()}
    assert (scopes["grpcio"], scopes["duckdb"], scopes["pytest"]) == ("required", "optional", "excluded")
    assert "GPL" not in " ".join(licence_of(one) for one in distributions() if "ml-py" not in one.metadata["Name"])
