"""Environments as data: their texts and files, and real builds from local wheels, without an index."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from pharoah_benchmarks.campaign.cell import Cell, CellResult, NotBuilt, read_answer
from pharoah_benchmarks.campaign.plan import PlanError, parse_plan
from pharoah_benchmarks.environments import (
    BuildError,
    Environment,
    EnvironmentFileError,
    EnvironmentStore,
    EnvironmentTextError,
    environment_files,
    read_environments,
)
from pharoah_benchmarks.environments.files import FOLDERS
from pharoah_benchmarks.environments.lock import locks_text, this_platform
from pharoah_benchmarks.environments.resolve import resolve
from pharoah_benchmarks.environments.store import FOLDER
from pharoah_benchmarks.settings import SettingError, check
from pharoah_protocol.vocabulary import Outcome
from pharoah_system.own_python import own_module
from tests.harness.wheels import make_wheel

BUILDER = "pharoah_benchmarks.environments.builder"
BUILD_SECONDS = 100.0
TWO = "peft==0.0.7 tqdm==0.0.1"
_PEFT = f"peft==0.0.7 peft-0.0.7-py3-none-any.whl sha256:{'0' * 64}"
_PYTHON = f"{sys.version_info[0]}.{sys.version_info[1]}"
OTHER_HASH = json.dumps([[_PYTHON, this_platform(), [_PEFT]]])
OTHER_MACHINE = json.dumps([["3.99", "toaster", [_PEFT]]])


def locked(text: str) -> str:
    """The lock of an environment as it goes with its cells, made by pip from the wheels of these tests."""
    return locks_text([resolve(Environment.read(text))])


@pytest.fixture(scope="module")
def wheels(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A folder with wheels, from which pip alone installs."""
    folder = tmp_path_factory.mktemp("wheels")
    make_wheel(folder, "peft", "0.0.7", requires="tqdm")
    make_wheel(folder, "tqdm", "0.0.1")
    make_wheel(folder, "broken", "1.0", requires="torch<2")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PIP_NO_INDEX", "1")
        patch.setenv("PIP_FIND_LINKS", str(folder))
        patch.setenv("PIP_CONFIG_FILE", os.devnull)
        patch.delenv("PIP_EXTRA_INDEX_URL", raising=False)
        yield folder


@pytest.fixture(scope="module")
def built(wheels: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[EnvironmentStore, Path]:
    """A store, and the Python of an environment in it."""
    store = EnvironmentStore(tmp_path_factory.mktemp("environments"))
    return store, store.interpreter(Environment.read(TWO), locked(TWO))


def run(python: Path, code: str) -> str:
    command = [str(python), "-P", "-s", "-c", code]
    return subprocess.run(command, capture_output=True, text=True, check=True, cwd="/").stdout.strip()


# texts


def test_equal_environments_have_equal_texts() -> None:
    one = Environment.from_packages(["Huggingface_Hub==0.30.0", "transformers==4.50.3"], "3.12")
    assert one.text == "python==3.12 huggingface-hub==0.30.0 transformers==4.50.3"
    assert Environment.read("transformers==4.50.3 huggingface.hub==0.30.0 python==3.12") == one
    assert Environment.read(one.text) == one


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("transformers", "'transformers' is not a package at one version"),
        ("transformers>=4", "is not a package at one version"),
        ("transformers==4.*", "is not a package at one version"),
        ("https://example.org/a.whl", "is not a package at one version"),
        ("--index-url==x", "is not a package at one version"),
        ("a==1 A==2", "a comes twice"),
        ("python==3.10 a==1", "python: '3.10' is not a version such as 3.11"),
        ("python==2.7", "python: '2.7'"),
        ("python==3.11 python==3.12", "python comes twice"),
        ("", "expected 1 to 1000 characters"),
        (" ".join(f"package-{number}==1" for number in range(100)), "expected 1 to 1000 characters"),
        (7, "expected a text"),
    ],
)
def test_a_text_that_is_no_environment_says_why(text: object, named: str) -> None:
    with pytest.raises(EnvironmentTextError, match=named):
        Environment.read(text)
    with pytest.raises(SettingError, match=f"environment: .*{named}"):
        check("mlp", {"environment": text})


