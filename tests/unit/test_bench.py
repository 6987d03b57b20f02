"""The arithmetic of the benchmark and its budgets: no time is measured here, ``make bench`` does that."""

import importlib
import json
import subprocess
import sys

import pytest
import torch

import bench
from measuring import allocations, forwards, scanner
from measuring.alternate import LEAST, Timed, alternate
from measuring.budgets import BUDGETS, Budget, judge
from measuring.figures import OF_BARE, Figure, Settings, of_rounds
from measuring.report import render
from measuring.work import WORKS, Kind
from scan_tree import generate

TRACE = Budget("core", "Llama", "trace", 1.5, OF_BARE, "nothing is copied")


def figure(name="trace", value=1.4, work="Llama", unit=OF_BARE, **others):
    return Figure("core", work, name, value, unit, **others)


class Clock:
    """A timer whose candidates say how long they took."""

    def __init__(self):
        self.ran = []

    def __call__(self, run):
        name, seconds = run()
        self.ran.append(name)
        return seconds


def test_a_ratio_is_a_run_over_the_run_of_the_floor_just_before_it():
    timed = Timed(seconds=[2.0, 9.0], base=[1.0, 3.0])

    assert timed.ratios == [2.0, 3.0]


def test_a_figure_of_rounds_is_their_median():
    found = of_rounds("core", "Llama", "trace", [1.0, 9.0, 2.0], OF_BARE, seconds=[0.1, 0.2, 0.3])

    assert (found.value, found.low, found.high, found.milliseconds, found.rounds) == (2.0, 1.5, 5.5, 200.0, 3)


def test_every_candidate_runs_in_every_round_after_a_run_of_the_floor():
    clock, settled = Clock(), []

    timed = alternate(
        lambda: ("floor", 1.0),
        {name: lambda name=name: (name, 0.2) for name in "abc"},
        rounds=4,
        settle=lambda: settled.append(len(clock.ran)),
        timer=clock,
    )

    assert clock.ran[::2] == ["floor"] * 12
    assert all(sorted(clock.ran[start + 1 : start + 6 : 2]) == ["a", "b", "c"] for start in range(0, 24, 6))
    assert {name: times.ratios for name, times in timed.items()} == dict.fromkeys("abc", [0.2] * 4)
    assert settled == [0] * 3 + list(range(0, 24, 2))


def test_the_order_changes_from_round_to_round():
    clock = Clock()

    alternate(
        lambda: ("floor", 1.0),
        {name: lambda name=name: (name, 1.0) for name in "abcd"},
        rounds=6,
        timer=clock,
    )

    orders = {tuple(clock.ran[start + 1 : start + 8 : 2]) for start in range(0, 48, 8)}
    assert len(orders) > 2


def test_a_slow_candidate_stops_when_patience_ends():
    clock = Clock()

    timed = alternate(
        lambda: ("floor", 1.0),
        {"slow": lambda: ("slow", 5.0), "fast": lambda: ("fast", 0.1)},
        rounds=9,
        timer=clock,
        patience=6.0,
    )

    assert len(timed["slow"].seconds) == LEAST
    assert len(timed["fast"].seconds) == 9


def test_a_budget_that_is_exceeded_is_named_with_its_reason():
    (verdict,) = judge([figure(value=1.61)], [TRACE])

    assert not verdict.ok
    assert str(verdict) == "core: trace (Llama) is 1.61 x bare forward, 1.50 allowed: nothing is copied"


@pytest.mark.parametrize("value", [1.5, 0.9])
def test_a_budget_holds_up_to_its_limit(value):
    (verdict,) = judge([figure(value=value)], [TRACE])

    assert verdict.ok


def test_a_floor_that_is_higher_than_the_limit_raises_it():
    budget = Budget("core", "Llama", "trace", 1.5, OF_BARE, "", floor=("bare forward", "save_file"))
    figures = [figure(value=2.3), figure("bare forward", 1.0), figure("save_file", 1.0)]

    (verdict,) = judge(figures, [budget])

    assert verdict.limit == pytest.approx(2.4)
    assert verdict.ok


def test_a_floor_that_was_not_measured_raises_nothing():
    budget = Budget("core", "Llama", "trace", 1.5, OF_BARE, "", floor=("bare forward", "save_file"))

    (verdict,) = judge([figure(value=2.3), figure("bare forward", 1.0), figure("save_file", None)], [budget])

    assert verdict.limit == 1.5


@pytest.mark.parametrize(
    "other", [figure(value=None, note="not installed"), figure(work="BERT"), figure(unit="ms more"), figure("compare")]
)
def test_a_budget_judges_its_own_figure_only(other):
    assert list(judge([other], [TRACE])) == []


def test_every_budget_has_a_reason_and_a_name_of_its_own():
    keys = [(budget.section, budget.work, budget.name) for budget in BUDGETS]

    assert len(set(keys)) == len(keys)
    assert all(budget.reason for budget in BUDGETS)


