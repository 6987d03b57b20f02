import pytest

from pytest_tfdebug.parity.pair.pairing import CallPairing, has_parameter, pair_inputs, pair_outputs
from pytest_tfdebug.records import Call, TensorRecord


def calls(*rows):
    """Build calls from rows of path, parent index and plain arguments."""
    counts = {}
    built = []
    for index, (path, parent, *arguments) in enumerate(rows):
        number = counts.setdefault(path, 0)
        counts[path] += 1
        built.append(Call(index, path, "M", number, parent, 0, skeleton={"args": arguments, "kwargs": {}}))
    return built


def partners(expected, actual, rename=str, expected_aliases=None, actual_aliases=None):
    pairing = CallPairing(expected, expected_aliases or {}, actual_aliases or {}, rename)
    return [found and (found.path, found.call) for found in map(pairing.partner, actual)]


def leaf(path):
    return TensorRecord(path, (), "float32", None)


def names(pairs):
    return [(one and one.leaf, other and other.leaf) for one, other in pairs]


def test_calls_are_paired_by_path_and_number():
    expected = calls(("Ref", None), ("a", 0), ("b", 0), ("a", 0))
    actual = calls(("Port", None), ("b", 0), ("a", 0), ("a", 0), ("a", 0))

    assert partners(expected, actual) == [("Ref", 0), ("b", 0), ("a", 0), ("a", 1), None]


def test_paths_are_renamed():
    assert partners(calls(("R", None), ("x.a", 0)), calls(("P", None), ("a", 0)), lambda path: f"x.{path}") == [
        ("R", 0),
        ("x.a", 0),
    ]


def test_several_roots_are_paired_in_order():
    expected = calls(("R", None), ("a", 0), ("R", None), ("a", 2))

    assert partners(expected, calls(("P", None), ("P", None), ("P", None))) == [("R", 0), ("R", 1), None]


def test_calls_of_other_threads_are_paired_by_path():
    expected = calls(("R", None), ("left", None), ("right", None))
    actual = calls(("P", None), ("right", None), ("left", None))

    assert partners(expected, actual) == [("R", 0), ("right", 0), ("left", 0)]


def test_module_that_one_side_shares_is_paired_within_its_caller():
    expected = calls(("R", None), ("enc", 0), ("shared", 1), ("dec", 0), ("shared", 3))
    actual = calls(("P", None), ("enc", 0), ("enc.embed", 1), ("dec", 0), ("dec.embed", 3))
    aliases = {"shared": ("enc.embed", "dec.embed")}

    assert partners(expected, actual, expected_aliases=aliases) == [
        ("R", 0),
        ("enc", 0),
        ("shared", 0),
        ("dec", 0),
        ("shared", 1),
    ]


def test_of_several_calls_the_one_with_the_same_arguments_is_taken():
    expected = calls(("R", None), ("a", 0, "full"), ("a", 0, "sliding"))
    actual = calls(("P", None), ("a", 0, "sliding"), ("a", 0, "full"))

    assert partners(expected, actual) == [("R", 0), ("a", 1), ("a", 0)]


def test_of_several_calls_the_first_that_was_given_the_same_is_taken():
    expected = calls(("R", None), ("a", 0), ("a", 0), ("a", 0))
    pairing = CallPairing(expected, {}, {}, str)
    root, *actual = calls(("P", None), ("a", 0), ("a", 0))
    pairing.partner(root)

    chosen = [
        pairing.partner(call, lambda other, due=due: other.call == due)
        for call, due in zip(actual, (1, 2), strict=True)
    ]

    assert [call.call for call in chosen] == [1, 2]


def test_call_paired_in_doubt_is_given_to_one_that_is_sure():
    expected = calls(("R", None), ("a", 0))
    pairing = CallPairing(expected, {}, {}, str)
    root, first, second, third = calls(("P", None), ("a", 0), ("a", 0), ("a", 0))
    pairing.partner(root)

    assert pairing.partner(first, lambda _: False) is expected[1]
    assert pairing.partner(second, lambda _: True) is None
    pairing.doubt(expected[1])
    assert pairing.partner(second, lambda _: False) is None
    assert pairing.partner(second, lambda _: True) is expected[1]
    assert pairing.partner(third, lambda _: True) is None


def test_inputs_are_paired_by_place_and_by_parameter_name():
    one, other = Call(0, "a", "M", 0, None, 0), Call(0, "a", "M", 0, None, 0)
    one.parameters, other.parameters = ("hidden", "mask"), ("x", "hidden", "mask")

    found = names(
        pair_inputs([leaf("[0]"), leaf("[1][0]"), leaf("['k']")], [leaf("['hidden']"), leaf("['mask'][0]")], one, other)
    )

    assert found == [("[0]", "['hidden']"), ("[1][0]", "['mask'][0]"), ("['k']", None)]


