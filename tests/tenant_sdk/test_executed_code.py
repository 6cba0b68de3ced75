"""Digests of executed code: what makes a difference, and what does not."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

RUN = """
import json, sys
from pharoah.dryrun.executed_code import ExecutedCode
code = ExecutedCode({"further": "further"})
code.start()
import further
further.used()
print(json.dumps(code.digests()))
"""
MODULE = '''
"""Says something."""
__version__ = "1.0"
LIMIT = 3
TABLE = {"a": [1, 2.5], "b": ("x", None)}
UNREAD = 7

def at_import():
    return 1

RESULT = at_import()

class Settings:
    """Says more."""
    width = 8

    def __init__(self, depth=2, *, rate=0.1):
        self.depth = depth

def helper(values={1, 2}):
    """Helps."""
    return [LIMIT + at + len(TABLE) for at in range(2)]

def used():
    Settings()
    return helper(), __version__

def unused():
    return 1
'''


def digest(folder: Path, text: str) -> str:
    """What the digest of a module is that runs `used`."""
    (folder / "further.py").write_text(text)
    command = [sys.executable, "-P", "-B", "-c", f"import sys; sys.path.insert(0, {str(folder)!r})\n{RUN}"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    found: dict[str, str] = json.loads(done.stdout)
    return found["further"]


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("Says something.", "Says another thing."),
        ("Helps.", "Helps a lot."),
        ("    return [LIMIT", "    # a comment\n\n    return [LIMIT"),
        ('"1.0"', '"2.0"'),
        ("UNREAD = 7", "UNREAD = 8"),
        ("def unused():\n    return 1", "def unused():\n    return 2"),
        ("def at_import():\n    return 1", "def at_import():\n    return 10"),
        ("values={1, 2}", "values={2, 1}"),
    ],
)
def test_what_cannot_change_what_runs_changes_no_digest(old: str, new: str, tmp_path: Path) -> None:
    assert old in MODULE
    assert digest(tmp_path, MODULE) == digest(tmp_path, MODULE.replace(old, new))


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("range(2)", "range(3)"),
        ("LIMIT = 3", "LIMIT = 4"),
        ("2.5", "2.6"),
        ("None)", "1)"),
        ("width = 8", "width = 9"),
        ("depth=2", "depth=3"),
        ("rate=0.1", "rate=0.2"),
        ("values={1, 2}", "values={1, 3}"),
        ("    Settings()", "    Settings() and unused()"),
        ("len(TABLE)", "len([TABLE])"),
    ],
)
def test_what_can_change_what_runs_changes_the_digest(old: str, new: str, tmp_path: Path) -> None:
    assert old in MODULE
    assert digest(tmp_path, MODULE) != digest(tmp_path, MODULE.replace(old, new))


def test_code_of_an_import_inside_a_function_does_not_count(tmp_path: Path) -> None:
    late = MODULE.replace("    Settings()", "    import json.tool\n    Settings()")
    (tmp_path / "other.py").write_text("def at_import():\n    return 1\nat_import()\n")
    assert digest(tmp_path, late) != digest(tmp_path, MODULE), "the function that imports is another one"
    imports = MODULE.replace("    Settings()", "    import other\n    Settings()")
    first = digest(tmp_path, imports)
    (tmp_path / "other.py").write_text("def at_import():\n    return 2\nat_import()\n")
    assert digest(tmp_path, imports) == first
