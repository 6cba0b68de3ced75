"""Places in a script: which files are the user's own, and which belong to torch, to Pharoah and to the interpreter."""

from __future__ import annotations

import runpy
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from torch.nn.modules import linear

from pharoah._errors import UnknownReason
from pharoah.dryrun import exploration
from pharoah.dryrun.places import is_library
from tests.tenant_sdk.conftest import DryRunner


@pytest.mark.parametrize("path", ["torch/train.py", "pharoah/train.py", "runpy.py"])
def test_a_script_is_the_users_own_whatever_its_folder_is_named(dry_run: DryRunner, tmp_path: Path, path: str) -> None:
    script = tmp_path / path
    script.parent.mkdir(exist_ok=True)
    script.write_text("first = 1\nraise KeyError('nothing here')\n")
    with pytest.raises(UnknownReason, match=rf"KeyError: 'nothing here' \({script.name}:2\)"):
        dry_run([sys.executable, str(script)], 60.0)


def test_files_of_torch_of_pharoah_and_of_the_start_of_scripts_are_no_scripts() -> None:
    for file in (torch.__file__, linear.__file__, exploration.__file__, runpy.__file__, "<string>", "<frozen runpy>"):
        assert is_library(file), file
    for file in ("/home/me/torch/train.py", "/home/me/pharoah/train.py", "/home/me/runpy.py", __file__):
        assert not is_library(file), file


def test_torch_is_found_wherever_it_was_built(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch", SimpleNamespace(__file__="/home/me/pytorch/torch/__init__.py"))
    assert is_library("/home/me/pytorch/torch/nn/modules/linear.py")
    assert not is_library("/home/me/pytorch/train.py")


def test_a_torch_that_cannot_be_imported_is_no_script(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "torch")
    assert is_library("/usr/lib/python3/dist-packages/torch/__init__.py")


def test_a_file_of_the_user_that_is_named_as_torch_makes_no_library_of_its_folder(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "torch", SimpleNamespace(__file__="/home/me/torch.py"))
    assert not is_library("/home/me/train.py")
