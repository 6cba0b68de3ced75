"""Plug-ins as other distributions ship them: a module and its metadata, in a folder that is put on the path."""

from __future__ import annotations

from pathlib import Path


def write_plugin(folder: Path, group: str, source: str, value: str = "ENTRY", name: str = "plugin_of_a_test") -> Path:
    """Write the module `name` with `source`, and a distribution that offers its attribute `value` in `group`.

    Put the returned folder on `sys.path` or PYTHONPATH.
    """
    (folder / f"{name}.py").write_text(source)
    metadata = folder / f"{name}-1.0.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
    (metadata / "entry_points.txt").write_text(f"[{group}]\n{name} = {name}:{value}\n")
    return folder
