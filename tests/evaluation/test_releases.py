"""The parts of `evaluation releases` that can go wrong without a release of torch."""

from __future__ import annotations

from pathlib import Path

import pytest

from evaluation.releases import plan
from evaluation.releases.jobs import Script, difference, ended, error_line, scripts
from evaluation.releases.known_changes import known_changes, read_changes, read_ends, read_known_ends
from evaluation.releases.measure import CONTROLS, Measuring, Mode
from evaluation.releases.plan import Release, few, listed_releases, newest_patches, planned
from evaluation.releases.store import Key, Results, digest_of
from evaluation.releases.tables import Row, _bad_end, _compare_runs
from evaluation.releases.two_ranks import difference_by_rank
from tests.harness.until import wait_until

INDEX = """torch (2.15.0)
Available versions: 2.15.0, 2.14.1, 2.14.0, 2.13.0+cpu, 2.13.0, 2.10.0, 2.9.1, 2.9.0, 2.5.1, 2.4.1, 2.3.1, 2.2.2, 2.1.2
  INSTALLED: 2.13.0+cpu
"""
KEY = Key("2.4.1", "3.11", "gpt", "bare", "abc")
HANGS = "hangs"
"""The output of a run that was ended because it took too long."""


@pytest.fixture(autouse=True)
def index(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plan, "_index", lambda: INDEX)
    monkeypatch.setattr(plan, "floor", lambda: (2, 4))


def test_the_newest_patch_of_each_minor_is_chosen_by_number_and_not_by_letter() -> None:
    newest = newest_patches(listed_releases(INDEX))
    assert list(newest)[:3] == ["2.1", "2.2", "2.3"]
    assert list(newest.values())[3:] == ["2.4.1", "2.5.1", "2.9.1", "2.10.0", "2.13.0", "2.14.1", "2.15.0"]


def test_an_index_without_releases_is_an_error() -> None:
    with pytest.raises(SystemExit, match="--torch"):
        listed_releases("ERROR: No matching distribution found for torch")


def test_by_default_every_promised_minor_is_measured_and_the_two_below_are_the_unsupported_ones() -> None:
    found = planned(None, None, quick=False)
    first = [one.torch for one in found.releases if one.python == "3.11"]
    assert first == ["2.4.1", "2.5.1", "2.9.1", "2.10.0", "2.13.0", "2.14.1", "2.15.0"]
    assert {one.python for one in found.releases} == {"3.11", "3.12", "3.13"}
    assert Release("2.4.1", "3.13") not in found.releases, "it has no wheel"
    assert [one.torch for one in found.unsupported] == ["2.2.2", "2.3.1"]
    assert found.reference.torch == "2.13.0"


def test_releases_and_pythons_are_chosen_by_name() -> None:
    found = planned("2.3.1,2.5.1", "3.12,3.13", quick=False)
    assert [(one.torch, one.python) for one in found.releases] == [("2.5.1", "3.12"), ("2.5.1", "3.13")]
    assert {one.torch for one in found.unsupported} == {"2.3.1"}
    assert "2.4.1" not in {one.torch for one in planned(None, "3.13", quick=False).releases}
    with pytest.raises(SystemExit, match="newest"):
        planned("newest", None, quick=False)


def test_a_quick_call_takes_the_oldest_the_middle_and_the_newest() -> None:
    assert [one.torch for one in few(planned(None, None, quick=False).releases)] == ["2.4.1", "2.10.0", "2.15.0"]
    assert len(planned(None, None, quick=True).unsupported) == 1


def test_results_are_found_again_after_a_kill_in_the_middle_of_a_line(tmp_path: Path) -> None:
    path = tmp_path / "results.jsonl"
    Results(path).add(KEY, {"code": 0})
    with path.open("a") as file:
        file.write('{"key": {"torch": "2.4')
    later = Results(path)
    assert later.get(KEY) == {"code": 0}
    other = Key("2.4.1", "3.11", "gpt", "bare", "changed since")
    assert later.get(other) is None
    later.add(other, {"code": 1})
    assert Results(path).get(other) == {"code": 1} and Results(path).get(KEY) == {"code": 0}


def test_a_result_that_took_too_long_is_not_kept_for_another_call(tmp_path: Path) -> None:
    results = Results(tmp_path / "results.jsonl")
    results.add(KEY, {"code": -9}, keep=False)
    assert results.get(KEY) and Results(tmp_path / "results.jsonl").get(KEY) is None


def test_a_digest_changes_with_every_file_and_every_name(tmp_path: Path) -> None:
    one, two = tmp_path / "one.py", tmp_path / "two.py"
    one.write_text("a")
    two.write_text("b")
    before = digest_of([one, two])
    assert digest_of([two, one]) == before
    two.write_text("c")
    assert digest_of([one, two]) != before != digest_of([one])


def test_a_run_differs_by_code_by_output_and_by_files() -> None:
    alone = {"code": 0, "output": "1.5", "files": {"model.pt": "aa"}, "errors": ""}
    assert not difference(alone, {**alone, "errors": "pharoah: words of its own"})
    for field, value in {"code": 1, "output": "1.6", "files": {}}.items():
        assert difference(alone, {**alone, field: value}).startswith(field)


def test_outputs_of_ranks_are_compared_whatever_their_folder_is_called() -> None:
    def ran(folder: str, second: str) -> dict[str, object]:
        files = {f"outputs/{folder}/attempt_0/0/stdout.log": "aa", f"outputs/{folder}/attempt_0/1/stdout.log": second}
        return {"code": 0, "output": "", "files": {**files, "model.pt": "cc"}, "errors": ""}

    assert not difference_by_rank(ran("x_1", "bb"), ran("y_2", "bb"))
    assert difference_by_rank(ran("x_1", "bb"), ran("y_2", "dd")).startswith("files")