def test_a_setting_has_the_one_text_of_its_environment() -> None:
    check("mlp", {"environment": "a==1 b==2"})
    with pytest.raises(SettingError, match="'b==2 a==1' is written as 'a==1 b==2'"):
        check("mlp", {"environment": "b==2 a==1"})


# files and campaign files


def test_a_file_with_versions_is_a_group_with_one_environment_for_each(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "tiny.toml").write_text('packages = ["peft=={version}", "tqdm==1"]\nversions = ["0.1", "0.2"]\n')
    (tmp_path / "fixed.toml").write_text('help = "one"\npython = "3.12"\n')
    monkeypatch.setenv(FOLDERS, str(tmp_path))
    groups = environment_files()
    assert {name: one.text for name, one in groups["tiny"].environments.items()} == {
        "tiny-0.1": "peft==0.1 tqdm==1",
        "tiny-0.2": "peft==0.2 tqdm==1",
    }
    assert groups["fixed"].environments["fixed"].text == "python==3.12"
    assert len(groups["transformers"].environments) >= 12, "the environments of our own are there as well"


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("packages = 3", "packages: expected a list of texts"),
        ("packages = []", "packages: expected a list of texts"),
        ('packages = ["a"]', "packages: 'a' is not a package at one version"),
        ('package = ["a==1"]', "package: unknown key"),
        ('packages = ["a==1"]\nhelp = 1', "help: expected a text"),
        ('packages = ["a==1"]\npython = "3.9"', "python: '3.9' is not a version"),
        ('packages = ["a==1"]\npython = 3.12', "python: 3.12 is not a version"),
        ('packages = ["a==1"]\nversions = ["1"]', "versions: expected different versions, and {version} in one"),
        ('packages = ["a=={version}"]', "versions: expected different versions"),
        ('packages = ["a=={version}"]\nversions = ["1", "1"]', "versions: expected different versions"),
        ("= 3", "Invalid"),
    ],
)
def test_a_file_that_is_no_environment_names_the_key(
    text: str, named: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "wrong.toml").write_text(text)
    monkeypatch.setenv(FOLDERS, str(tmp_path))
    with pytest.raises(EnvironmentFileError, match=r"wrong\.toml: ") as error:
        environment_files()
    assert named in str(error.value)
    with pytest.raises(PlanError, match=r"wrong\.toml"):
        parse_plan('[[workload]]\nname = "mlp"')