def test_parameter_s_name_goes_before_its_place():
    one, other = Call(0, "a", "M", 0, None, 0), Call(0, "a", "M", 0, None, 0)
    one.parameters, other.parameters = ("x", "mask"), ("hidden", "position", "mask")

    found = names(pair_inputs([leaf("[0]"), leaf("[1]")], [leaf("[0]"), leaf("[1]"), leaf("[2]")], one, other))

    assert found == [("[0]", "[0]"), ("[1]", "[2]"), (None, "[1]")]


def test_forward_takes_what_it_has_a_parameter_for():
    call, other, unknown = (Call(0, "a", "M", 0, None, 0) for _ in range(3))
    call.parameters, other.parameters = ("x", "mask"), ("x", "position", "mask")

    assert has_parameter(call, "[2]", other)
    assert has_parameter(call, "['mask']['k']", other)
    assert not has_parameter(call, "[1]", other)
    assert not has_parameter(call, "['position'][0]", other)
    assert has_parameter(unknown, "[1]", other)
    assert has_parameter(call, "[7]", other)


def test_inputs_within_a_dict_and_an_object_are_paired_by_their_names():
    one, other = Call(0, "a", "M", 0, None, 0), Call(0, "a", "M", 0, None, 0)
    one.parameters = other.parameters = ("batch",)

    found = names(
        pair_inputs([leaf("[0]['x']"), leaf("[0].y")], [leaf("['batch'].y"), leaf("['batch'].x")], one, other)
    )

    assert found == [("[0]['x']", "['batch'].x"), ("[0].y", "['batch'].y")]


@pytest.mark.parametrize(
    ("actual", "expected", "pairs"),
    [
        ([""], [".logits", ".past"], [("", ".logits"), (None, ".past")]),
        ([".logits", ".extra"], [".past", ".logits"], [(".logits", ".logits"), (".extra", None), (None, ".past")]),
        (["[0]", "[1]"], [""], [("[0]", ""), ("[1]", None)]),
        (["['b']", "['a']"], [".a", ".b"], [("['b']", ".b"), ("['a']", ".a")]),
        ([".x['k']", ".x.v"], ["[0]['v']", "['x'].v"], [(".x['k']", None), (".x.v", "['x'].v"), (None, "[0]['v']")]),
        ([], [], []),
    ],
)
def test_outputs_are_paired_by_path_or_in_order(actual, expected, pairs):
    found = pair_outputs([leaf(path) for path in actual], [leaf(path) for path in expected], lambda *_: 1.0)

    assert names(found) == pairs


def test_outputs_of_other_names_are_paired_where_their_values_are_equal():
    actual, expected = [leaf(path) for path in (".a", ".new", ".b")], [leaf(path) for path in (".old", ".b", ".gone")]

    found = pair_outputs(actual, expected, lambda mine, theirs: float((mine.leaf, theirs.leaf) != (".new", ".old")))

    assert names(found) == [(".a", None), (".new", ".old"), (".b", ".b"), (None, ".gone")]


@pytest.mark.parametrize(
    ("distances", "partner"), [({}, "[0]"), ({"[0]": 1.0}, "[2]"), ({"[0]": 1.0, "[2]": 2.0}, "[0]")]
)
def test_one_output_stands_beside_the_nearer_of_the_first_and_the_last(distances, partner):
    layers = [leaf(path) for path in ("[0]", "[1]", "[2]")]

    here = names(pair_outputs(layers, [leaf(".last")], lambda mine, _: distances.get(mine.leaf, 0.0)))
    there = names(pair_outputs([leaf(".last")], layers, lambda _, theirs: distances.get(theirs.leaf, 0.0)))

    assert here[0] == (partner, ".last")
    assert there[0] == (".last", partner)


def test_several_outputs_of_other_names_stand_beside_those_that_they_equal():
    mine, theirs = [leaf("[0]"), leaf("[1]"), leaf("[2]")], [leaf(".last"), leaf(".past"), leaf(".scale")]
    equal = {("[1]", ".last"), ("[0]", ".past")}

    def apart(one, other):
        return float((one.leaf, other.leaf) not in equal)

    found = names(pair_outputs(mine, theirs, apart))
    short = names(pair_outputs(mine[:2], theirs[:1] + theirs[2:], apart))
    more = names(pair_outputs(mine, theirs[:1] + theirs[2:], apart))

    assert found == [("[0]", ".past"), ("[1]", ".last"), ("[2]", ".scale")]
    assert short == [("[1]", ".last"), ("[0]", ".scale")]
    assert more == [("[1]", ".last"), ("[0]", None), ("[2]", None), (None, ".scale")]


def test_mask_is_not_held_to_hidden_states_in_its_place():
    mask = TensorRecord("[1]", (), "bool", None)

    found = names(pair_outputs([leaf("[0]"), mask], [leaf("[0]"), leaf("[1]")], lambda *_: 0.0))

    assert found == [("[0]", "[0]"), ("[1]", None), (None, "[1]")]
