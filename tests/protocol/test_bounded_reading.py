"""One reader for what others have written reads what a plain parser reads, up to its bounds, and names the place."""

from __future__ import annotations

import gzip
import io
import json
import os
import tarfile
import tracemalloc
import zipfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pharoah_system.bounded_reading import (
    BoundedPattern,
    JsonLimits,
    UnreadableInput,
    ZipReader,
    members_of_tar,
    parse_json,
    parse_toml,
    parse_yaml,
    read_json_file,
)
from pharoah_system.bounded_reading._json import check_json

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(10**30), 10**30) | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(exclude_categories=["Cs"])),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(st.characters(exclude_categories=["Cs"])), inner),
)  # fmt: skip


@given(VALUES, st.booleans())
def test_a_document_is_read_as_python_reads_it(value: Any, ascii_only: bool) -> None:
    text = json.dumps(value, ensure_ascii=ascii_only)
    assert parse_json(text, "x") == parse_json(text.encode(), "x") == json.loads(text)


@given(st.text('[]{}",:\\ a1', max_size=60))
def test_whatever_is_no_document_is_unreadable_and_nothing_else(text: str) -> None:
    """No text is refused that Python reads at this depth, and none is read that it refuses."""
    try:
        expected = json.loads(text)
    except ValueError:
        with pytest.raises(UnreadableInput):
            parse_json(text, "x")
    else:
        assert parse_json(text, "x") == expected


def _nested(depth: int) -> str:
    return '{"a\\"[":[' * (depth // 2) + "1" + "]}" * (depth // 2)


@pytest.mark.parametrize("padding", ["", " " * 100_000, '"[[[\\\\",'])
def test_depth_is_counted_outside_of_strings(padding: str) -> None:
    limits = JsonLimits(max_depth=20)
    start = "[" + padding if padding.startswith('"') else padding
    end = "]" if padding.startswith('"') else ""
    depth = 20 - len(end)
    parse_json(start + _nested(depth // 2 * 2) + end, "x", limits)
    with pytest.raises(UnreadableInput, match=r"^x: line 1, byte .*: nested deeper than 20 levels"):
        parse_json(start + _nested(22) + end, "x", limits)


@pytest.mark.parametrize(
    "piece",
    ["[]", "{}", '{"":0}', "[1e9]", '"ab"', "12345", '{"abcdefg":[{"h":1.5}]}', '"\U0001f600\U0001f600"', "[[[[]]]]"],
)
def test_the_estimate_of_memory_is_an_upper_bound(piece: str) -> None:
    text = f"[{','.join([piece] * 20_000)}]".encode()
    tracemalloc.start()
    value = parse_json(text, "x")
    used, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert len(value) == 20_000
    with pytest.raises(UnreadableInput, match="MiB of memory"):
        check_json(text, "x", JsonLimits(max_memory_bytes=used))


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('{"a": }', "x: line 1, column 7: not JSON: Expecting value"),
        ('[\n1,\n"\x01"]', "x: line 3, column 2: not JSON: Invalid control character"),
        ("9" * 301, "has 301 digits, at most 300 are read"),
        ("[1e999]", "1e999… is too long or too large"),
        ("[NaN]", "NaN is no number"),
        ('["\\ud800"]', "half of a character"),
        (b'["\xff"]', "x: byte 3: not a text in UTF-8"),
        ("[" * 10**5, "nested deeper"),
        (" " * (5 << 20), "larger than 4,194,304 bytes"),
    ],
)
def test_an_error_names_input_place_and_reason(text: str | bytes, said: str) -> None:
    with pytest.raises(UnreadableInput) as error:
        parse_json(text, "x")
    assert said in str(error.value) and len(str(error.value)) < 500


def test_nan_is_read_where_others_write_it() -> None:
    assert str(parse_json("[NaN, -Infinity]", "x", JsonLimits(reads_nan=True))) == "[nan, -inf]"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("a = [" + "[" * 30 + "]" * 30 + "]", "x: line 1: nested deeper than 24 levels"),
        ("a." * 30 + "b = 1", "a key with more than 24 dots"),
        ("b = 1\na = {c = {d." + "e." * 20 + "f = [[[[1]]]]}}", "nested deeper than 24 levels"),
        ("a = " + "9" * 5_000, "too many digits"),
        ("a = 0x" + "f" * 17, "x: a: a whole number of more than 64 bits"),
        ("a = nan", "x: a: nan is no number"),
        ("a = 1\na = 2\n", "not TOML: Cannot overwrite a value (at line 2, column 6)"),
        ("a = [" + "1," * 60_000 + "]", "more than 50,000"),
    ],
)
def test_toml_is_flat_and_short(text: str, said: str) -> None:
    with pytest.raises(UnreadableInput) as error:
        parse_toml(text, "x")
    assert said in str(error.value)


