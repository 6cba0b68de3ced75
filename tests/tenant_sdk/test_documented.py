"""Documented incompatibilities in verdicts, in `pharoah doctor` and by hand. Dry runs and commands are real."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Sequence
from importlib import metadata
from pathlib import Path

import pytest

from pharoah._verdict import Verdict, unknown
from pharoah.capture import hardware
from pharoah.cli.main import main
from pharoah.documented import complete, facts_of, find_installed_facts, list_documented_findings, objections
from pharoah_archetypes.documented import Knowledge, documents
from pharoah_archetypes.documented.relations import read_relation
from pharoah_protocol.vocabulary import Rung, VerdictStatus
from tests.tenant_sdk.conftest import STEP, TRAIN, DryRunner

NOTHING = unknown("no provider")
CUDA_BUILD = """
import torch
torch.version.cuda = "12.4"
torch.__version__ = "2.6.0+cu124"
torch.cuda.nccl.version = lambda: (2, 21, 5)
"""
"""What a build for CUDA says of itself; here only a build for CPUs can be installed."""
ON_GPU = CUDA_BUILD + TRAIN + "model.cuda()\n" + STEP.replace("torch.randn(4, 8)", "torch.randn(4, 8).cuda()")


def check(folder: Path, source: str, *options: str) -> dict[str, object]:
    """The verdict of `pharoah check` on a script, without a provider."""
    (folder / "train.py").write_text(source)
    command = [sys.executable, "-m", "pharoah", "check", "-o", "json", *options, "--", sys.executable, "train.py"]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True)
    verdict: dict[str, object] = json.loads(done.stdout)
    return verdict


def documented(verdict: dict[str, object]) -> Sequence[dict[str, str]]:
    findings = verdict["findings"]
    assert isinstance(findings, list)
    return [finding for finding in findings if finding["code"] == "documented-incompatible"]


def test_a_driver_that_is_too_old_for_the_cuda_of_the_job_blocks_it(tmp_path: Path) -> None:
    options = ("--gpus", "H100", "--gpu-driver", "470.82.01")
    verdict = check(tmp_path, ON_GPU, *options, "--dry-run-timeout-seconds", "60")
    assert verdict["status"] == "incompatible", verdict
    (finding,) = documented(verdict)
    assert finding["severity"] == "block"
    assert "NVIDIA driver 470.82.01 under CUDA 12.4" in finding["what"]
    assert "NVIDIA CUDA Compatibility" in finding["evidence"] and "525.60.13" in finding["remedy"]


def test_runs_that_worked_count_more_than_a_document(dry_run_script: DryRunner) -> None:
    dry = dry_run_script(ON_GPU, gpus="H100", gpu_driver="470.82.01")
    worked = Verdict(VerdictStatus.COMPATIBLE, rung=Rung.EXACT, runs=20)
    severities = [
        finding.severity
        for verdict in (NOTHING, worked)
        for finding in list_documented_findings(dry.fingerprint, dry.cost, verdict)
    ]
    assert severities == ["block", "warn"]


def test_a_driver_that_is_new_enough_adds_nothing(dry_run_script: DryRunner) -> None:
    dry = dry_run_script(ON_GPU, gpus="H100", gpu_driver="550.54.14")
    assert {"driver": "550.54.14", "cuda": "12.4"}.items() <= facts_of(dry.fingerprint, dry.cost).items()
    assert not list(list_documented_findings(dry.fingerprint, dry.cost, NOTHING))


def test_a_job_that_does_not_use_the_gpu_is_not_blocked_by_its_driver(dry_run_script: DryRunner) -> None:
    dry = dry_run_script(CUDA_BUILD + TRAIN + STEP, gpus="H100", gpu_driver="470.82.01")
    assert dry.fingerprint.hardware["driver"] == "470.82.01"
    assert not list(list_documented_findings(dry.fingerprint, dry.cost, NOTHING))


def test_the_driver_of_gpus_that_are_not_here_is_unknown(
    dry_run_script: DryRunner, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "version").write_text("NVRM version: NVIDIA UNIX x86_64 Kernel Module  470.82.01  Wed\n")
    monkeypatch.setattr(hardware, "_NVIDIA", tmp_path)
    assert hardware.driver() == "470.82.01"
    assert "driver" not in dry_run_script(ON_GPU, gpus="H100").fingerprint.hardware
    assert dry_run_script(ON_GPU).fingerprint.hardware["driver"] == "470.82.01"


def test_libraries_of_different_releases_are_a_warning(tmp_path: Path, dry_run_script: DryRunner) -> None:
    (tmp_path / "torchvision.py").write_text('__version__ = "0.16.0"\n')
    dry = dry_run_script("import torchvision\n" + TRAIN + STEP)
    (finding,) = list_documented_findings(dry.fingerprint, dry.cost, NOTHING)
    assert finding.severity == "warn" and finding.code == "documented-incompatible"
    assert finding.what.endswith(f"is not supported: torchvision 0.16.0 with torch {metadata.version('torch')}")
    assert all(len(line) <= 80 for line in finding.lines())


def test_a_build_that_nobody_published_is_no_finding(dry_run_script: DryRunner) -> None:
    dry = dry_run_script(CUDA_BUILD.replace("12.4", "12.5") + TRAIN + STEP)
    answers = list(documents().answers(facts_of(dry.fingerprint, dry.cost)))
    assert any(one.relation.name == "torch_cuda" and one.compatibility == "incompatible" for one in answers)
    assert not list(list_documented_findings(dry.fingerprint, dry.cost, NOTHING))


def test_device_code_that_torch_lists_is_a_fact(dry_run_script: DryRunner) -> None:
    lists = 'torch._C._cuda_getArchFlags = lambda: "sm_50 sm_80 sm_90"\n'
    dry = dry_run_script(ON_GPU.replace(TRAIN, lists + TRAIN), gpus="B200", gpu_driver="570.86.10")
    (finding,) = list_documented_findings(dry.fingerprint, dry.cost, NOTHING)
    assert "a GPU of compute capability 10.0" in finding.what and finding.severity == "block"


def test_the_build_tag_and_the_name_of_a_gpu_give_further_facts() -> None:
    facts = complete({"torch": "1.12.1+cu102", "gpu": "NVIDIA H100 80GB HBM3", "driver": ""})
    assert facts == {"torch": "1.12.1+cu102", "cuda": "10.2", "gpu": "NVIDIA H100 80GB HBM3", "capability": "9.0"}
    assert complete({"torch": "2.13.0+cu130"})["cuda"] == "13.0"
    assert "cuda" not in complete({"torch": "2.13.0+cpu"})


def test_a_forward_compatibility_package_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "cuda-12.4" / "compat"
    folder.mkdir(parents=True)
    monkeypatch.setattr(hardware, "_CUDA", tmp_path)
    monkeypatch.delenv("LD_LIBRARY_PATH", raising=False)
    assert hardware.forward_compatibility() == ""
    (folder / "libcuda.so.550.54.15").touch()
    assert hardware.forward_compatibility() == "550.54.15"
    monkeypatch.setenv(hardware.DRY_RUN_DRIVER, "550.54.15")  # the library belongs to the kernel module
    assert hardware.forward_compatibility() == ""


def test_what_is_installed_here_is_asked_about_without_importing_it() -> None:
    facts = find_installed_facts()
    assert facts["torch"] == metadata.version("torch") and facts["python"].startswith("3.")


VERSION_FILE = (
    "from typing import Optional\n\n__version__ = '2.6.0+cu124'\ndebug = False\n{}\nhip: Optional[str] = None\n"
)
"""As the build of torch writes torch/version.py (PyTorch, tools/generate_torch_version.py)."""


def install_torch_of_pypi(folder: Path, cuda: str) -> None:
    """Write what `pip install torch` leaves, as far as anybody reads it without an import."""
    (folder / "torch").mkdir()
    (folder / "torch" / "version.py").write_text(VERSION_FILE.format(cuda))
    (folder / "torch-2.6.0.dist-info").mkdir()
    (folder / "torch-2.6.0.dist-info" / "METADATA").write_text("Metadata-Version: 2.1\nName: torch\nVersion: 2.6.0\n")


@pytest.mark.parametrize("line", ["cuda: Optional[str] = '12.4'", "cuda = '12.4'"])
def test_the_driver_is_asked_about_for_a_torch_without_a_build_tag(
    line: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    install_torch_of_pypi(tmp_path, line)
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "version").write_text("NVRM version: NVIDIA UNIX x86_64 Kernel Module  470.82.01  Wed\n")
    monkeypatch.setattr(hardware, "_NVIDIA", tmp_path)
    monkeypatch.setattr(hardware, "_CUDA", tmp_path)
    monkeypatch.delenv("LD_LIBRARY_PATH", raising=False)
    facts = find_installed_facts()
    assert (facts["torch"], facts["cuda"]) == ("2.6.0", "12.4")
    questions = [answer.question for answer in objections(documents().answers(facts))]
    assert "NVIDIA driver 470.82.01 under CUDA 12.4" in questions


def test_a_torch_for_cpus_has_no_cuda(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    install_torch_of_pypi(tmp_path, "cuda: Optional[str] = None")
    monkeypatch.syspath_prepend(tmp_path)
    assert "cuda" not in find_installed_facts()


def test_the_command_answers_by_hand_in_80_columns(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["documented", "torch=2.6.0+cu124", "driver=470.82.01", "gpu=H100"]) == 1
    shown = capsys.readouterr().out
    assert "NO   NVIDIA driver 470.82.01 under CUDA 12.4" in shown
    assert "yes  a build of torch 2.6.0+cu124 for CUDA 12.4" in shown
    assert max(map(len, shown.splitlines())) <= 80
    assert main(["documented", "torch==2.6.0", "python=3.12", "-o", "json"]) == 0
    (found,) = json.loads(capsys.readouterr().out)
    assert (found["relation"], found["answer"]) == ("torch_python", "compatible")
    assert main(["documented", "torch=2.6.0"]) == 0
    assert "no document that Pharoah has is about these facts together" in capsys.readouterr().out


def test_a_driver_that_is_no_version_is_a_usage_error(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["check", "--gpu-driver", "newest", "--", "python", "train.py"])
    assert "'newest' is not a version such as 550.54.14" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("torch", "torch: write NAME=VERSION"),
        ("torhc=2.6", "torhc: no document that Pharoah has is about it; there are architectures, capability"),
        ("gpu=Voodoo2", "gpu=Voodoo2: this GPU is not known"),
    ],
)
def test_facts_that_cannot_be_read_are_a_usage_error(
    text: str, message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["documented", text]) == 2
    assert message in capsys.readouterr().err


def test_the_doctor_states_whether_what_is_installed_goes_together(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    main(["doctor", "-o", "json"])
    found = {row["check"]: row for row in json.loads(capsys.readouterr().out)}["documented"]
    assert found["result"] == "PASS" and "goes together" in found["detail"]
    text = """
subject = "torch"
about = "python"
inference = "window"
consequence = "unsupported"
question = "Python {value} with torch {release}"
remedy = "Python {allows}"
source = "a document"
as_of = 2026-11-24
[[statement]]
release = "2"
allows = "2.7"
"""
    monkeypatch.setattr("pharoah.cli.doctor.documents", lambda: Knowledge([read_relation("strict", text)]))
    main(["doctor", "-o", "json"])
    found = {row["check"]: row for row in json.loads(capsys.readouterr().out)}["documented"]
    assert found["result"] == "FAIL" and "Python 2.7" in found["detail"]
