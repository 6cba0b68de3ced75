"""Locks of environments: what pip resolves, what a table says, and which code runs on a node."""

from __future__ import annotations

import json
import os
import sys
import tarfile
import tomllib
from io import BytesIO
from pathlib import Path

import pytest

from pharoah_benchmarks.campaign.plan import PlanError, parse_plan
from pharoah_benchmarks.environments import Environment
from pharoah_benchmarks.environments.lock import (
    Lock,
    LockedPackage,
    LockError,
    choose_lock,
    locks_text,
    read_locks,
    this_platform,
)
from pharoah_benchmarks.environments.resolve import resolve
from tests.harness.wheels import make_wheel

PYTHON = f"{sys.version_info[0]}.{sys.version_info[1]}"
HASH = "0123456789abcdef" * 4
PEFT = f"peft==0.0.7 peft-0.0.7-py3-none-any.whl sha256:{HASH}"
TABLE = {"environment": "peft==0.0.7", "python": "3.11", "platform": "linux_x86_64", "packages": [PEFT]}
PLAN = """
[[environment]]
name = "tiny"
packages = ["peft==0.0.7"]
[[workload]]
name = "mlp"
settings = { environment = "tiny" }
"""


@pytest.fixture
def index(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder from which pip alone resolves."""
    folder = tmp_path / "wheels"
    make_wheel(folder, "peft", "0.0.7", requires="tqdm")
    make_wheel(folder, "tqdm", "0.0.1")
    make_wheel(folder, "heavy", "1.0", requires="torch>=2")
    make_wheel(folder, "old", "1.0", requires="torch<2")
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(folder))
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    monkeypatch.delenv("PIP_EXTRA_INDEX_URL", raising=False)
    return folder


def test_a_lock_has_all_that_is_installed_with_hashes_and_no_torch(index: Path) -> None:
    lock = resolve(Environment.read("heavy==1.0 peft==0.0.7"), torch="2.9.1+cpu")
    assert [package.name for package in lock.packages] == ["heavy", "peft", "tqdm"]
    assert (lock.python, lock.platform) == (PYTHON, this_platform())
    assert {path.name for path in index.iterdir()} > {package.wheel for package in lock.packages}
    with pytest.raises(LockError, match=r"old==1\.0: pip: ERROR"):
        resolve(Environment.read("old==1.0"), torch="2.9.1")


def test_nothing_is_built_from_source(index: Path, tmp_path: Path) -> None:
    """A source distribution runs code of its author when pip reads its metadata."""
    with tarfile.open(index / "evil-1.0.tar.gz", "w:gz") as archive:
        content = f"open({str(tmp_path / 'ran')!r}, 'w')".encode()
        member = tarfile.TarInfo("evil-1.0/setup.py")
        member.size = len(content)
        archive.addfile(member, BytesIO(content))
    with pytest.raises(LockError, match=r"evil==1\.0: pip: ERROR"):
        resolve(Environment.read("evil==1.0"))
    assert not (tmp_path / "ran").exists()


def test_a_table_is_what_was_locked(index: Path) -> None:
    lock = resolve(Environment.read("peft==0.0.7"))
    (again,) = read_locks(tomllib.loads(lock.table)["lock"])[lock.environment.text]
    assert again == lock
    assert choose_lock(lock.environment, locks_text([lock]), PYTHON) == lock
    assert choose_lock(Environment.read("python==3.12"), "", "3.12") is None, "it has no packages"


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"packages": []}, "packages: expected a list"),
        ({"packages": [PEFT, PEFT]}, "a package comes twice"),
        ({"packages": [PEFT.replace("peft", "tqdm")]}, "peft==0.0.7 is not among the packages"),
        ({"packages": [PEFT.replace("0.0.7", "0.0.8")]}, "peft==0.0.7 is not among the packages"),
        ({"packages": [PEFT.upper()]}, "is not a package such as"),
        ({"packages": [PEFT.replace("peft-", "../peft-")]}, "is not a package such as"),
        ({"packages": [PEFT + "\n--index-url http://x"]}, "is not a package such as"),
        ({"packages": [PEFT.replace("sha256", "md5")]}, "is not a package such as"),
        ({"packages": [7]}, "is not a package such as"),
        ({"environment": "peft"}, "environment: 'peft' is not a package at one version"),
        ({"environment": "peft==0.0.7 python==3.12"}, "the lock is for Python 3.11"),
        ({"python": 3.11}, "python: 3.11 is none"),
        ({"platform": "a b"}, "platform: 'a b' is none"),
        ({"more": 1}, "more: expected the keys"),
    ],
)
def test_a_table_that_is_no_lock_names_the_key(changes: dict[str, object], named: str) -> None:
    with pytest.raises(LockError, match=f"lock: .*{named}"):
        read_locks([{**TABLE, **changes}])


def test_the_cells_of_a_plan_have_the_locks_of_their_environments() -> None:
    assert parse_plan(PLAN).without_lock == ["peft==0.0.7"]
    lock = Lock.from_environment(Environment.read("peft==0.0.7"), "3.11", "linux_x86_64", [LockedPackage.read(PEFT)])
    other = Lock.from_environment(lock.environment, "3.12", "linux_aarch64", lock.packages)
    plan = parse_plan(PLAN + lock.table + other.table)
    assert plan.without_lock == []
    assert {cell.lock for cell in plan.cells} == {locks_text([lock, other])}
    assert len(json.loads(plan.cells[0].lock)) == 2
    with pytest.raises(PlanError, match=r"lock: peft==0\.0\.7: Python 3\.11 on linux_x86_64 comes twice"):
        parse_plan(PLAN + lock.table + lock.table)
