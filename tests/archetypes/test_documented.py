"""Documented knowledge: statements of vendors, the rules that extend them, and data files that cannot be used."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pharoah_archetypes.documented import (
    Answer,
    Compatibility,
    Inference,
    Knowledge,
    Relation,
    capability_of,
    documents,
)
from pharoah_archetypes.documented.device_code import read_device_code
from pharoah_archetypes.documented.knowledge import answer
from pharoah_archetypes.documented.relations import read_relation
from pharoah_archetypes.documented.releases import Release, compare, read_release, read_releases

YES, NO, UNKNOWN = Compatibility.COMPATIBLE, Compatibility.INCOMPATIBLE, Compatibility.UNKNOWN
HEAD = """
subject = "a"
about = "b"
inference = "window"
consequence = "fails"
question = "b {value} with a {release}"
remedy = "b {allows}"
source = "a document"
as_of = 2026-11-24
"""
ROW = '[[statement]]\nrelease = "2.0"\nallows = ">=3.8,<=3.11"\n'


def asked(relation: str, **facts: str) -> Answer:
    return answer(documents().relations[relation], facts)


def small(text: str, rule: Inference = Inference.WINDOW) -> Relation:
    """A relation whose statements are written as `release allows`, one per line."""
    rows = "".join(
        f'[[statement]]\nrelease = "{release}"\nallows = "{allows}"\n'
        for release, allows in (line.split(" ", 1) for line in text.strip().splitlines())
    )
    return read_relation("small", HEAD.replace("window", rule) + rows)


def says(relation: Relation, release: str, value: str) -> Compatibility:
    return answer(relation, {"a": release, "b": value}).compatibility


# ---- what vendors state --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("cuda", "driver", "expected"),
    [
        # NVIDIA CUDA Compatibility, Minor Version Compatibility, Table 1
        ("12.4", "525.60.13", YES),
        ("12.9", "535.104.05", YES),
        ("12.4", "470.82.01", NO),
        ("13.0", "575.57.08", NO),
        ("13.0", "580.65.06", YES),
        ("11.8", "450.80.02", YES),
        ("11.8", "440.33.01", NO),
        # CUDA Toolkit Release Notes, table of toolkits and their drivers
        ("10.2.89", "440.33", YES),
        ("10.2.89", "435.21", NO),
        ("9.2.148", "396.37", YES),
        ("9.2.148", "396.26", NO),
        # 450.51.06 came with CUDA 11.0.3; for later releases of CUDA 11 the notes ask for 450.80.02
        ("11.0", "450.51.06", YES),
        ("11.3", "450.51.06", UNKNOWN),
        # no document is about them
        ("14.0", "700.10", UNKNOWN),
        ("6.5", "700.10", UNKNOWN),
        # "525" may be any driver of that branch
        ("12.4", "525", UNKNOWN),
    ],
)
def test_drivers_of_cuda_releases(cuda: str, driver: str, expected: Compatibility) -> None:
    assert asked("cuda_driver", cuda=cuda, driver=driver).compatibility is expected


@pytest.mark.parametrize(
    ("torch", "python", "expected"),
    [
        # PyTorch RELEASE.md, Release Compatibility Matrix
        ("2.6.0+cu124", "3.13.1", YES),
        ("2.6.0", "3.14.0", NO),
        ("2.4.1", "3.13.0", NO),
        ("2.5.0", "3.13.0", UNKNOWN),  # "3.13 experimental"
        ("2.9.0", "3.9.18", NO),
        ("2.13.0+cpu", "3.11.7", YES),
        ("2.99.0", "3.11.7", UNKNOWN),
        ("2.6.0a0+ecf3bae40a.nv25.01", "3.14.0", UNKNOWN),  # a build of somebody else
        ("2.6.0+ours", "3.14.0", UNKNOWN),
    ],
)
def test_pythons_of_torch(torch: str, python: str, expected: Compatibility) -> None:
    assert asked("torch_python", torch=torch, python=python).compatibility is expected


@pytest.mark.parametrize(
    ("relation", "facts", "expected"),
    [
        # PyTorch, Previous Versions
        ("torch_torchvision", {"torch": "2.0.0", "torchvision": "0.15.1"}, YES),
        ("torch_torchvision", {"torch": "2.6.0+cu124", "torchvision": "0.21.0+cu124"}, YES),
        ("torch_torchvision", {"torch": "2.6.0", "torchvision": "0.20.1"}, NO),
        ("torch_torchvision", {"torch": "2.1.0", "torchvision": "0.16.1"}, UNKNOWN),
        # torchaudio, Compatibility Matrix: 2.11 works with all later releases of torch
        ("torch_torchaudio", {"torch": "2.0.1", "torchaudio": "2.0.2"}, YES),
        ("torch_torchaudio", {"torch": "2.13.0", "torchaudio": "2.11.0"}, YES),
        ("torch_torchaudio", {"torch": "2.13.0", "torchaudio": "2.10.0"}, NO),
        # PyTorch RELEASE.md, stable and experimental CUDA
        ("torch_cuda", {"torch": "2.6.0", "cuda": "12.6"}, YES),
        ("torch_cuda", {"torch": "2.6.0", "cuda": "12.1"}, NO),
        # PyTorch RELEASE.md, PyTorch CUDA Support Matrix
        ("torch_capability", {"torch": "2.12.0", "cuda": "13.0", "machine": "x86_64", "capability": "7.0"}, NO),
        ("torch_capability", {"torch": "2.12.0", "cuda": "12.6", "machine": "x86_64", "capability": "7.0"}, YES),
        ("torch_capability", {"torch": "2.12.0", "cuda": "12.6", "machine": "aarch64", "capability": "7.0"}, NO),
        ("torch_capability", {"torch": "2.12.0", "cuda": "12.6", "machine": "x86_64", "capability": "12.0"}, NO),
        ("torch_capability", {"torch": "2.12.0", "cuda": "13.0", "machine": "x86_64", "capability": "12.1"}, YES),
        ("torch_capability", {"torch": "2.12.0", "cuda": "13.0", "machine": "riscv64", "capability": "12.0"}, UNKNOWN),
        # NVIDIA: Kepler ended with CUDA 11, Maxwell, Pascal and Volta with CUDA 12
        ("cuda_capability", {"cuda": "12.4", "capability": "3.7"}, NO),
        ("cuda_capability", {"cuda": "13.0", "capability": "7.0"}, NO),
        ("cuda_capability", {"cuda": "12.4", "capability": "12.0"}, UNKNOWN),
        # metadata of transformers on PyPI
        ("transformers_torch", {"transformers": "5.23.0", "torch": "2.5.1"}, NO),
        ("transformers_torch", {"transformers": "4.57.0", "torch": "2.2.0"}, YES),
        ("transformers_python", {"transformers": "5.0.0", "python": "3.9.18"}, NO),
        # FBGEMM Releases Compatibility Table
        ("fbgemm_torch", {"fbgemm-gpu": "1.1.0", "torch": "2.6.0"}, YES),
        ("fbgemm_torch", {"fbgemm-gpu": "1.1.0", "torch": "2.5.1"}, NO),
        # README of flash-attention: Ampere, Ada or Hopper, and Turing for FlashAttention 1
        ("flash_attn_capability", {"flash-attn": "2.5.8", "capability": "7.0"}, NO),
        ("flash_attn_capability", {"flash-attn": "2.5.8", "capability": "8.9"}, YES),
        ("flash_attn_capability", {"flash-attn": "1.0.9", "capability": "7.5"}, YES),
        # NVIDIA: CUDA 12.8 is the first that supports Blackwell; an earlier one may have PTX code
        ("cuda_capability", {"cuda": "12.8", "capability": "12.0"}, YES),
        ("cuda_capability", {"cuda": "12.8", "capability": "3.7"}, NO),
        # torch._six
        ("deepspeed_torch", {"deepspeed": "0.8.0", "torch": "2.0.0"}, NO),
        ("deepspeed_torch", {"deepspeed": "0.8.2", "torch": "2.0.1"}, YES),
        # PEP 600: manylinux_2_28
        ("torch_glibc", {"torch": "2.7.0", "glibc": "2.17"}, NO),
    ],
)
def test_other_statements(relation: str, facts: dict[str, str], expected: Compatibility) -> None:
    assert asked(relation, **facts).compatibility is expected


def test_an_answer_names_its_document_and_what_to_do() -> None:
    found = asked("cuda_driver", cuda="12.4", driver="470.82.01")
    assert found.question == "NVIDIA driver 470.82.01 under CUDA 12.4"
    assert "525.60.13" in found.remedy and "minor-version-compatibility" in found.source and "2026" in found.source
    assert not asked("cuda_driver", cuda="12.4", driver="550.54.14").remedy


def test_a_forward_compatibility_package_leaves_an_old_driver_open() -> None:
    found = asked("cuda_driver", cuda="12.4", driver="470.82.01", forward_compatibility="550.54.15")
    assert found.compatibility is UNKNOWN and "data-centre" in found.why
    assert asked("cuda_driver", cuda="12.4", driver="550.54.14", forward_compatibility="560.1.1").compatibility is YES


def test_the_list_of_the_build_itself_counts_before_all_documents() -> None:
    facts = {"torch": "2.12.0+ours", "cuda": "12.6", "machine": "x86_64", "capability": "7.0"}
    assert asked("torch_capability", **facts).compatibility is UNKNOWN
    assert asked("torch_capability", **facts, architectures="sm_80 sm_90 compute_90").compatibility is NO
    assert asked("torch_capability", **facts, architectures="sm_70").compatibility is YES


def test_facts_that_are_no_versions_make_an_answer_unknown() -> None:
    for facts in ({"cuda": "twelve", "driver": "550.1"}, {"cuda": "12.4", "driver": "nouveau"}):
        assert asked("cuda_driver", **facts).compatibility is UNKNOWN


# ---- device code ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("code", "device", "runs"),
    [
        # NVIDIA CUDA C++ Programming Guide, Binary Compatibility
        ("8.0", "8.6", True),
        ("8.6", "8.0", False),
        ("8.0", "9.0", False),
        ("8.0", "8.7", None),  # Tegra
        ("8.7", "8.7", True),
        # PTX Compatibility
        ("7.0+PTX", "12.0", True),
        ("sm_70 compute_70", "9.0", True),
        ("7.0+PTX", "6.1", False),
        # code with features of one architecture
        ("9.0a", "9.0", True),
        ("10.0a", "10.3", False),
        ("10.0f", "10.3", None),
        ("sm_100a", "10.0", True),
        ("7.5, 8.0, 9.0a, 12.0a [1]", "8.9", True),
    ],
)
def test_which_devices_run_which_code(code: str, device: str, runs: bool | None) -> None:
    assert read_device_code(code).allows(device) is runs


def test_texts_that_are_no_device_code_are_named() -> None:
    with pytest.raises(ValueError, match="'Hopper' is no device code"):
        read_device_code("8.0 Hopper")
    with pytest.raises(ValueError, match="not a compute capability"):
        read_device_code("8.0").allows("8")


# ---- what may be concluded -----------------------------------------------------------------------------------------


def test_a_window_is_inferred_between_releases_that_agree() -> None:
    pythons = small("2.0 >=3.8,<=3.11\n2.2 >=3.9,<=3.12")
    assert [says(pythons, "2.1", one) for one in ("3.8", "3.9", "3.11", "3.12")] == [UNKNOWN, YES, YES, UNKNOWN]
    assert [says(pythons, "2.1", one) for one in ("3.7", "3.13")] == [NO, NO]


def test_a_build_that_vanishes_and_returns_is_never_inferred() -> None:
    """A build for CUDA 12.9 in 2.8 and 2.11, and not in 2.9."""
    builds = small("2.8 12.6 | 12.8 | 12.9\n2.9 12.6 | 12.8 | 13.0\n2.11 12.6 | 12.8 | 12.9 | 13.0", Inference.LIST)
    assert says(builds, "2.9", "12.9") is NO
    assert says(builds.without([read_release("2.9")]), "2.9", "12.9") is UNKNOWN
    assert says(builds, "2.10", "12.9") is UNKNOWN
    assert [says(builds, "2.10", one) for one in ("12.6", "12.4", "13.2")] == [UNKNOWN, NO, NO]


def test_what_is_between_the_builds_of_both_neighbours_is_unknown() -> None:
    builds = small("2.7 11.8 | 12.6 | 12.8\n2.9 12.6 | 12.8 | 13.0", Inference.LIST)
    assert [says(builds, "2.8", one) for one in ("12.9", "12.6", "13.0", "13.2", "11.7")] == [
        *[UNKNOWN] * 3,
        *[NO] * 2,
    ]


def codes(text: str) -> Relation:
    """A relation about device code, written as `release code`."""
    rows = "".join(
        f'[[statement]]\nrelease = "{release}"\ncode = "{code}"\n'
        for release, code in (line.split(" ", 1) for line in text.strip().splitlines())
    )
    return read_relation("small", HEAD.replace("window", Inference.CODE) + rows)


def test_device_code_for_the_oldest_generation_comes_and_goes() -> None:
    """PyTorch 2.8 took code for Volta into its builds for CUDA 12.8 again."""
    builds = codes("2.7 7.5 8.0 9.0 10.0\n2.9 7.0 7.5 8.0 9.0 10.0")
    assert [says(builds, "2.8", one) for one in ("7.0", "7.5", "8.6", "9.0", "6.1", "12.0")] == [
        UNKNOWN,
        UNKNOWN,
        YES,
        YES,
        NO,
        NO,
    ]


def test_what_is_made_for_one_release_goes_with_no_other_one() -> None:
    """Each torchvision asks for exactly one torch."""
    rows = "2.0.0 0.15.1\n2.0.1 0.15.2\n2.2.0 0.17.0"
    partners = small(rows, Inference.LIST)
    pairs = replace(partners, pairs=read_releases("<0.17"))
    assert [says(pairs, "2.1.0", one) for one in ("0.15.2", "0.16.0", "0.17.0")] == [NO, UNKNOWN, UNKNOWN]
    assert [says(partners, "2.1.0", one) for one in ("0.15.2", "0.16.0", "0.17.0")] == [UNKNOWN] * 3
    assert says(pairs, "2.0.2", "0.15.2") is UNKNOWN  # of the same minor release
    assert says(pairs, "2.9.0", "0.15.2") is NO and says(pairs, "2.9.0", "0.24.0") is UNKNOWN


def test_device_code_with_ptx_may_run_on_every_later_gpu() -> None:
    builds = codes("2.7 8.0 9.0\n2.9 8.0 9.0+PTX")
    assert says(builds, "2.8", "12.0") is UNKNOWN


def test_a_release_that_leaves_a_question_open_does_not_hide_the_next_one() -> None:
    """The drivers that came with 11.0 and 11.2 are enough and not the least ones."""
    drivers = read_relation(
        "small",
        HEAD.replace("window", "threshold")
        + "".join(
            f'[[statement]]\nrelease = "{release}"\nallows = ">={driver}"\n' + extra
            for release, driver, extra in (
                ("10.2", 440, ""),
                ("11.0", 450, 'unclear = "*"\n'),
                ("11.2", 460, 'unclear = "*"\n'),
                ("12.0", 525, ""),
            )
        ),
    )
    assert [says(drivers, "11.1", one) for one in ("430", "445", "460")] == [NO, UNKNOWN, YES]


def test_a_threshold_is_inferred_from_both_sides() -> None:
    drivers = small("9.0 >=384.81\n10.0 >=410.48", Inference.THRESHOLD)
    assert [says(drivers, "9.2", one) for one in ("384.80", "396.37", "410.48")] == [NO, UNKNOWN, YES]


@pytest.mark.parametrize("rule", list(Inference))
def test_nothing_is_inferred_before_the_first_or_after_the_last_release(rule: Inference) -> None:
    relation = small("2.0 >=3.8,<=3.11\n2.2 >=3.9,<=3.12", rule)
    assert all(says(relation, release, value) is UNKNOWN for release in ("1.9", "2.3") for value in ("2.7", "3.10"))


def test_documents_that_contradict_each_other_make_the_answer_unknown() -> None:
    both = small("2.0 <=3.10\n2.0 <=3.11")
    assert [says(both, "2.0.1", one) for one in ("3.10", "3.11", "3.12")] == [YES, UNKNOWN, NO]


def test_the_more_precise_statement_counts_first() -> None:
    relation = small("2 >=3.8\n2.1 >=3.10")
    assert says(relation, "2.1.0", "3.9") is NO
    assert says(relation, "2.0.0", "3.9") is YES


def test_a_release_that_is_not_precise_gets_the_answer_of_all_its_parts() -> None:
    relation = small("2.0.1 0.15.2\n2.1.0 0.16.0\n2.1.1 0.16.1\n2.2.0 0.17.0")
    assert [says(relation, "2.1", one) for one in ("0.15.0", "0.16.0", "0.18.0")] == [NO, UNKNOWN, NO]


def test_parts_that_nobody_names_may_differ() -> None:
    """FBGEMM 0.4.1 added Python 3.11; the compatibility table has 0.4.0 and 0.5.0 only."""
    pythons = small("0.3.0 >=3.7,<=3.9\n0.4.0 >=3.8,<=3.10\n0.5.0 >=3.8,<=3.11")
    assert [says(pythons, "0.4", one) for one in ("3.7", "3.11", "3.12")] == [UNKNOWN, UNKNOWN, NO]
    assert says(pythons, "0.4", "3.9") is YES
    assert says(pythons, "0.4.1", "3.11") is UNKNOWN


RELATIONS = st.sampled_from(sorted(documents().relations))
NUMBERS = st.lists(st.integers(0, 700), min_size=1, max_size=3).map(lambda parts: ".".join(map(str, parts)))


@given(st.sampled_from(["9.0", "10.1", "10.2.89", "11.0", "11.4", "12", "12.4", "13.0"]), NUMBERS, NUMBERS)
def test_a_newer_driver_never_makes_a_compatible_release_incompatible(cuda: str, one: str, other: str) -> None:
    older, newer = sorted((one, other), key=lambda text: read_release(text).numbers)
    if asked("cuda_driver", cuda=cuda, driver=older).compatibility is YES:
        assert asked("cuda_driver", cuda=cuda, driver=newer).compatibility is not NO


@given(RELATIONS, st.integers(100, 999), NUMBERS)
def test_a_release_that_nobody_has_heard_of_is_unknown(relation: str, major: int, value: str) -> None:
    about = documents().relations[relation]
    found = answer(about, {about.subject: f"{major}.0", about.about: value})
    assert found.compatibility is UNKNOWN


CAPABILITIES = {"3.5", "5.0", "6.0", "7.0", "7.5", "8.6", "9.0", "10.3", "12.0"}


def turned_around(whole: Relation, left_out: Sequence[Release], near: Sequence[Release]) -> list[dict[str, str]]:
    """Questions about releases that were left out of which the answer is the opposite of what a document says.

    Asked are the values that statements about the releases `near` name.
    """
    left = whole.without(left_out)
    named = [statement.allows for statement in whole.statements if statement.release in near]
    bounds = {str(one.bound) for allows in named for bounds in getattr(allows, "ranges", ()) for one in bounds}
    asked = [
        {whole.subject: str(statement.release), whole.about: value, **statement.given}
        for statement in whole.statements
        if statement.release in left_out
        for value in bounds or CAPABILITIES
    ]
    return [facts for facts in asked if {answer(one, facts).compatibility for one in (whole, left)} == {YES, NO}]


@pytest.mark.parametrize("name", sorted(documents().relations))
def test_leaving_out_a_release_or_two_never_turns_an_answer_around(name: str) -> None:
    whole = documents().relations[name]
    releases = sorted({statement.release for statement in whole.statements})
    for place in range(len(releases)):
        for end in (place + 1, place + 2):
            assert not turned_around(whole, releases[place:end], releases[max(0, place - 1) : end + 1])


@settings(max_examples=15)
@given(RELATIONS, st.data())
def test_leaving_out_any_statements_never_turns_an_answer_around(name: str, data: st.DataObject) -> None:
    whole = documents().relations[name]
    releases = sorted({statement.release for statement in whole.statements})
    left_out = data.draw(st.lists(st.sampled_from(releases), min_size=1, unique=True))
    assert not turned_around(whole, left_out, left_out)


def test_an_answer_no_names_a_build_that_works() -> None:
    facts = {"torch": "2.5.1+cu121", "cuda": "12.1", "machine": "x86_64", "capability": "12.0"}
    assert "torch 2.7 (cuda 12.8, machine x86_64)" in asked("torch_capability", **facts).remedy
    facts |= {"torch": "2.8.0+cu128", "cuda": "12.8", "capability": "6.0"}
    assert "torch 2.8 (cuda 12.6, machine x86_64)" in asked("torch_capability", **facts).remedy


def test_an_answer_without_the_build_says_which_builds_documents_are_about() -> None:
    found = asked("torch_capability", torch="2.8.0", capability="6.0")
    assert found.compatibility is UNKNOWN and "documents are about cuda" in found.why and "x86_64" in found.why


@pytest.mark.parametrize(
    ("gpu", "capability"),
    [
        # developer.nvidia.com/cuda-gpus and developer.nvidia.com/cuda-legacy-gpus
        ("Tesla P100-PCIE-16GB", "6.0"),
        ("Tesla P40", "6.1"),
        ("NVIDIA GeForce GTX 1080 Ti", "6.1"),
        ("NVIDIA GeForce RTX 4080 SUPER", "8.9"),
        ("RTX5090", "12.0"),
        ("NVIDIA GeForce GTX TITAN X", "5.2"),
        ("NVIDIA RTX A4000", "8.6"),
        ("NVIDIA A100-SXM4-80GB MIG 1g.10gb", "8.0"),
        ("Tesla K80", "3.7"),
        ("AMD Instinct MI300X", ""),
        ("NVIDIA GeForce 40800", ""),
    ],
)
def test_compute_capabilities_of_gpus_by_name(gpu: str, capability: str) -> None:
    assert capability_of(gpu) == capability


@given(NUMBERS, NUMBERS)
def test_comparing_is_antisymmetric_for_equally_precise_numbers(one: str, other: str) -> None:
    a, b = read_release(one), read_release(other)
    if len(a.numbers) == len(b.numbers):
        order = (a.numbers > b.numbers) - (a.numbers < b.numbers)
        assert (compare(a, b), compare(b, a)) == (order, -order)


@given(NUMBERS)
def test_no_value_is_allowed_and_above_or_below_what_is_allowed(value: str) -> None:
    for text in ("11.8 | 12.4 | 12.6", ">=3.9,<=3.13", "<450", ">=450", ">3.9,<3.13", "*"):
        releases = read_releases(text)
        assert not (releases.allows(value) is True and (releases.above(value) or releases.below(value)))


# ---- data files ----------------------------------------------------------------------------------------------------


def test_every_statement_has_its_document_and_day() -> None:
    for relation in documents().relations.values():
        for statement in relation.statements:
            assert statement.source and statement.as_of >= "2026-01-01", relation.name


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("x = ", "bad: not TOML"),
        (HEAD + ROW.replace("release", "releases"), "bad: statement 1: releases: not a key"),
        (HEAD + ROW.replace("2.0", "two"), "bad: statement 1: release: 'two' is not a version number"),
        (HEAD + ROW.replace(">=3.8", "~=3.8"), "bad: statement 1: allows: .*is not a version number"),
        (HEAD + ROW + 'code = "8.0"\n', "bad: statement 1: allows: write either"),
        (HEAD + ROW.replace("allows", "code"), "bad: statement 1: code: '>=3.8' is no device code"),
        (HEAD + ROW + "unclear = 3\n", "bad: statement 1: unclear: missing or no text"),
        (HEAD + ROW + "given = { cuda = 12 }\n", "bad: statement 1: given: expected names with texts"),
        (HEAD, "bad: statement: expected at least one"),
        (HEAD + ROW + "colour = 1\n", "bad: statement 1: colour: not a key"),
        ("colour = 1\n" + HEAD + ROW, "bad: colour: not a key of a relation"),
        (HEAD.replace("window", "guess") + ROW, "bad: inference: expected one of threshold, window"),
        (HEAD.replace("fails", "burns") + ROW, "bad: consequence: expected one of fails"),
        (HEAD.replace('"a document"', "1") + ROW, "bad: source: missing or no text"),
        (HEAD.replace("2026-11-24", '"soon"') + ROW, "bad: as_of: missing or no day"),
        (HEAD.replace("{value}", "{values}") + ROW, "bad: question: names other values"),
        ('builds = "cpu"\n' + HEAD + ROW, "bad: builds: expected a list"),
    ],
)
def test_a_data_file_that_cannot_be_used_names_the_key(text: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        read_relation("bad", text)


def test_two_relations_cannot_have_one_name() -> None:
    relation = read_relation("one", HEAD + ROW)
    with pytest.raises(ValueError, match="one: there are two relations"):
        Knowledge([relation, relation])
