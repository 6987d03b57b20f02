"""The arithmetic of the benchmark and its budgets: no time is measured here, ``make bench`` does that."""

import importlib
import json
import subprocess
import sys
import time

import pytest
import torch

import bench
from measuring import forwards, processes
from measuring.candidates import KINDS, Kind, growing
from measuring.figures import Figure, Timed, alternate, peak
from scan_tree import generate

TINY = growing("Llama, 8 layers", layers=1, shape=(1, 8))


def figure(name="trace", value=1.4, work="Llama", limit=1.5, **others):
    unit = others.pop("unit", "x bare forward")
    return Figure("core", work, name, value, unit, limit=limit, reason="nothing is copied", **others)


class Clock:
    """A timer whose candidates say how long they took."""

    def __init__(self):
        self.ran = []

    def __call__(self, run):
        name, seconds = run()
        self.ran.append(name)
        return seconds


def test_ratio_is_a_run_over_the_floors_run_just_before_it():
    timed = Timed(seconds=[2.0, 9.0, 0.1], base=[1.0, 3.0, 1.0])

    assert (timed.ratio, timed.note) == (2.0, "2000.0 ms")  # the medians


def test_every_candidate_runs_in_every_round_after_a_run_of_the_floor():
    clock, settled = Clock(), []

    timed = alternate(
        lambda: ("floor", 1.0),
        {name: lambda name=name: (name, 0.2) for name in "abc"},
        4,
        settle=lambda: settled.append(len(clock.ran)),
        timer=clock,
    )

    assert clock.ran[::2] == ["floor"] * 12
    assert all(sorted(clock.ran[start + 1 : start + 6 : 2]) == ["a", "b", "c"] for start in range(0, 24, 6))
    assert {name: times.ratio for name, times in timed.items()} == dict.fromkeys("abc", 0.2)
    assert settled == list(range(0, 24, 2))


def test_order_changes_from_round_to_round():
    clock = Clock()

    alternate(
        lambda: ("floor", 1.0),
        {name: lambda name=name: (name, 1.0) for name in "abcd"},
        6,
        timer=clock,
    )

    orders = {tuple(clock.ran[start + 1 : start + 8 : 2]) for start in range(0, 48, 8)}
    assert len(orders) > 2


def test_budget_that_is_exceeded_is_named_with_its_reason():
    exceeded = figure(value=1.61)

    assert exceeded.is_exceeded
    assert str(exceeded) == "core: trace (Llama) is 1.61 x bare forward, 1.50 allowed: nothing is copied"


@pytest.mark.parametrize("value", [1.5, 0.9, None])
def test_budget_holds_up_to_its_limit(value):
    assert not figure(value=value).is_exceeded


def measured(*kinds, work=TINY):
    return {each.name: each for each in forwards.of_work(work, kinds, rounds=3)}


def waits(name, seconds, *budget):
    return Kind("core", name, lambda work, folder: lambda: time.sleep(seconds), *budget)


def test_floor_that_is_higher_than_the_limit_raises_it():
    found = measured(waits("trace", 0.01, 0.1, "", "keeping"), waits("keeping", 0.02))

    assert found["trace"].limit == pytest.approx(1.2 * found["keeping"].value)


def test_floor_that_was_not_measured_raises_nothing():
    assert measured(waits("trace", 0.01, 0.1, "", "keeping"))["trace"].limit == 0.1


def test_budget_judges_its_own_work_only():
    other = growing("Llama, 32 layers", layers=1, shape=(1, 8))

    assert measured(waits("trace", 0.01, 0.1), work=other)["trace"].limit is None


def test_every_budget_has_a_reason_and_floors_that_exist():
    names = {(kind.section, kind.name) for kind in KINDS}

    assert len(names) == len(KINDS)
    assert all(kind.reason for kind in KINDS if kind.limit is not None)
    assert {(kind.section, kind.floor) for kind in KINDS if kind.floor} <= names


def test_regex_script_sees_skips_by_decorators(tmp_path):
    generate(tmp_path, 8)

    subprocess.run([sys.executable, processes.SCRIPT], cwd=tmp_path, check=True)

    report = json.loads((tmp_path / "all_tests_scan_result.json").read_text())
    assert {len(test["models_ran"]) + len(test["models_skipped"]) for test in report.values()} == {8}
    assert any("It is tested in individual model tests" in str(test["reasons_skipped"]) for test in report.values())


def test_table_has_a_column_for_each_model(capsys):
    figures = [
        figure(note="12.3 ms"),
        figure(value=1.2, work="BERT", limit=None),
        figure("torchlens trace", None, note="not installed"),
        figure("compare", 2.0),
    ]

    bench.show(figures)

    rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in capsys.readouterr().out.splitlines()[1:]]
    assert rows[0] == ["core", "Llama", "BERT", "unit"]
    assert rows[2:] == [
        ["trace", "1.40 12.3 ms **<= 1.50**", "1.20", "x bare forward"],
        ["torchlens trace", "not installed", "", "x bare forward"],
        ["compare", "2.00 **EXCEEDS 1.50**", "", "x bare forward"],
    ]


@pytest.fixture
def rounds_seen(monkeypatch):
    """Let the benchmark have one section that exceeds its budget in all but its third run, and see its rounds."""
    seen = []

    def measure(rounds):
        seen.append(rounds)
        return [figure(value=1.4 if len(seen) == 3 else 2.0), figure("bare forward", 1.0, limit=None)]

    monkeypatch.setattr(bench, "SECTIONS", {"core": measure})
    monkeypatch.setattr(bench, "prepare", lambda: None)
    return seen


def test_check_measures_again_with_more_rounds_and_then_exits_with_1(rounds_seen, capsys):
    status = bench.main(["--check"])

    assert status == 1
    first, second = rounds_seen
    assert second == 3 * first
    assert capsys.readouterr().out.endswith(
        "\n0 of 1 budgets hold.\n"
        "Over budget: core: trace (Llama) is 2.00 x bare forward, 1.50 allowed: nothing is copied.\n"
    )


def test_what_holds_when_it_is_measured_again_is_no_failure(rounds_seen, capsys):
    rounds_seen.append(None)

    assert bench.main(["--check"]) == 0
    assert "Over budget at first, and measured again:" in capsys.readouterr().out


def test_without_check_an_exceeded_budget_is_told_and_the_status_is_0(rounds_seen, capsys):
    assert bench.main([]) == 0
    assert len(rounds_seen) == 1
    assert "Over budget: core: trace (Llama)" in capsys.readouterr().out


def test_unknown_section_is_refused_with_those_that_exist(capsys):
    with pytest.raises(SystemExit):
        bench.main(["--only", "core,goldenz"])

    assert "unknown: goldenz; known: core, goldens, " in capsys.readouterr().err


def test_peer_that_is_not_installed_or_fails_is_a_note():
    missing = Kind("core", "missing", lambda work, folder: importlib.import_module("no_such_package"), is_ours=False)
    failing = Kind("core", "failing", lambda work, folder: fail, is_ours=False)

    found = measured(missing, failing)

    assert {name: (each.value, each.note) for name, each in found.items()} == {
        "missing": (None, "not installed"),
        "failing": (None, "raises NotImplementedError"),
    }


def fail():
    raise NotImplementedError


def test_failure_of_our_own_is_not_hidden():
    with pytest.raises(NotImplementedError):
        measured(Kind("core", "ours", lambda work, folder: fail))


def test_peak_is_what_is_alive_at_once(capfd):
    def run():
        for _ in range(3):
            torch.ones(1000).add(1)

    assert 8000 <= peak(run) < 9000
    assert capfd.readouterr().err == ""
