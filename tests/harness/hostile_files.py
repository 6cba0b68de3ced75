"""Files that want code to run: names of modules, functions and libraries, pickles, variables, paths and random bytes.

The library and the module are real: whoever loads one of them leaves a file in the folder of marks.
"""

from __future__ import annotations

import json
import pickle
import random
import subprocess
import zipfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.harness.readers import CONTROL, READERS, Reader, saved_step
from tests.harness.reading_child import Order

LIBRARY = """
#include <fcntl.h>
__attribute__((constructor)) static void leave(void) { open("%s", O_CREAT | O_WRONLY, 0600); }
"""
MODULE = "from pathlib import Path\nPath({mark!r}).touch()\n"
VARIABLES = (
    "LD_PRELOAD", "LD_LIBRARY_PATH", "LD_AUDIT", "PYTHONPATH", "PYTHONSTARTUP", "PYTHONHOME", "PATH", "HOME",
    "OMP_TOOL_LIBRARIES", "KMP_TOOL_LIBRARIES", "TORCH_EXTENSIONS_DIR", "CUDA_INJECTION64_PATH", "NCCL_NET_PLUGIN",
    "TORCH_LOGS_OUT", "PYTORCH_CUDA_ALLOC_CONF", "GCONV_PATH", "BASH_ENV", "MKL_CBWR\0X", "ATEN_CPU_CAPABILITY=x",
)  # fmt: skip


@dataclass(frozen=True)
class Traps:
    """What a file may try to reach, and where that leaves a mark."""

    folder: Path

    @property
    def marks(self) -> Path:
        return self.folder / "marks"

    @property
    def library(self) -> Path:
        return self.folder / "trap.so"

    @property
    def modules(self) -> Path:
        """A folder on the path of the readers, with the module `pharoah_trap`."""
        return self.folder / "modules"

    @property
    def environment(self) -> dict[str, str]:
        """With it a reader finds the module."""
        return {"PYTHONPATH": str(self.modules)}

    @property
    def mark(self) -> str:
        return str(self.marks / "left")

    @classmethod
    def set_up(cls, folder: Path) -> Traps:
        """Compile the library with the C compiler of this machine, and write the module."""
        traps = cls(folder)
        traps.marks.mkdir(parents=True)
        traps.modules.mkdir()
        source = folder / "trap.c"
        source.write_text(LIBRARY % traps.mark)
        subprocess.run(["cc", "-shared", "-fPIC", "-o", str(traps.library), str(source)], check=True)
        (traps.modules / "pharoah_trap.py").write_text(MODULE.format(mark=traps.mark))
        return traps

    def sprung(self) -> bool:
        """Whether something has run since the last look."""
        found = list(self.marks.iterdir())
        for mark in found:
            mark.unlink()
        return bool(found)

    def texts(self) -> tuple[str, ...]:
        """Texts that are code, or the name of code, to somebody."""
        return (
            str(self.library), "pharoah_trap", "pharoah_trap:x", f"file://{self.library}", "os.system", "__class__",
            f"$(touch {self.mark})", f"`touch {self.mark}`", f"; touch {self.mark}", f"| touch {self.mark}",
            f"__import__('os').system('touch {self.mark}')", f"!!python/object/apply:os.system ['touch {self.mark}']",
            "{0.__class__.__mro__}", "%(x)s%n", "../../../../etc/passwd", "load_library", self.mark, f"@{self.mark}",
            "torch.hub.load", "cos\nsystem\n(S'true'\ntR.",
        )  # fmt: skip


class _Trap:
    """A pickle that runs a command."""

    def __init__(self, command: str) -> None:
        self._command = command

    def __reduce__(self) -> tuple[Callable[..., Any], tuple[str]]:
        import os

        return os.system, (self._command,)


def controls(folder: Path, traps: Traps) -> Iterator[Order]:
    """Files that the control runs: the oracle must see each."""
    for number, (operator, arguments) in enumerate(
        [("load_library", [str(traps.library)]), ("import_module", ["pharoah_trap"])]
    ):
        yield _written(
            folder, CONTROL, "message", number, json.dumps({"operator": operator, "args": arguments}), operator
        )


def hostile_files(folder: Path, traps: Traps, seed: int, each: int) -> Iterator[Order]:
    """Hostile files for all readers: `each` with a text that is code, and `each` that are changed at random."""
    yield from steps(folder, traps)
    chance = random.Random(seed)
    for name, make in READERS.items():
        if name == CONTROL:
            continue
        reader = make()
        good = _good(reader, folder / "templates" / name)
        texts = traps.texts()
        for number in range(each):
            text = texts[(number + len(name)) % len(texts)]
            yield _written(folder, name, reader.file, number, _with_text(good, text, chance), f"{name}: {text}")
        for number in range(each, 2 * each):
            yield _written(folder, name, reader.file, number, _changed(good, chance), f"{name}: changed at random")
        yield _written(
            folder, name, reader.file, 2 * each, pickle.dumps(_Trap(f"touch {traps.mark}")), f"{name}: pickle"
        )


def steps(folder: Path, traps: Traps) -> Iterator[Order]:
    """Saved steps, each with one part that is hostile."""
    good = folder / "templates" / "good step"
    good.parent.mkdir(parents=True, exist_ok=True)
    saved_step(good)
    for number, (what, change) in enumerate(_changes_of_steps(traps)):
        path = folder / "saved step" / f"step {number}" / "step"
        path.parent.mkdir(parents=True)
        with zipfile.ZipFile(good) as archive, zipfile.ZipFile(path, "w") as changed:
            data = json.loads(archive.read("step.json"))
            change(data)
            for entry in archive.namelist():
                changed.writestr(entry, json.dumps(data) if entry == "step.json" else archive.read(entry))
            changed.writestr("data.pkl", pickle.dumps(_Trap(f"touch {traps.mark}")))
            changed.writestr("../../../escaped", b"x")
        yield Order("saved step", path, what)


