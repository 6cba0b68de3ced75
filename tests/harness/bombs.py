"""Files and messages that cost much to read for what they are: deep, wide, packed, endless, in a wrong encoding."""

from __future__ import annotations

import gzip
import io
import json
import os
import tarfile
import zipfile
import zlib
from collections.abc import Iterator
from pathlib import Path

from tests.harness.readers import CONTROL, READERS, Reader, saved_step
from tests.harness.reading_child import Order

MEGABYTE = 1 << 20
_SPARSE_BYTES = 5 << 30
_DEEP = 100_000
JSON_BOMBS = {
    "deep lists": b"[" * _DEEP + b"]" * _DEEP,
    "deep objects": b'{"a":' * _DEEP + b"1" + b"}" * _DEEP,
    "deep and never closed": b"[" * (4 * MEGABYTE - 1),
    "many lists": b"[" + b"[]," * (MEGABYTE * 4 // 3 - 2) + b"[]]",
    "many objects": b"[" + b'{"":0},' * (MEGABYTE // 2) + b"{}]",
    "many numbers": b"[" + b"1," * (2 * MEGABYTE - 2) + b"1]",
    "stairs": b"[" * 40 + b"[]," * MEGABYTE,
    "quotes": b'"' * (4 * MEGABYTE - 1),
    "backslashes": b'"' + b"\\\\" * (2 * MEGABYTE - 2) + b'"',
    "digits": b'{"format": ' + b"9" * 5_000 + b"}",
    "digits that an integer has": b'{"format": ' + b"9" * 4_000 + b"}",
    "an exponent": b'{"format": 1e999999, "seconds": 1e400}',
    "NaN": b'{"format": NaN, "a": Infinity, "b": -Infinity}',
    "surrogates": b'{"format": "\\ud800", "\\udfff": 1}',
    "one wide letter": '["\U0001f600'.encode() + b"a" * (4 * MEGABYTE - 16) + b'"]',
    "keys": b"{" + b",".join(b'"%d":0' % number for number in range(300_000)) + b"}",
    "UTF-16": json.dumps({"format": 1}).encode("utf-16"),
    "no text": bytes(range(256)) * 4096,
    "zeros": bytes(MEGABYTE),
    "blanks": b" " * (4 * MEGABYTE - 4) + b"[1]",
}
TOML_BOMBS = {
    "deep lists": b"a = " + b"[" * _DEEP + b"]" * _DEEP,
    "deep tables": b"a = " + b"{a=" * 60_000 + b"1" + b"}" * 60_000,
    "a dotted key": b"a." * _DEEP + b"a = 1",
    "dotted quotes": b'"a".' * 60_000 + b"a = 1",
    "a dotted header": b"[" + b"a." * _DEEP + b"a]",
    "many values": b"a = [" + b"1," * 120_000 + b"]",
    "many keys": b"".join(b"a%d = 1\n" % number for number in range(25_000)),
    "digits": b"a = " + b"9" * 5_000,
    "a long hexadecimal number": b"a = 0x" + b"f" * 250_000,
    "not finite": b"a = inf\nb = nan\n",
    "quotes": b"a = " + b'"' * 250_000,
    "backslashes": b'a = "' + b"\\" * 250_000,
    "UTF-16": "a = 1".encode("utf-16"),
    "zeros": bytes(MEGABYTE),
}
YAML_BOMBS = {
    "aliases": b"a: &a [x, x]\n"
    + b"".join(b"%c: &%c [%s]\n" % (n, n, b",".join([b"*%c" % (n - 1)] * 10)) for n in range(98, 106)),
    "an alias of itself": b"&a [*a]",
    "deep lists": b"[" * 60_000,
    "deep objects": b"{a: " * 30_000,
    "deep blocks": b"\n".join(b" " * depth + b"a:" for depth in range(450)),
    "many values": b"[" + b"a," * 60_000 + b"]",
    "digits": b"a: " + b"9" * 5_000,
    "digits to the base of 60": b"a: " + b"1:" * 60_000 + b"1",
    "digits with a tag": b"a: !!int '" + b"1:" * 50_000 + b"1'",
    "objects of Python": b"!!python/object/apply:time.sleep [100]",
    "not finite": b"superbench: {rules: {a: {b: .inf, c: .nan}}}",
    "questions": b"?" * 120_000,
    "a long line": b"a: " + b"x" * 4 * MEGABYTE,
}
_ZIP_ENTRIES = 60_000


def bombs(folder: Path, *, quick: bool = False) -> Iterator[Order]:
    """Bombs for all readers: those of their format, and files that are none."""
    for name, make in READERS.items():
        if name == CONTROL:
            continue
        reader = make()
        for what, content in _contents(reader).items():
            yield _written(folder, name, reader.file, what, content)
        if not reader.is_message and not quick:
            yield from _odd_files(folder, name, reader)
    yield from _steps(folder)
    yield from _packed(folder)
    yield from _of_tables(folder)
    yield from _lines(folder)


def _contents(reader: Reader) -> dict[str, bytes]:
    if reader.file.endswith(".toml"):
        return TOML_BOMBS
    if reader.file.endswith(".yaml"):
        return {**YAML_BOMBS, "JSON, deep": JSON_BOMBS["deep lists"], "JSON, many lists": JSON_BOMBS["many lists"]}
    return JSON_BOMBS


def _odd_files(folder: Path, name: str, reader: Reader) -> Iterator[Order]:
    for what in ("a pipe", "a device without an end", "a folder", "a sparse file"):
        path = folder / name / what / reader.file
        path.parent.mkdir(parents=True, exist_ok=True)
        if what == "a pipe":
            os.mkfifo(path)
        elif what == "a device without an end":
            path.symlink_to("/dev/zero")
        elif what == "a folder":
            path.mkdir()
        else:
            with path.open("wb") as file:
                file.truncate(_SPARSE_BYTES)
        yield Order(name, path, f"{name}: {what}")


def _steps(folder: Path) -> Iterator[Order]:
    """ZIP archives with a `step.json` that is a bomb, and lists of entries that are."""
    contents = {
        **{what: JSON_BOMBS[what] for what in ("deep lists", "many lists", "digits", "NaN", "surrogates")},
        "a list": b"[1]",
        "events that are deep": b'{"format": 2, "events": ' + b"[" * 40 + b"]" * 40 + b"}",
        "sixteen megabytes of lists": b"[" + b"[]," * (16 * MEGABYTE // 3 - 2) + b"[]]",
    }
    for what, content in contents.items():
        yield _zip(folder, what, {"step.json": content})
    yield _zip(folder, "packed, 100 MB", {"step.json": bytes(100 * MEGABYTE)}, packed=True)
    yield _zip(folder, "stored, 40 MB", {"step.json": b" " * 40 * MEGABYTE})
    yield _zip(folder, "many entries", {f"{number}": b"" for number in range(_ZIP_ENTRIES)})
    good = folder / "templates" / "bombs step"
    good.parent.mkdir(parents=True, exist_ok=True)
    saved_step(good)
    whole = bytearray(good.read_bytes())
    end = whole.rindex(b"PK\5\6")
    for what, size in (("a list of entries that is said to be large", 0xFFFFFFF0), ("one that is said to be none", 0)):
        changed = whole[:]
        changed[end + 12 : end + 16] = size.to_bytes(4, "little")
        yield _written(folder, "saved step", "step", what, bytes(changed))
    path = folder / "saved step" / "sparse before its end" / "step"
    path.parent.mkdir(parents=True)
    with path.open("wb") as file:
        file.seek(_SPARSE_BYTES)
        changed = whole[:]
        changed[end + 12 : end + 16] = (0xFFFFFFF0).to_bytes(4, "little")
        file.write(changed)
    yield Order("saved step", path, "saved step: sparse before its end")


def _zip(folder: Path, what: str, entries: dict[str, bytes], *, packed: bool = False) -> Order:
    path = folder / "saved step" / f"zip {what}" / "step"
    path.parent.mkdir(parents=True)
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED if packed else zipfile.ZIP_STORED) as archive:
        for name, content in entries.items():
            archive.writestr(name, content)
    return Order("saved step", path, f"saved step: zip, {what}")


def _gzip_of(piece: bytes, times: int) -> bytes:
    """gzip of a piece that is repeated, without the whole in memory."""
    packer, packed = zlib.compressobj(9, zlib.DEFLATED, 31), io.BytesIO()
    for _ in range(times):
        packed.write(packer.compress(piece))
    packed.write(packer.flush())
    return packed.getvalue()


def _tar(members: dict[str, bytes], kind: bytes = tarfile.REGTYPE) -> bytes:
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w") as archive:
        for name, content in members.items():
            member = tarfile.TarInfo(name)
            member.size, member.type = len(content), kind
            archive.addfile(member, io.BytesIO(content))
    return packed.getvalue()


def _packed(folder: Path) -> Iterator[Order]:
    """Archives and traces."""
    blanks = _gzip_of(b" " * MEGABYTE, 1_000)
    noise = os.urandom(2 * MEGABYTE)
    event = b'{"ph": "X", "cat": "cpu_op", "name": "aten::mm", "ts": 1, "dur": 1, "tid": 1},'
    for what, content in {
        "blanks": blanks,
        "zeros": _gzip_of(bytes(MEGABYTE), 1_000),
        "events that are equal": b"".join((_gzip_of(b"[", 1), _gzip_of(event * 10_000, 500))),
        "noise and then blanks": gzip.compress(b'["' + noise.hex().encode() + b'",') + blanks,
        "gzip in gzip": gzip.compress(blanks),
        "cut short": blanks[:-20],
    }.items():
        yield _written(folder, "trace, gzip", "a.json.gz", what, content)
        yield _written(folder, "past runs, gzip", "runs.csv.gz", what, content)
    other = tarfile.TarInfo("other")
    other.size = 1_000 * MEGABYTE
    for what, content in {
        "a large member that is no trace": _gzip_of(other.tobuf() + bytes(MEGABYTE - 512), 1) + blanks,
        "a packed member": gzip.compress(_tar({"a.json.gz": blanks})),
        "a long header": gzip.compress(_tar({"././@PaxHeader": b"9" * 4 * MEGABYTE}, tarfile.XHDTYPE)),
        "a long name": gzip.compress(_tar({"././@LongLink": b"a" * 40 * MEGABYTE}, tarfile.GNUTYPE_LONGNAME)),
        "headers of headers": _tar({f"{n}": b"11 path=abc\n" for n in range(3_000)}, tarfile.XHDTYPE),
        "many members": _tar({f"{n}.txt": b"" for n in range(10_000)}),
        "zeros": bytes(10 * MEGABYTE),
    }.items():
        yield _written(folder, "trace, tar", "a.tar.gz", what, content)
    for what, content in {
        "one entry of lists": b'{"traceEvents": [{"args": [' + b"[]," * (8 * MEGABYTE) + b"[]]}]}",
        "one entry that is deep": b'{"traceEvents": [' + b"[" * _DEEP,
        "blanks": b"[" + b" " * 20 * MEGABYTE,
        "numbers before the events": b'{"x": ' + b"9" * 5_000 + b', "traceEvents": []}',
        "events that are no objects": b"[" + b"1," * MEGABYTE + b"1]",
    }.items():
        yield _written(folder, "trace, kineto", "a.json", what, content)
    for what, content in {
        "empty messages": bytes(50 * MEGABYTE),
        "fields": _message(b"\x20\x01" * MEGABYTE),
        "packed numbers": _message(b"\x22" + _varint(3 * MEGABYTE) + b"\1" * (3 * MEGABYTE)),
        "a message that is said to be large": b"\x02\x0a\x00" + _varint(1 << 40),
        "a number without an end": b"\x02\x0a\x00" + b"\xff" * MEGABYTE,
    }.items():
        yield _written(folder, "trace, chakra", "a.et", what, content)


def _message(content: bytes) -> bytes:
    return b"\x02\x0a\x00" + _varint(len(content)) + content


def _varint(number: int) -> bytes:
    found = bytearray()
    while number > 0x7F:
        found.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes([*found, number])


def _of_tables(folder: Path) -> Iterator[Order]:
    """Tables of past runs, and column maps."""
    head = b"JobID|JobName|State|NodeList|ExitCode|Start\n"
    row = b"1|t|FAILED|%s|%s|2024-01-01T00:00:00\n"
    for what, content in {
        "ranges": head + row % (b",".join([b"n[0-99999]"] * 20_000), b"0:0"),
        "ranges of many rows": head + b"".join(row % (b"n%d[0-99999]" % n, b"0:0") for n in range(200)),
        "a range of long numbers": head + row % (b"n[" + b"0" * 100_000 + b"-9]", b"0:0"),
        "digits": head + row % (b"n1", b"9" * 5_000 + b":0"),
        "a signal of many digits": head + row % (b"n1", b"0:" + b"9" * 5_000),
        "a line without an end": head + b"a" * 10 * MEGABYTE,
        "columns": b"|".join(b"%d" % n for n in range(MEGABYTE // 8)) + b"\n",
    }.items():
        yield _written(folder, "past runs, sacct", "jobs", what, content)
    for what, content in {
        "columns": b",".join(b"c%d" % n for n in range(100_000)) + b"\n" + b"," * 99_999 + b"\n",
        "an error of a megabyte": b"net,good,driver,error\na,no,1,%s\n" % (b"NVRM: Xid " * 100_000),
        "quotes": b"net,good,driver,error\n" + b'"' * 4 * MEGABYTE,
    }.items():
        yield _written(folder, "past runs, csv", "runs.csv", what, content)
    yield _parquet(folder)
    text = 'model = "net"\n[end_state]\ncolumn = "good"\nvalues = { yes = "ok", no = "failed" }\n[context]\n'
    for what, pattern in {
        "(a+)+$": "(a+)+$", "(a|a)*$": "(a|a)*$", "(a|aa)+$": "(a|aa)+$", "(.*)*x": "(.*)*x", "long": "a?" * 4_000,
        "many repeats": "(((a{1,200}){1,200}){1,200})", "groups": "(" * 3_000 + ")" * 3_000,
    }.items():  # fmt: skip
        column = f"driver = {{ column = 'driver', pattern = '^{pattern}' }}\n"
        yield _written(folder, "column map", "map.toml", f"pattern {what}", (text + column).encode())


def _parquet(folder: Path) -> Order:
    import pyarrow as pa
    from pyarrow import parquet

    path = folder / "past runs, parquet" / "one value" / "runs.parquet"
    path.parent.mkdir(parents=True)
    column = pa.DictionaryArray.from_arrays(pa.array([0] * (20 * MEGABYTE), pa.int8()), ["yes"]).cast(pa.string())
    parquet.write_table(pa.table(dict.fromkeys(("net", "good", "driver", "error"), column)), path)
    return Order("past runs, parquet", path, "past runs, parquet: one value, very often")


def _lines(folder: Path) -> Iterator[Order]:
    """Lines of a log that begin a rule again and again, of 100 KB each."""
    for words in (
        "EDAC ", "NVRM: Xid ", "filename = '", "NCCL WARN ", "Hardware Error]: ", "[Errno 5] ", "AER: ", "/dev/shm",
        "NET/IB : ", "out of memory Process 1 has 1 x memory in use", "DefaultCPUAllocator: ", "Got completion ", "a/",
        "Compute capability ", "module AttributeError: module ", "nfs: server ", "assert ", "Checkpoint ", "(pid=1 ",
        "Assertion `", "Gradient overflow", "Expected ", "CANCELLED AT ", "Reason: ", "Timed out waiting ", "1: ",
        "\x1b[", "\x1b]", "[pod/", "2024-01-01 00:00:00 ", "WARNING ", ":1: ", "loss scale ", "error: argument ",
        "rank1: ",
    ):  # fmt: skip
        yield _written(folder, "error line", "message", words, (words * (100_000 // len(words))).encode())


def _written(folder: Path, reader: str, file: str, what: str, content: bytes) -> Order:
    """Equal contents are one file with several names: there are gigabytes of them."""
    kept = folder / "contents" / f"{len(content)}-{zlib.crc32(content):08x}"
    path = folder / reader / f"{zlib.crc32(what.encode()):08x} {kept.name}" / file
    path.parent.mkdir(parents=True, exist_ok=True)
    if not kept.exists():
        kept.parent.mkdir(parents=True, exist_ok=True)
        kept.write_bytes(content)
    path.hardlink_to(kept)
    return Order(reader, path, f"{reader}: {what}")