def test_without_a_copy_of_the_regex_script_one_of_our_own_is_measured(tmp_path):
    ours = scanner.script(Settings())

    assert ours.name == "regex_scan.py"
    assert scanner.script(Settings(tree=tmp_path)) == ours
    (tmp_path / "utils").mkdir()
    (tmp_path / "utils" / "scan_skipped_tests.py").touch()
    assert scanner.script(Settings(tree=tmp_path)) == tmp_path / "utils" / "scan_skipped_tests.py"


def test_the_regex_script_sees_skips_by_decorators(tmp_path):
    generate(tmp_path, 8)

    subprocess.run([sys.executable, scanner.script(Settings())], cwd=tmp_path, check=True)

    report = json.loads((tmp_path / "all_tests_scan_result.json").read_text())
    assert {len(test["models_ran"]) + len(test["models_skipped"]) for test in report.values()} == {8}
    assert any("It is tested in individual model tests" in str(test["reasons_skipped"]) for test in report.values())


def test_a_table_has_a_column_for_each_model():
    figures = [
        figure(low=1.3, high=1.5, milliseconds=12.34),
        figure(value=1.2, work="BERT"),
        figure("torchlens trace", None, note="not installed"),
    ]

    lines = list(render(figures, list(judge(figures, [TRACE]))))

    assert lines == [
        "",
        "## core",
        "",
        "|                 | Llama                                   | BERT | unit           |",
        "|-----------------|-----------------------------------------|------|----------------|",
        "| trace           | 1.40 (1.30 to 1.50) 12.3 ms **<= 1.50** | 1.20 | x bare forward |",
        "| torchlens trace | not installed                           |      | x bare forward |",
    ]


def test_a_table_shows_what_is_exceeded():
    exceeded = figure(value=2.0)

    lines = list(render([exceeded], list(judge([exceeded], [TRACE]))))

    assert lines[-1] == "| trace | 2.00 **EXCEEDS 1.50** | x bare forward |"


@pytest.fixture
def settings_seen(monkeypatch):
    """Let the benchmark have one section that exceeds its budget in all but its third run, and see its settings."""
    seen = []

    def measure(settings):
        seen.append(settings)
        return [figure(value=1.4 if len(seen) == 3 else 2.0), figure("bare forward", 1.0)]

    monkeypatch.setattr(bench, "SECTIONS", {"core": measure})
    monkeypatch.setattr(bench, "prepare", lambda threads: None)
    monkeypatch.setattr(bench, "judge", lambda figures: judge(figures, [TRACE]))
    return seen


def test_check_measures_again_with_more_rounds_and_then_exits_with_1(settings_seen, capsys):
    status = bench.main(["--check"])

    assert status == 1
    first, second = settings_seen
    assert (second.rounds, second.patience) == (3 * first.rounds, 3 * first.patience)
    assert (first.names, second.names) == (None, {"trace"})
    assert capsys.readouterr().out.endswith(
        "\n0 of 1 budgets hold.\n"
        "Over budget: core: trace (Llama) is 2.00 x bare forward, 1.50 allowed: nothing is copied.\n"
    )


def test_what_holds_when_it_is_measured_again_is_no_failure(settings_seen, capsys):
    settings_seen.append(None)

    assert bench.main(["--check"]) == 0
    assert "Over budget at first, and measured again:" in capsys.readouterr().out


def test_without_check_an_exceeded_budget_is_told_and_the_status_is_0(settings_seen, capsys):
    assert bench.main([]) == 0
    assert len(settings_seen) == 1
    assert "Over budget: core: trace (Llama)" in capsys.readouterr().out


def test_an_unknown_section_is_refused_with_those_that_exist(capsys):
    with pytest.raises(SystemExit):
        bench.main(["--only", "core,goldenz"])

    assert "unknown: goldenz; known: core, goldens, " in capsys.readouterr().err


def test_a_peer_that_is_not_installed_or_fails_is_a_note(monkeypatch):
    def fail():
        raise NotImplementedError

    missing = Kind("core", "missing", lambda work, place: importlib.import_module("no_such_package_as_this"))
    failing = Kind("core", "failing", lambda work, place: fail)
    monkeypatch.setattr(forwards, "PEERS", (missing, failing))

    found = forwards.of_work("core", WORKS["tiny"](), [missing, failing], Settings(rounds=1))

    assert [(each.name, each.value, each.note) for each in found] == [
        ("missing", None, "not installed"),
        ("failing", None, "raises NotImplementedError"),
    ]


def test_a_failure_of_our_own_is_not_hidden():
    def fail():
        raise NotImplementedError

    kind = Kind("core", "ours", lambda work, place: fail)

    with pytest.raises(NotImplementedError):
        list(forwards.of_work("core", WORKS["tiny"](), [kind], Settings(rounds=1)))


def test_peak_is_what_is_alive_at_once(capfd):
    def run():
        for _ in range(3):
            torch.ones(1000).add(1)

    assert 8000 <= allocations.peak(run) < 9000
    assert capfd.readouterr().err == ""
