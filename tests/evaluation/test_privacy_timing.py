"""The games about times: how many launches each has, and that none of it depends on what was seen before."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from pathlib import Path

import pytest

from evaluation.privacy.exchange_site import ExchangeSite, exchange_site, release_for_node
from evaluation.privacy.query_timing import QUICK_ARCHETYPES, Played
from evaluation.privacy.synthetic_release import Universe
from evaluation.privacy.timing_attack import Launch, Seen
from evaluation.privacy.timing_games import CONTROL, GAMES, QUICK, ROUNDS, WITHOUT_SODIUM, Plan, Round
from evaluation.privacy.timing_sites import LARGE, REFUSING, SMALL, Sites
from pharoah.sidecar.provider_connection import ProviderConnection
from pharoah_protocol.rpc import Stub
from pharoah_protocol.v1 import EvaluatePseudonymRequest, GetPseudonymKeyRequest
from pharoah_protocol.voprf import protocol
from pharoah_serving.quotas import Limits


@pytest.fixture
def where(tmp_path: Path) -> Sites:
    """Addresses at which nobody is."""
    at = {name: ExchangeSite(tmp_path, "127.0.0.1:1") for name in (LARGE, SMALL, REFUSING)}
    return Sites(at, {}, {name: {"auditor_endpoint": "127.0.0.1:1"} for name in (LARGE, SMALL)})


def rounds_of(where: Sites, quick: bool) -> list[Round]:
    return list(Plan(Universe(1, QUICK_ARCHETYPES), where, random.Random(1), quick).rounds())


@pytest.mark.parametrize("quick", [False, True])
def test_every_game_has_all_launches_in_every_round(where: Sites, quick: bool) -> None:
    """A game that ends when its bound holds would have fewer rounds than one that does not hold yet."""
    chosen = [game for game in GAMES if not quick or game.name in QUICK]
    slow = [game for game in chosen if game.name in WITHOUT_SODIUM and not quick]
    rounds = rounds_of(where, quick)
    for sodium, games in ((True, chosen), (False, slow)):
        made = [Counter(one.kind for one in each.launches) for each in rounds if each.sodium is sodium]
        assert len(made) == (ROUNDS if games else 0)
        for counts in made:
            assert set(counts) - set(CONTROL.kinds) == {kind for game in games for kind in game.kinds}
            for game in games:
                sides = {side: sum(counts[kind] for kind in side) for side in (game.first, game.second)}
                assert min(sides.values()) >= 150, game.name
        assert all(counts == made[1] for counts in made[1:])


def test_only_the_first_round_has_the_control(where: Sites) -> None:
    rounds = rounds_of(where, quick=False)
    played = [{one.kind for one in each.launches} >= set(CONTROL.kinds) for each in rounds]
    assert played == [True] + [False] * (len(rounds) - 1)


def test_no_launch_has_the_number_of_another(where: Sites) -> None:
    """A provider's log says by the number which launch a call belongs to."""
    numbers = [one.order.launch for each in rounds_of(where, quick=False) for one in each.launches]
    assert len(set(numbers)) == len(numbers)


def test_a_result_has_the_launches_of_all_rounds() -> None:
    def launch(kind: str, gap: float) -> Launch:
        return Launch(kind, "", (Seen("GetOffer", 0.0, 0.0, 1), Seen("Evaluate", gap, gap, 1)))

    game = GAMES[3]
    kinds = [*game.kinds, *CONTROL.kinds]
    first = {kind: [launch(kind, 0.01 * (number + 1)) for number in range(20)] for kind in kinds}
    played = Played([first, {kind: first[kind] for kind in game.kinds}, {kind: first[kind] for kind in game.kinds}])
    assert played.result(game, seed=1).launches == 3 * 2 * 20
    assert played.result(CONTROL, seed=1).launches == 2 * 20


def test_every_launch_of_a_game_gets_its_pseudonym(tmp_path: Path) -> None:
    """An organisation gets 200 a day. Launches of the shared games would be refused after them."""
    program = ("-m", "evaluation.privacy.watching_provider", str(tmp_path / "seen.jsonl"), SMALL)

    async def evaluated(site: ExchangeSite) -> int:
        provider = ProviderConnection(site.settings())
        stub = Stub(provider.channel, "Pseudonyms")
        period = (await provider.call(stub.GetPseudonymKey, GetPseudonymKeyRequest())).period
        request = EvaluatePseudonymRequest(period=period, blinded=protocol.blind(b"job")[1])
        for number in range(count := Limits().organisation_pseudonyms + 1):
            assert (await provider.call(stub.EvaluatePseudonym, request)).evaluated, number
        await provider.channel.close(None)
        return count

    with exchange_site(tmp_path, release_for_node(Universe(1, 2)), program) as site:
        assert asyncio.run(evaluated(site)) == 201
