"""The order of versions, compared with `packaging`, which has PEP 440 from its authors."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from packaging.version import Version

from pharoah_learning.version_order import public_version, version_key

VERSIONS = st.from_regex(r"\A([1-2]!)?[0-9]{1,2}(\.[0-9]{1,2}){0,3}(a|b|rc)?[0-9]?\Z").filter(
    lambda text: text[-1].isdigit()
)
ENDINGS = st.sampled_from(["", ".post1", ".post2", ".dev0", ".dev3", ".post1.dev2", "-1", "+cpu"])


@given(st.lists(st.tuples(VERSIONS, ENDINGS), min_size=2, max_size=2))
def test_versions_are_ordered_as_pep_440_orders_their_public_part(pairs: list[tuple[str, str]]) -> None:
    left, right = ("".join(pair) for pair in pairs)
    theirs = Version(Version(left).public), Version(Version(right).public)
    assert (version_key(left) < version_key(right)) == (theirs[0] < theirs[1])
    assert (version_key(left) == version_key(right)) == (theirs[0] == theirs[1])


def test_versions_of_real_libraries_are_ordered() -> None:
    ordered = ["nightly", "1.13.1+cu117", "2.0.0.dev20230101", "2.0.0a0", "2.0.0rc1", "2.0.0", "2.9.1", "2.10.0"]
    assert sorted(sorted(ordered), key=version_key) == ordered
    assert public_version("2.13.0+cpu") == "2.13.0"


def test_a_text_that_is_no_version_comes_first_and_raises_nothing() -> None:
    assert sorted(["1.0", "", "main", "1.0-dirty-3"], key=version_key)[-1] == "1.0"
