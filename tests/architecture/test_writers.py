"""One way to write a file: nothing outside of `pharoah_system.files` opens one for writing, or makes a folder.

A new writer uses `write_atomically`, `AtomicFile`, `write_output`, `create_exclusively`, `open_append` or `open_lock`,
and `make_folder` for a folder of state. What is no such file stands in the table below, with the reason.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

import pytest

from tests.architecture.test_walls import FOLDERS, ROOT, modules

THE_PLACE = ROOT / "proto" / "pharoah_system" / "files"
IN_MEMORY = "into memory; `write_output` writes the file"
PROC = "a file of the kernel in /proc"
GROUPS = "a folder of the kernel: a control group"
DEVICE = "a device"
RANDOM = "a new folder with a random name, mode 0700"
UNNAMED = "a file without a name"
CELL = "a fault's own file, in the private folder of a cell"
SANDBOX = "inside the dry run's sandbox, or in its private scratch folder"
OURS = "within a folder that `make_folder` or `find_folder` has checked"
SOCKET = "the name of a socket, in a folder of its user alone"
DESCRIPTOR = "a descriptor that is open already"

EXEMPT: dict[tuple[str, str], str] = {
    ("proto/pharoah_system/held_folders.py", "tempfile.mkdtemp"): RANDOM,
    ("proto/pharoah_system/held_folders.py", ".rename"): RANDOM,
    ("proto/pharoah_system/local_sockets.py", ".mkdir"): OURS,
    ("proto/pharoah_system/local_sockets.py", ".rename"): SOCKET,
    ("proto/pharoah_system/memory_group.py", "open"): PROC,
    ("proto/pharoah_system/standard_streams.py", "os.open"): DEVICE,
    ("proto/pharoah_system/trusted_paths.py", ".mkdir"): "`make_folder` itself",
    ("proto/pharoah_serving/closed_output.py", "os.open"): DEVICE,
    ("proto/pharoah_serving/reading_worker.py", "os.fdopen"): DESCRIPTOR,
    ("tenant_sdk/pharoah/_runtime_folder.py", ".mkdir"): "checked right after it is made",
    ("tenant_sdk/pharoah/_runtime_folder.py", "tempfile.mkdtemp"): RANDOM,
    ("tenant_sdk/pharoah/cli/commands.py", "os.open"): DEVICE,
    ("tenant_sdk/pharoah/cli/doctor.py", "tempfile.TemporaryFile"): UNNAMED,
    ("tenant_sdk/pharoah/dryrun/device_folder.py", ".mkdir"): SANDBOX,
    ("tenant_sdk/pharoah/dryrun/device_folder.py", ".symlink_to"): SANDBOX,
    ("tenant_sdk/pharoah/dryrun/device_folder.py", ".touch"): SANDBOX,
    ("tenant_sdk/pharoah/dryrun/enter.py", "os.open"): DEVICE,
    ("tenant_sdk/pharoah/dryrun/file_view.py", ".mkdir"): SANDBOX,
    ("tenant_sdk/pharoah/dryrun/file_view.py", ".symlink_to"): SANDBOX,
    ("tenant_sdk/pharoah/dryrun/file_view.py", ".touch"): SANDBOX,
    ("tenant_sdk/pharoah/dryrun/file_view.py", ".write_bytes"): SANDBOX,
    ("tenant_sdk/pharoah/dryrun/isolation.py", ".write_text"): PROC,
    ("tenant_sdk/pharoah/dryrun/parent.py", "tempfile.TemporaryFile"): UNNAMED,
    ("tenant_sdk/pharoah/dryrun/parent.py", "tempfile.mkdtemp"): RANDOM,
    ("tenant_sdk/pharoah/dryrun/shell_commands.py", ".write_text"): SANDBOX,
    ("tenant_sdk/pharoah/dryrun/shell_commands.py", "tempfile.mkdtemp"): RANDOM,
    ("tenant_sdk/pharoah/dryrun/weight_files.py", "open"): SANDBOX,
    ("tenant_sdk/pharoah/replay/step_file.py", "zipfile.ZipFile"): "into an AtomicFile",
    ("tenant_sdk/pharoah/replay/step_file.py", ".open"): "an entry of the archive",
    ("tenant_sdk/pharoah/sidecar/request_headers.py", "tempfile.TemporaryDirectory"): RANDOM,
    ("tenant_sdk/pharoah/sidecar/server.py", ".rename"): SOCKET,
    ("tenant_sdk/pharoah/skeleton_picture.py", ".savefig"): IN_MEMORY,
    ("benchmarks/pharoah_benchmarks/campaign/cell_runner.py", "tempfile.TemporaryDirectory"): RANDOM,
    ("benchmarks/pharoah_benchmarks/campaign/forked.py", "os.open"): DEVICE,
    ("benchmarks/pharoah_benchmarks/campaign/process_limit.py", ".mkdir"): GROUPS,
    ("benchmarks/pharoah_benchmarks/campaign/process_limit.py", ".write_text"): GROUPS,
    ("benchmarks/pharoah_benchmarks/campaign/ranks.py", ".FileStore"): UNNAMED,
    ("benchmarks/pharoah_benchmarks/environments/build.py", ".mkdir"): OURS,
    ("benchmarks/pharoah_benchmarks/environments/resolve.py", "tempfile.TemporaryDirectory"): RANDOM,
    ("benchmarks/pharoah_benchmarks/environments/resolve.py", "zipfile.ZipFile"): "inside that folder",
    ("benchmarks/pharoah_benchmarks/environments/build.py", ".symlink_to"): OURS,
    ("benchmarks/pharoah_benchmarks/environments/store.py", ".replace"): OURS,
    ("benchmarks/pharoah_benchmarks/faults/_checkpoints.py", ".open"): CELL,
    ("benchmarks/pharoah_benchmarks/faults/_checkpoints.py", ".replace"): CELL,
    ("benchmarks/pharoah_benchmarks/faults/_namespaces.py", ".write_text"): PROC,
    ("benchmarks/pharoah_benchmarks/faults/_tunnel.py", "os.open"): DEVICE,
    ("benchmarks/pharoah_benchmarks/faults/disk_full.py", ".open"): CELL,
    ("benchmarks/pharoah_benchmarks/faults/disk_slow.py", ".open"): CELL,
    ("benchmarks/pharoah_benchmarks/micro/_answer_stream.py", "os.fdopen"): DESCRIPTOR,
    ("benchmarks/pharoah_benchmarks/micro_kernels/files.py", "os.open"): UNNAMED,
    ("benchmarks/pharoah_benchmarks/micro_kernels/files.py", "tempfile.mkstemp"): UNNAMED,
    ("benchmarks/pharoah_benchmarks/micro_kernels/together.py", ".FileStore"): "`open_lock` has made the file",
    ("provider_service/pharoah_provider/certificates.py", "os.fdopen"): DESCRIPTOR,
    ("provider_service/pharoah_provider/cli/table/export.py", ".write_table"): IN_MEMORY,
    ("provider_service/pharoah_provider/first_start.py", ".rename"): OURS,
    ("provider_service/pharoah_provider/pictures/_canvas.py", ".savefig"): IN_MEMORY,
    ("provider_service/pharoah_provider/storage/duckdb/database.py", "duckdb.connect"): OURS,
}
"""By module and call: why it is not a file that others could have put there."""

_READING = {
    "O_RDONLY", "O_DIRECTORY", "O_PATH", "O_CLOEXEC", "O_NOFOLLOW", "O_NONBLOCK", "O_NOCTTY",
}  # fmt: skip
_METHODS = {
    "write_text", "write_bytes", "touch", "rename", "symlink_to", "hardlink_to", "mkdir", "makedirs", "mknod", "mkfifo",
    "savefig", "imsave", "tofile", "to_csv", "to_json_file", "to_parquet", "to_pickle", "to_hdf", "savez", "savetxt",
    "write_table", "write_feather", "FileStore", "FileHandler", "RotatingFileHandler", "TimedRotatingFileHandler",
    "extractall", "memmap", "ParquetWriter",
}  # fmt: skip
"""Written by their last name: methods of paths, and functions of libraries that take a path."""
_FUNCTIONS = {
    *(f"os.{name}" for name in (
        "rename", "renames", "replace", "link", "symlink", "truncate", "mkfifo", "mknod", "mkdir", "makedirs", "creat",
    )),
    *(f"shutil.{name}" for name in ("copy", "copy2", "copyfile", "copytree", "move", "make_archive", "unpack_archive")),
    *(f"tempfile.{name}" for name in (
        "mkstemp", "mkdtemp", "mktemp", "NamedTemporaryFile", "TemporaryFile", "TemporaryDirectory",
        "SpooledTemporaryFile",
    )),
    "torch.save", "numpy.save", "np.save", "sqlite3.connect", "duckdb.connect", "shelve.open", "dbm.open",
}  # fmt: skip
_OPENING_MODULES = ("os", "io", "gzip", "bz2", "lzma", "tarfile", "zipfile")
_OPENERS = {"open", "fdopen", "ZipFile", "TarFile", "GzipFile", "BZ2File", "LZMAFile", "FileIO"}
_MODE = re.compile(r"[rwxabtU+]{1,4}(?:[:|].*)?")
_WRITING_SQL = re.compile(
    r"\bCOPY\b.+\bTO\s+['$?]|\bEXPORT\s+DATABASE\b|\bATTACH\s+(?:DATABASE\b|IF\b|['$?])", re.IGNORECASE | re.DOTALL
)


def written(text: str) -> Iterator[tuple[int, str]]:
    """Line and call of everything in a module that may open a file for writing or make a folder."""
    tree = ast.parse(text)
    names = dict(_imported(tree))
    for call in ast.walk(tree):
        if isinstance(call, ast.Call) and (name := _name(call.func, names)) and _writes(call, name):
            yield call.lineno, name
        elif isinstance(call, ast.Constant) and isinstance(call.value, str) and _WRITING_SQL.search(call.value):
            yield call.lineno, "SQL"


def _imported(tree: ast.AST) -> Iterator[tuple[str, str]]:
    """How a module calls what it imports, and the full name of it."""
    for one in ast.walk(tree):
        if isinstance(one, ast.Import):
            yield from ((alias.asname, alias.name) for alias in one.names if alias.asname)
        elif isinstance(one, ast.ImportFrom) and one.module:
            yield from ((alias.asname or alias.name, f"{one.module}.{alias.name}") for alias in one.names)


def _name(function: ast.expr, names: dict[str, str]) -> str:
    """`os.open` for a function of a module, `.open` for a method of some object; empty for what has no name."""
    if isinstance(function, ast.Name):
        return names.get(function.id, function.id)
    if not isinstance(function, ast.Attribute):
        return ""
    owner = function.value
    if isinstance(owner, ast.Name):
        owner_name = names.get(owner.id, owner.id)
        if f"{owner_name}.{function.attr}" in _FUNCTIONS or owner_name in _OPENING_MODULES:
            return f"{owner_name}.{function.attr}"
    return f".{function.attr}"


def _writes(call: ast.Call, name: str) -> bool:
    if name.startswith("pharoah"):
        return False  # ours, and looked at where it is
    last = name.rpartition(".")[2]
    if name in _FUNCTIONS or last in _METHODS:
        return True
    if name == "os.open":
        flags = [*call.args[1:2], *(one.value for one in call.keywords if one.arg == "flags")]
        return not flags or any(not _only_reads(one) for one in flags)
    if last in _OPENERS:
        return any(_may_write(mode) for mode in _modes(call, name))
    return name == ".replace" and len(call.args) == 1 and not call.keywords


def _may_write(mode: ast.expr) -> bool:
    return not isinstance(mode, ast.Constant) or bool(set(str(mode.value)) & set("wax+"))


def _only_reads(flags: ast.expr) -> bool:
    used = {one.attr for one in ast.walk(flags) if isinstance(one, ast.Attribute)}
    others = {one.id for one in ast.walk(flags) if isinstance(one, ast.Name)} - {"os"}
    return bool(used) and used <= _READING and not others


def _modes(call: ast.Call, name: str) -> list[ast.expr]:
    """The arguments that may be the mode, by its name or where it stands: for a method of a path the first one."""
    stated = [one.value for one in call.keywords if one.arg == "mode"]
    if not name.startswith("."):
        return stated + call.args[1:2]
    return stated + [
        one
        for one in call.args[:2]
        if isinstance(one, ast.Constant) and isinstance(one.value, str) and _MODE.fullmatch(one.value)
    ]


def _found() -> Iterator[tuple[str, int, str]]:
    for package in FOLDERS:
        for path in modules(package):
            if not path.is_relative_to(THE_PLACE) and "_pb2" not in path.name:
                yield from ((str(path.relative_to(ROOT)), line, what) for line, what in written(path.read_text()))


def test_files_are_written_in_one_place() -> None:
    new = [f"{path}:{line}: {what}" for path, line, what in _found() if (path, what) not in EXEMPT]
    assert not new, "use pharoah_system.files or make_folder:\n" + "\n".join(new)


def test_every_exemption_is_needed() -> None:
    assert EXEMPT.keys() == {(path, what) for path, _, what in _found()} & EXEMPT.keys()


def test_the_sql_of_the_storage_writes_no_files() -> None:
    for path in (ROOT / "provider_service").rglob("*.sql"):
        assert not _WRITING_SQL.search(path.read_text()), path


@pytest.mark.parametrize(
    "text",
    [
        "open(p, 'w')", "open(p, mode='ab')", "open(p, chosen_mode)", "p.open('x')", "p.open(mode='r+')",
        "io.open(p, 'wb')", "gzip.open(p, 'wt')", "os.open(p, os.O_WRONLY)", "os.open(p, flags)",
        "os.open(p, os.O_RDONLY | os.O_CREAT)", "os.fdopen(d, 'w')", "p.write_text('')", "p.touch()",
        "from os import open\nopen(p, O_RDWR)", "import os as o\no.open(p, o.O_RDWR)",
        "import shutil\nshutil.copyfile(a, b)", "from shutil import move\nmove(a, b)",
        "import tempfile\ntempfile.mkstemp()", "from tempfile import TemporaryFile\nTemporaryFile()", "p.replace(q)",
        "os.replace(p, q)", "p.rename(q)", "p.mkdir()", "zipfile.ZipFile(p, 'w')", "tarfile.open(p, 'w:gz')",
        "figure.savefig(p)", "torch.save(o, p)", "import numpy as np\nnp.save(p, a)", "duckdb.connect(p)",
        "logging.FileHandler(p)", "q('COPY runs TO \\'x.csv\\'')", "frame.to_csv(p)",
    ],
)  # fmt: skip
def test_each_way_to_write_is_seen(text: str) -> None:
    assert list(written(text))


@pytest.mark.parametrize(
    "text",
    [
        "open(p)", "open(p, 'rb')", "p.open()", "p.open('rb')", "os.open(p, os.O_RDONLY | os.O_DIRECTORY)",
        "text.replace('a', 'b')", "replace(one, size=1)", "at.replace(tzinfo=UTC)", "zipfile.ZipFile(p)",
        "tarfile.open(p)", "file.write(content)", "p.read_text()",
    ],
)  # fmt: skip
def test_reading_is_not_refused(text: str) -> None:
    assert not list(written(text))