Change = Callable[[dict[str, Any]], None]


def _changes_of_steps(traps: Traps) -> Iterator[tuple[str, Change]]:
    library = str(traps.library)
    for operator, arguments in _operators(library, traps.mark):
        yield f"operator {operator}", _operator(operator, arguments)
    for argument in (
        {"dtype": "load"}, {"dtype": "hub"}, {"layout": "ops"}, {"memory_format": "classes"}, {"device": "meta"},
        {"device": ["cpu"]}, {"complex": [[1], {}]}, {"load": library}, {"import_module": "pharoah_trap"}, {},
        {"storage": 1, "dtype": "load", "offset": 0, "size": [1], "stride": [1]},
        {"storage": 1, "dtype": "float32", "offset": 1 << 40, "size": [1], "stride": [1]},
        {"storage": 1, "dtype": "float32", "offset": 0, "size": [1 << 40], "stride": [0]},
        {"storage": 1, "dtype": "float32", "offset": 0, "size": [-1], "stride": [1]},
        {"storage": "1", "dtype": "float32", "offset": 0, "size": [1], "stride": [1]},
    ):  # fmt: skip
        yield f"argument {argument}", _argument(argument)
    for name in VARIABLES:
        yield f"variable {name}", _variable(name, library)
    for value in (library, "x" * 65, "a b", "$(x)"):
        yield f"value {value[:20]}", _variable("MKL_CBWR", value)
    for flag in ("cudnn.__class__", "__builtins__.x", "mkldnn.__name__", "cuda.matmul.__dict__", "opt_einsum.enabled"):
        yield f"flag {flag}", _flag(flag)
    yield "kind of an event", _kind_of_event
    for threads in (0, -1, 1 << 31, True, "1"):
        yield f"threads {threads}", _threads(threads)


def _operators(library: str, mark: str) -> Iterator[tuple[str, list[Any]]]:
    """Names that lead from `torch.ops` to something that is no operator, or to one that does more than compute."""
    yield "load_library", [library]
    yield "import_module", ["pharoah_trap"]
    yield "load_library.__func__", [{"dtype": "ops"}, library]
    yield "aten.mm.__class__", ["x"]
    yield "aten.from_file.default", [mark, True, 4]
    yield "aten.from_file.out", [mark, True, 4]
    yield "aten._print.default", ["x"]
    yield "__spec__.loader.load_module", ["torch.ops"]
    yield "profiler._record_function_enter_new.default", ["x"]
    for name in ("loaded_libraries.add", "aten.load_library", "classes.load_library"):
        yield name, [library]
    for name in (
        "load_library.__func__.__globals__.clear", "aten.__class__.__init__.__globals__.keys", "aten.mm", "aten", "",
        "aten.mm.default.__call__", "aten.mm.default._op", "aten.mm.default.decompose", "aten..default", "aten.mm.",
        "prims.device_put.default", "aten.mm.default\0", "ATEN.mm.default", "aten.bernoulli.default", "a" * 10_000,
        "inductor._alloc_from_pool", "_test.cat.default", "aten._test_string_default.default",
    ):  # fmt: skip
        yield name, []


def _operator(name: str, arguments: list[Any]) -> Change:
    def change(data: dict[str, Any]) -> None:
        event = next(event for kind, event in data["events"] if kind == "Computation")
        event.update(operator=name, args=arguments, kwargs={}, results=[])

    return change


def _argument(value: Any) -> Change:
    def change(data: dict[str, Any]) -> None:
        next(event for kind, event in data["events"] if kind == "Computation")["args"][0] = value

    return change


def _variable(name: str, value: str) -> Change:
    return lambda data: data["node_class"]["variables"].update({name: value})


def _flag(name: str) -> Change:
    return lambda data: data["switches"]["flags"].update({name: True})


def _threads(value: object) -> Change:
    return lambda data: data["switches"].update(threads=value)


def _kind_of_event(data: dict[str, Any]) -> None:
    data["events"][0][0] = "StepReader"


def _good(reader: Reader, folder: Path) -> bytes:
    folder.mkdir(parents=True, exist_ok=True)
    reader.good(folder / reader.file)
    return (folder / reader.file).read_bytes()


def _with_text(good: bytes, text: str, chance: random.Random) -> bytes:
    """The good file with a text in place of one of its words, as its format writes texts."""
    written = json.dumps(text)[1:-1].encode()
    words = [word for word in good.replace(b'"', b" ").replace(b"'", b" ").split() if len(word) > 1]
    word = chance.choice(words) if words else b""
    return good.replace(word, written, 1) if word else good + written


def _changed(good: bytes, chance: random.Random) -> bytes:
    """The good file with some bytes changed, left out, or repeated."""
    content = bytearray(good or b"\0")
    for _ in range(chance.randint(1, 8)):
        at = chance.randrange(len(content))
        match chance.randrange(3):
            case 0:
                content[at] = chance.randrange(256)
            case 1 if len(content) > 2:
                del content[at : at + chance.randint(1, 8)]
            case _:
                content[at:at] = content[at : at + chance.randint(1, 40)] * chance.randint(1, 3)
        content = content or bytearray(b"\0")
    return bytes(content)


def _written(folder: Path, reader: str, file: str, number: int, content: str | bytes, what: str) -> Order:
    path = folder / reader / str(number) / file
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return Order(reader, path, what)
