"""RFC 6962 trees: published roots and proofs, and laws over all sizes."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pharoah_protocol.log.merkle import (
    Frontier,
    TreeError,
    consistency_proof,
    leaf_hash,
    root,
    verify_consistency,
)

# Leaves, roots and proofs of the reference implementation (certificate-transparency, merkle tree tests).
LEAVES = [bytes.fromhex(h) for h in ("", "00", "10", "2021", "3031", "40414243", "5051525354555657",
                                     "606162636465666768696a6b6c6d6e6f")]  # fmt: skip
ROOTS = {
    0: "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855",
    1: "6e340b9cffb37a989ca544e6bb780a2c78901d3fb33738768511a30617afa01d",
    2: "fac54203e7cc696cf0dfcb42c92a1d9dbaf70ad9e621f4bd8d98662f00e3c125",
    3: "aeb6bcfe274b70a14fb067a5e5578264db0fa9b51af5e0ba159158f329e06e77",
    4: "d37ee418976dd95753c1c73862b9398fa2a2cf9b4ff0fdfe8b30cd95209614b7",
    5: "4e3bbb1f7b478dcfe71fb631631519a3bca12c9aefca1612bfce4c13a86264d4",
    6: "76e67dadbcdf1e10e1b74ddc608abd2f98dfb16fbce75277b5232a127f2087ef",
    7: "ddb89be403809e325750d3d263cd78929c2942b7942a34b77e122c9594a74c8c",
    8: "5dc9da79a70659a9ad559cb701ded9a2ab9d823aad2f4960cfe370eff4604328",
}
PROOFS = {
    (1, 1): [],
    (1, 8): [
        "96a296d224f285c67bee93c30f8a309157f0daa35dc5b87e410b78630a09cfc7",
        "5f083f0a1a33ca076a95279832580db3e0ef4584bdff1f54c8a360f50de3031e",
        "6b47aaf29ee3c2af9af889bc1fb9254dabd31177f16232dd6aab035ca39bf6e4",
    ],
    (6, 8): [
        "0ebc5d3437fbe2db158b9f126a1d118e308181031d0a949f8dededebc558ef6a",
        "ca854ea128ed050b41b35ffc1b87b8eb2bde461e9e3b5596ece6b9d5975a0ae0",
        "d37ee418976dd95753c1c73862b9398fa2a2cf9b4ff0fdfe8b30cd95209614b7",
    ],
    (2, 5): [
        "5f083f0a1a33ca076a95279832580db3e0ef4584bdff1f54c8a360f50de3031e",
        "bc1a0643b12e4d2d7c77918f44e0f4f79a838b6cf9ec5b5c283e1f4d88599e6b",
    ],
}
leaves = st.lists(st.binary(max_size=8), max_size=40)


@pytest.mark.parametrize(("size", "expected"), ROOTS.items())
def test_published_roots(size: int, expected: str) -> None:
    assert root(LEAVES[:size]).hex() == Frontier().add(*LEAVES[:size]).root.hex() == expected


@pytest.mark.parametrize(("sizes", "expected"), PROOFS.items())
def test_published_consistency_proofs(sizes: tuple[int, int], expected: list[str]) -> None:
    old, new = sizes
    proof = consistency_proof([leaf_hash(leaf) for leaf in LEAVES[:new]], old)
    assert [part.hex() for part in proof] == expected


@given(leaves, st.data())
def test_a_proof_holds_for_its_own_trees_only(contents: list[bytes], data: st.DataObject) -> None:
    old = data.draw(st.integers(0, len(contents)))
    hashes = [leaf_hash(leaf) for leaf in contents]
    proof = consistency_proof(hashes, old)
    verify_consistency(old, root(contents[:old]), len(contents), root(contents), proof)
    if 0 < old < len(contents):
        for wrong in (bytes(32), root([*contents, b"more"])):
            with pytest.raises(TreeError):
                verify_consistency(old, wrong, len(contents), root(contents), proof)
            with pytest.raises(TreeError):
                verify_consistency(old, root(contents[:old]), len(contents), wrong, proof)
        for changed in (proof[:-1], [*proof, bytes(32)], [bytes(32), *proof[1:]]):
            with pytest.raises(TreeError):
                verify_consistency(old, root(contents[:old]), len(contents), root(contents), changed)


@given(leaves, leaves)
def test_a_frontier_grows_like_the_whole_tree(first: list[bytes], more: list[bytes]) -> None:
    frontier = Frontier().add(*first)
    assert frontier.add(*more).root == root(first + more)
    assert frontier.add(*more) == Frontier().add(*first, *more)


def test_a_frontier_of_another_size_is_refused() -> None:
    with pytest.raises(TreeError, match="subtrees"):
        Frontier(3, (bytes(32),))
    with pytest.raises(TreeError, match="leaves"):
        consistency_proof([bytes(32)], 2)