@pytest.mark.parametrize("folder", ["/nowhere/at/all"])
def test_a_folder_of_files_that_does_not_exist_is_named(folder: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(FOLDERS, folder)
    with pytest.raises(EnvironmentFileError, match=f"{FOLDERS}: {folder}: no such folder"):
        environment_files()


def test_tables_of_a_campaign_file_have_names() -> None:
    with pytest.raises(EnvironmentFileError, match=r"environment\.name: expected letters"):
        read_environments([{"packages": ["a==1"]}])
    with pytest.raises(EnvironmentFileError, match="'x' comes twice"):
        read_environments([{"name": "x", "packages": ["a==1"]}] * 2)


PLAN = """
repeats = 1
[[environment]]
name = "tiny"
packages = ["peft=={version}"]
versions = ["0.1", "0.2"]
[[workload]]
name = "mlp"
"""


def test_a_campaign_varies_the_environment_as_any_other_setting() -> None:
    plan = parse_plan(PLAN + 'vary = { environment = ["tiny", "transformers-4.50.3"], width = [8, 16] }')
    settings = {(cell.environment, cell.settings["width"]) for cell in plan.cells}
    texts = ("peft==0.1", "peft==0.2", "transformers==4.50.3")
    assert settings == {(text, width) for text in texts for width in (8, 16)}
    (cell,) = parse_plan(PLAN + 'settings = { environment = "tiny-0.2" }').cells
    assert cell.settings == {"environment": "peft==0.2"}
    assert parse_plan(PLAN).cells[0].environment == ""


@pytest.mark.parametrize(
    ("rest", "named"),
    [
        ('settings = { environment = "tiny" }', "workload: environment: 'tiny' are 2 environments"),
        ('settings = { environment = "tniy-0.1" }', "workload: environment: 'tniy-0.1' is no environment; known are"),
        ("vary = { environment = [3] }", "workload: environment: 3 is no environment"),
        ('also = [{ environment = "nothing" }]', "workload: environment: 'nothing' is no environment"),
        ('[degrade]\nworkload = "mlp"\nsettings = { environment = "x" }', "degrade: environment: 'x' is no environm"),
        ('[[environment]]\nname = "transformers"\npackages = ["a==1"]', "there is an environment transformers already"),
        ("[[environment]]\npackages = 3", "environment.name: expected letters"),
    ],
)
def test_a_plan_with_an_environment_that_does_not_exist_names_it(rest: str, named: str) -> None:
    with pytest.raises(PlanError) as error:
        parse_plan(PLAN + rest)
    assert named in str(error.value)


def test_an_answer_is_a_result_or_says_that_the_environment_was_not_built() -> None:
    missing = NotBuilt(cell="c", not_built="no such version")
    assert read_answer(missing.to_json()) == missing
    result = CellResult(cell="c", outcome=Outcome.OK)
    assert read_answer(result.to_json()) == result
    with pytest.raises(ValueError, match="expected an object"):
        read_answer("[]")


# real builds


@pytest.mark.timeout(BUILD_SECONDS)
def test_an_environment_has_its_own_packages_first_and_inherits_the_rest(built: tuple[EnvironmentStore, Path]) -> None:
    _, python = built
    code = "import peft, tqdm, numpy, pharoah_benchmarks; print(peft.__version__, tqdm.__version__, numpy.__file__)"
    own, replaced, inherited = run(python, code).split()
    assert (own, replaced) == ("0.0.7", "0.0.1"), "tqdm is inherited in another version"
    assert not inherited.startswith(str(python.parents[1]))


@pytest.mark.timeout(BUILD_SECONDS)
def test_a_finished_environment_states_what_is_in_it_and_is_not_built_again(
    built: tuple[EnvironmentStore, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    store, python = built
    (stamp,) = store.list_finished()
    assert stamp.environment == TWO
    assert stamp.packages.items() >= {("peft", "0.0.7"), ("tqdm", "0.0.1")}
    monkeypatch.setattr("pharoah_benchmarks.environments.store.build", None)
    assert store.interpreter(Environment.read(TWO), locked(TWO)) == python


@pytest.mark.timeout(2 * BUILD_SECONDS)
def test_a_cell_reads_back_the_versions_of_its_environment(built: tuple[EnvironmentStore, Path]) -> None:
    _, python = built
    cells = [Cell("c", "mlp", {"width": 8, "environment": TWO}, steps=2), Cell("e", "llama", {"environment": TWO})]
    done = subprocess.run(
        own_module("pharoah_benchmarks.campaign.fork_server", "0", interpreter=str(python)),
        input="".join(cell.to_json() + "\n" for cell in cells),
        capture_output=True,
        text=True,
        check=True,
        cwd="/",
    )
    for line in done.stdout.splitlines():
        versions = CellResult.from_json(line).context["versions"]
        assert versions["peft"] == "0.0.7" and versions["torch"] and versions["transformers"]


@pytest.mark.timeout(2 * BUILD_SECONDS)
def test_a_build_that_was_killed_is_not_finished_and_is_made_anew(wheels: Path, tmp_path: Path) -> None:
    store = EnvironmentStore(tmp_path)
    builder = subprocess.Popen(
        own_module(BUILDER, TWO, locked(TWO)), env={**os.environ, FOLDER: str(tmp_path)}, cwd="/"
    )
    deadline = time.monotonic() + BUILD_SECONDS
    while not list(tmp_path.glob("*/lib/python*/site-packages")) and time.monotonic() < deadline:
        time.sleep(0.01)
    builder.kill()
    builder.wait()
    assert store.list_finished() == [] and list(tmp_path.glob("*/lib")), "the build had begun"
    python = store.interpreter(Environment.read(TWO), locked(TWO))
    assert run(python, "import peft; print(peft.__version__)") == "0.0.7"


@pytest.mark.timeout(2 * BUILD_SECONDS)
def test_two_builders_at_once_build_it_once(wheels: Path, tmp_path: Path) -> None:
    environ = {**os.environ, FOLDER: str(tmp_path / "e"), "PIP_LOG": str(tmp_path / "pip.log"), "PIP_QUIET": "0"}
    builders = [
        subprocess.Popen(own_module(BUILDER, TWO, locked(TWO)), env=environ, stdout=subprocess.PIPE, cwd="/")
        for _ in range(2)
    ]
    answers = [json.loads(builder.communicate()[0]) for builder in builders]
    assert answers[0] == answers[1] and answers[0]["reason"] == ""
    assert (tmp_path / "pip.log").read_text().count("Successfully installed peft") == 1


@pytest.mark.timeout(BUILD_SECONDS)
@pytest.mark.parametrize(
    ("text", "locks", "reason"),
    [
        ("python==3.99", "", "python 3.99 is not here: no program python3.99 that runs is in the PATH"),
        ("peft==0.0.7", "", "peft==0.0.7 has no lock, and packages without one are not installed"),
        ("peft==0.0.7", OTHER_HASH, "pip: ERROR: THESE PACKAGES DO NOT MATCH THE HASHES"),
        ("peft==0.0.7", OTHER_MACHINE, "has no lock for Python 3.* only for Python 3.99 on toaster"),
        ("peft==0.0.7", "[" * 90_000, "cannot be used"),
    ],
    ids=["no Python", "no lock", "another hash", "another machine", "no JSON"],
)
def test_what_cannot_be_built_has_a_reason_and_leaves_nothing(
    text: str, locks: str, reason: str, wheels: Path, tmp_path: Path
) -> None:
    with pytest.raises(BuildError, match=reason):
        EnvironmentStore(tmp_path).interpreter(Environment.read(text), locks)
    assert [path for path in tmp_path.iterdir() if path.is_dir()] == []


def test_code_is_not_taken_from_a_folder_that_others_can_change(tmp_path: Path) -> None:
    (tmp_path / "open").mkdir()
    (tmp_path / "open").chmod(0o777)
    with pytest.raises(BuildError, match=FOLDER):
        EnvironmentStore(tmp_path / "open").interpreter(Environment.read(f"python=={_PYTHON}"))


def _another_python() -> str:
    for minor in (12, 13, 14):
        found = shutil.which(f"python3.{minor}")
        if (
            found
            and minor != sys.version_info.minor
            and not subprocess.run([found, "-V"], capture_output=True).returncode
        ):
            return f"3.{minor}"
    return ""


@pytest.mark.timeout(BUILD_SECONDS)
@pytest.mark.skipif(not _another_python(), reason="this machine has no other Python that runs")
def test_another_python_has_our_packages_and_inherits_nothing(wheels: Path, tmp_path: Path) -> None:
    version = _another_python()
    text = f"python=={version} tqdm==0.0.1"
    python = EnvironmentStore(tmp_path).interpreter(Environment.read(text), locked(text))
    code = "import sys, tqdm, pharoah_benchmarks.settings; print(sys.version); import numpy"
    done = subprocess.run([str(python), "-P", "-s", "-c", code], capture_output=True, text=True, cwd="/")
    assert done.stdout.startswith(f"{version}.") and "No module named 'numpy'" in done.stderr
