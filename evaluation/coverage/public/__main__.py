"""`python -m evaluation.coverage.public DIR`: public repositories and data for `coverage --scripts`.

Repositories that DIR already has are left as they are, so that they can be put there by hand where git reaches nothing.
"""

from __future__ import annotations

import argparse
import shutil
import subprocess
import tomllib
from pathlib import Path

from evaluation.coverage import environment
from evaluation.coverage.sources import LIST

HERE = Path(__file__).parent


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(prog="python -m evaluation.coverage.public", description=__doc__)
    parser.add_argument("folder", type=Path, metavar="DIR")
    folder = parser.parse_args().folder.resolve()
    folder.mkdir(parents=True, exist_ok=True)
    for name, repository in tomllib.loads((HERE / LIST).read_text())["repositories"].items():
        if not (folder / name).exists():
            _clone(repository["of"], repository["commit"], folder / name)
    subprocess.run([environment.python(), str(HERE / "made_up_data.py"), str(folder)], check=True)
    shutil.copy(HERE / LIST, folder / LIST)
    print(f"now run: python -m evaluation coverage --part public_scripts --scripts {folder}")


def _clone(repository: str, commit: str, place: Path) -> None:
    """Clone one repository of GitHub at one commit. Raises CalledProcessError when git fails."""
    print(f"  {repository} {commit}", flush=True)
    subprocess.run(["git", "clone", "--quiet", f"https://github.com/{repository}", str(place)], check=True)
    subprocess.run(["git", "-C", str(place), "checkout", "--quiet", commit], check=True)


if __name__ == "__main__":
    main()
