"""A distribution in a temporary folder, as `pip install` would leave it: one module and its entry points."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path


def install_plugin(folder: Path, group: str, entries: Mapping[str, str], module: str) -> dict[str, str]:
    """Write the module `a_plugin` and its metadata into `folder`. Returns an environment in which Python finds it.

    `entries` maps the names of entry points of `group` to `a_plugin:OBJECT`.
    """
    (folder / "a_plugin.py").write_text(module)
    metadata = folder / "a_plugin-1.0.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: a-plugin\nVersion: 1.0\n")
    lines = [f"[{group}]", *(f"{name} = {value}" for name, value in entries.items())]
    (metadata / "entry_points.txt").write_text("\n".join(lines) + "\n")
    path = os.pathsep.join(filter(None, [str(folder), os.environ.get("PYTHONPATH")]))
    return {**os.environ, "PYTHONPATH": path}
