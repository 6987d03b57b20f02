"""Two bugs of one port, and what a report on both is worth."""

import pytest
from corpus import all_ports
from judging import compared, relative_l2
from together import drawn, infected, judged_together

from pytest_tfdebug.parity.proof import budget, prove

PORTS = {port.name: port for port in all_ports()}

pytestmark = [pytest.mark.filterwarnings("ignore"), pytest.mark.usefixtures("one_thread")]


def bugs_of(name, *names):
    return tuple(bug for bug in PORTS[name].bugs if bug.name in names)


@pytest.mark.parametrize(
    ("name", "one", "other"),
    [
        ("rope-llama", "scale missing", "gate and value swapped"),
        ("channels-first", "padding on one side", "norm over the image"),  # nothing that agrees lies between
        ("sequence-first", "values rotated for keys", "last norm missing"),  # no single change mends the first
        ("mambapy", "activation of the convolution missing", "decay rates without logarithm"),  # of one module
    ],
)
def test_both_of_two_bugs_are_named_by_line(name, one, other, monkeypatch):
    monkeypatch.setattr(budget, "WAITING", 100.0)
    monkeypatch.setattr(prove, "SECONDS", 5.0)

    found = judged_together(PORTS[name], bugs_of(name, one, other), compared)

    assert (found.verdicts, found.entries) == (("line", "line"), ("line", "line")), found.text
    assert found.agrees


def test_bug_of_one_layer_stays_out_of_others_beside_a_whole_one():
    bugs = bugs_of("rope-llama", "rotary base", "scale missing")
    case, files = infected(PORTS["rope-llama"], bugs)

    assert {bug.name: len(files[bug]) for bug in bugs} == {"rotary base": 2, "scale missing": 1}
    assert relative_l2(case) > 0


def test_same_bugs_are_drawn_again():
    ports = [PORTS["rope-llama"], PORTS["packed-bert"]]
    one, other = ([(port.name, bugs) for port, bugs in drawn(ports, 4, 2, seed=3)] for _ in range(2))

    assert one == other
    assert len({*one}) == 4