def test_brackets_and_dots_in_texts_and_comments_of_toml_count_for_nothing() -> None:
    many = "[[" * 40 + "a." * 40
    quoted = f"a = '{many}'\nb = " + f'"{many}\\"{many}" # {many}\n'
    text = quoted + f"c = '''\n{many}'{many}'''\n" + f'd = """{many}"" \\\n{many}"""\n'
    assert parse_toml(text, "x").keys() == {"a", "b", "c", "d"}
    assert parse_toml("a = [0.1, 0.2, 0.3" + ", 0.5" * 100 + "]", "x")["a"][-1] == 0.5


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("a: &b [1]\nc: *b", "x: line 1: aliases"),
        ("[" * 30, "nested deeper than 24 levels"),
        ("a: " + "1:" * 40 + "1", "more than 39 characters"),
        ("a: !!python/object/apply:os.system [x]", "could not determine a constructor"),
        ("[" + "1," * 30_000 + "]", "more than 20,000 values"),
        ("a: [", "x: line 2, column 1: not YAML"),
        ("a: .nan", "nan is no number"),
    ],
)
def test_yaml_has_no_aliases_and_no_objects(text: str, said: str) -> None:
    pytest.importorskip("yaml")
    assert parse_yaml("a: [1, {b: c}]\n", "x") == {"a": [1, {"b": "c"}]}
    with pytest.raises(UnreadableInput) as error:
        parse_yaml(text, "x")
    assert said in str(error.value)


def test_only_regular_files_of_a_bounded_size_are_opened(tmp_path: Path) -> None:
    pipe, device, large = tmp_path / "pipe", tmp_path / "device", tmp_path / "large"
    os.mkfifo(pipe)
    device.symlink_to("/dev/zero")
    with large.open("wb") as file:
        file.truncate(5 << 30)
    for path, said in ((pipe, "not a regular file"), (device, "not a regular file"), (large, "larger than")):
        with pytest.raises(UnreadableInput, match=said):
            read_json_file(path)
    with pytest.raises(IsADirectoryError):
        read_json_file(tmp_path)


def test_an_archive_holds_no_more_than_its_file(tmp_path: Path) -> None:
    path = tmp_path / "a.zip"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("a", b"abc" * 1_000)
    assert ZipReader(path).read("a", 3_000) == b"abc" * 1_000
    with pytest.raises(UnreadableInput, match="a: larger than 2,999 bytes"):
        ZipReader(path).read("a", 2_999)
    with pytest.raises(UnreadableInput, match="b: there is no such entry"):
        ZipReader(path).read("b")
    content = bytearray(path.read_bytes())
    content[content.index(b"abc")] ^= 1
    path.write_bytes(content)
    with pytest.raises(UnreadableInput, match="damaged"):
        ZipReader(path).read("a")
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("a", bytes(1 << 20))
    with pytest.raises(UnreadableInput, match="a: packed or encrypted"):
        ZipReader(path)


def test_members_of_an_archive_are_read_in_order_and_only_within_bounds(tmp_path: Path) -> None:
    path = tmp_path / "a.tar.gz"
    contents = {f"{size}": os.urandom(size) for size in (0, 1, 511, 512, 513, 100_000)}
    with tarfile.open(path, "w:gz") as archive:
        for name, content in contents.items():
            member = tarfile.TarInfo(name)
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
        link = tarfile.TarInfo("link")
        link.type, link.linkname = tarfile.SYMTYPE, "/etc/passwd"
        archive.addfile(link)
    assert {member.name: member.content.read() for member in members_of_tar(path)} == contents
    assert [member.name for member in members_of_tar(path)] == [*contents], "also where nothing is read"
    path.write_bytes(gzip.compress(path.read_bytes()[:0] + bytes(512) + b"x"))
    assert [*members_of_tar(path)] == []
    head = tarfile.TarInfo("a")
    head.size = 64 << 20
    path.write_bytes(gzip.compress(head.tobuf() + bytes(head.size)))
    with pytest.raises(UnreadableInput, match="more than 200 times its size"):
        list(members_of_tar(path))


def test_a_pattern_out_of_a_file_ends() -> None:
    found = BoundedPattern.compile_pattern(r"^(\d+)\.", "map").search("535.129")
    assert found is not None and found[1] == "535"
    with pytest.raises(UnreadableInput, match="map: it takes more than"):
        BoundedPattern.compile_pattern("(a+)+$", "map").search("a" * 60 + "!")
    with pytest.raises(UnreadableInput, match="map: no regular expression"):
        BoundedPattern.compile_pattern("(", "map")