def test_the_error_of_a_rank_is_shown_and_not_that_of_its_launcher() -> None:
    said = "[rank0]: RuntimeError: no driver\n[rank0]: assertions off\n" + (
        "torch.distributed.elastic.multiprocessing.errors.ChildFailedError:\n  error_file: <N/A>\n=====\n"
    )
    assert error_line(said) == "[rank0]: RuntimeError: no driver"
    assert error_line(f"{said}longer than 400 s") == "longer than 400 s"
    assert error_line("Killed\n") == "Killed" and error_line("") == ""


def test_a_command_that_takes_too_long_is_ended_with_its_children(tmp_path: Path) -> None:
    done = ended(["sh", "-c", "sleep 1000 & echo $!; wait"], tmp_path, {}, 0.5)
    assert done.late and "longer than 0.5 s" in done.errors
    stat = Path("/proc", done.output.strip(), "stat")

    def has_ended() -> bool:
        try:
            return stat.read_text().rpartition(")")[2].split()[0] == "Z"
        except OSError:
            return True

    wait_until(has_ended, "the killed child to end", seconds=30.0)


def test_known_changes_cover_the_releases_that_they_name_and_no_others() -> None:
    text = '[[change]]\nscripts = ["gpt"]\nuntil = "2.5"\nreason = "x"\n'
    [change] = read_changes(text, ["gpt", "mlp"])
    assert [change.covers("gpt", minor) for minor in ("2.4", "2.5", "2.10")] == [True, True, False]
    assert not change.covers("mlp", "2.4")
    assert known_changes([script.name for script in scripts(quick=False)]) is not None


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ('scripts = ["gpt"]\nuntil = "2.5"', "reason"),
        ('scripts = ["gpt"]\nreason = "x"', "one of until and since"),
        ('scripts = ["gtp"]\nsince = "2.5"\nreason = "x"', "there is no gtp"),
        ('scripts = ["gpt"]\nsince = "new"\nreason = "x"', "'new' is not a release"),
        ('scripts = ["gpt"]\nbefore = "2.5"\nreason = "x"', "before: unknown field"),
    ],
)
def test_a_known_change_that_says_too_little_is_refused(text: str, named: str) -> None:
    with pytest.raises(SystemExit, match=named):
        read_changes(f"[[change]]\n{text}\n", ["gpt"])


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ('end = "hangs"\nuntil = "2.5"', "reason"),
        ('end = "fails"\nsince = "2.5"\nreason = "x"', "needs one of hangs, aborts"),
        ('end = "hangs"\nsince = "2.5"\nreason = "x"\nscripts = ["gpt"]', "scripts: unknown field"),
    ],
)
def test_a_known_end_that_says_too_little_is_refused(text: str, named: str) -> None:
    with pytest.raises(SystemExit, match=named):
        read_ends(f"[[end]]\n{text}\n")


@pytest.mark.parametrize(
    ("folder", "torch", "output", "errors", "known"),
    [
        ("two_ranks", "2.7.1", "a", HANGS, True),
        ("two_ranks", "2.7.1", "half", HANGS, False),
        ("two_ranks", "2.8.0", "a", HANGS, False),
        ("one", "2.7.1", "a", HANGS, False),
        ("two_ranks", "2.8.0", "a", "Signal 6 (SIGABRT) received", True),
        ("two_ranks", "2.8.0", "half", "Signal 6 (SIGABRT) received", False),
        ("two_ranks", "2.8.0", "a", "Signal 11 (SIGSEGV) received", False),
    ],
)
def test_a_bad_end_is_torchs_own_only_if_it_is_known_and_all_work_is_done(
    tmp_path: Path, folder: str, torch: str, output: str, errors: str, known: bool
) -> None:
    script = Script(tmp_path / folder / "ours.py")
    alone = {"code": 0, "output": "a", "files": {}, "errors": "", "late": False}
    run = {"code": 1, "output": output, "files": {}, "errors": errors, "late": errors == HANGS}
    assert (_bad_end(Release(torch, "3.11"), script, run, [alone]) in read_known_ends()) == known


def test_there_are_enough_scripts_and_each_has_a_name_of_its_own() -> None:
    names = [script.name for script in scripts(quick=False)]
    assert len(names) == len(set(names)) >= 30
    assert {script.ranks for script in scripts(quick=False)} == {1, 2}


@pytest.mark.parametrize(
    ("bare", "under", "identical", "excluded"),
    [
        (["a"], "a", "1 of 1", False),
        (["a", "b"], "b", "1 of 1", False),
        (["a", "b", "a"], "c", "0 of 1", False),
        (["a", "b", "c"], "d", "-", True),
        (["a", "b", "a"], HANGS, "0 of 1", False),
        (["a", HANGS], HANGS, "-", True),
        (["a", "a", HANGS], "b", "0 of 1", False),
    ],
)
def test_a_run_is_identical_where_the_script_alone_does_the_same_once(
    tmp_path: Path, bare: list[str], under: str, identical: str, excluded: bool
) -> None:
    results = Results(tmp_path / "results.jsonl")
    script, release = Script(tmp_path / "one" / "ours.py"), Release("2.4.1", "3.11")
    script.path.parent.mkdir()
    script.path.write_text("")
    measuring = Measuring(results, [script])
    seen = dict(zip((Mode.BARE, *CONTROLS), bare, strict=False)) | {Mode.UNDER_PHAROAH: under}
    for mode, text in seen.items():
        result = {"code": 0, "output": text, "files": {}, "errors": "", "steps": 1, "late": text == HANGS}
        results.add(measuring._key(release, "ours", mode), result)
    row = Row(release)
    _compare_runs(row, measuring, script)
    assert (str(row.identical), bool(row.excluded)) == (identical, excluded)
