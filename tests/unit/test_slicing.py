import textwrap

import pytest

from pytest_tfdebug.records import Site
from pytest_tfdebug.tracing.values.slicing import function_at, innermost_loop, statement_at


@pytest.fixture
def read(tmp_path):
    """Return the function of a dedented text, and a maker of sites in it."""

    def read_text(text):
        path = tmp_path / f"source{len(list(tmp_path.iterdir()))}.py"
        text = textwrap.dedent(text).lstrip()
        path.write_text(text)
        first = next(number for number, line in enumerate(text.splitlines(), 1) if line.startswith(("def", "@")))

        def site(line):
            return Site(str(path), line, line, "forward", first, len(text.splitlines()))

        return function_at(site(len(text.splitlines()))), site

    return read_text


def feeding(read, text, line, calls=()):
    function, site = read(text)
    return sorted(function.lines_feeding(site(line) if line else None, set(calls)))


def test_statements_that_reach_a_call_are_found_through_each_other(read):
    text = """
        def forward(self, x, y):
            scale = y * 2
            unused = y * 3
            bias = scale + 1
            return self.out(x + bias)
    """

    assert feeding(read, text, 5) == [2, 4]


def test_slice_stops_at_calls_that_are_known_to_be_right(read):
    text = """
        def forward(self, x):
            wrong = x * 2
            hidden = self.a(wrong)
            hidden = hidden + 1
            return self.b(hidden)
    """

    assert feeding(read, text, 5, calls=[3]) == [4]
    assert feeding(read, text, 5) == [2, 3, 4]


def test_without_a_call_what_is_returned_is_sliced(read):
    text = """
        def forward(self, x):
            residual = x * 1
            x = self.a(x)
            other = 3
            return x + residual
    """

    assert feeding(read, text, None, calls=[3]) == [2]


def test_shapes_and_devices_feed_nothing(read):
    text = """
        def forward(self, x):
            size = x.shape[0]
            kind = x.dtype
            y = x * 2
            return self.a(y.view(size).to(kind))
    """

    assert feeding(read, text, 5) == [4]


def test_what_asks_for_a_shape_beside_a_value_feeds(read):
    text = """
        def forward(self, x, other):
            y = upsample(x, length=other.shape[1])
            y = y.view(y.shape[0], -1)
            places = torch.arange(y.shape[1], device=y.device)
            return self.a(y, places)
    """

    assert feeding(read, text, 5) == [2, 3]


def test_what_is_taken_from_the_module_by_a_shape_feeds(read):
    text = """
        def forward(self, x):
            size = x.shape[1]
            wide = size * self.weight.shape[0] + self.heads
            places = self.places[:, :size]
            kinds = self.embed_kinds(places)
            y = kinds.view(wide)
            return self.a(y)
    """

    assert feeding(read, text, 7) == [4, 5, 6]


def test_assignment_under_a_condition_does_not_hide_an_earlier_one(read):
    text = """
        def forward(self, x):
            y = x * 2
            if self.training:
                y = x * 3
            return self.a(y)
    """

    assert feeding(read, text, 5) == [2, 4]


def test_later_assignment_hides_an_earlier_one(read):
    text = """
        def forward(self, x):
            y = x * 2
            y = x * 3
            return self.a(y)
    """

    assert feeding(read, text, 4) == [3]


def test_augmented_and_indexed_assignments_feed_with_what_stood_before(read):
    text = """
        def forward(self, x):
            y = x * 2
            y += 1
            y[0] = x
            return self.a(y)
    """

    assert {2, 3, 4} >= set(feeding(read, text, 5)) >= {3, 4}


@pytest.mark.parametrize(
    "statement",
    [
        "a[..., 4:] *= k",
        "a[0], b = k, k",
        "a.mul_(k)",
        "a.view(-1)[0].add_(1)",
        "torch.relu_(a)",
        "F.relu_(a) if k else None",
        "torch.mul(b, k, out=a)",
        "a.data = k",
        "a.append(k)",
        "c = a.mul_(k)",
        "a, c = k",
        "(a := k)",
    ],
)
def test_what_is_written_in_part_or_in_place_feeds(read, statement):
    text = f"""
        def forward(self, x, k, b):
            a = x * 2
            {statement}
            c = self.b(x)
            return self.f(torch.cat([a, c]))
    """

    assert 3 in feeding(read, text, 5, calls=[4])


@pytest.mark.parametrize(
    "statement",
    ["b.mul_(k)", "torch.relu_(b)", "torch._check(k)", "kwargs.pop('a', None)", "F.relu(a)", "a.__len__()", "b[0] = a"],
)
def test_what_leaves_a_value_as_it_is_does_not_feed(read, statement):
    text = f"""
        def forward(self, x, k, b, **kwargs):
            a = x * 2
            {statement}
            return self.f(torch.cat([a, x]), **kwargs)
    """

    assert feeding(read, text, 4) == [2]


def test_attribute_that_is_kept_feeds(read):
    text = """
        def forward(self, x, k):
            self.kept = x * k
            self.other = x * 2
            return self.f(self.kept)
    """

    assert feeding(read, text, 4) == [2]


@pytest.mark.parametrize("header", ["if (a := x * k) is not None:", "while (a := x * k).sum():"])
def test_value_that_a_condition_assigns_feeds(read, header):
    text = f"""
        def forward(self, x, k):
            {header}
                b = self.b(x)
            return self.f(a, b)
    """

    assert feeding(read, text, 4, calls=[3]) == [2]


def test_each_return_after_the_call_is_sliced(read):
    text = """
        def forward(self, x, k, return_dict):
            early = k * 2
            if x is None:
                return early
            kept = x * k
            y = self.f(x)
            if return_dict:
                return {"y": y + kept}
            return (y,)
    """
    function, _ = read(text)

    assert function.lines_feeding(None, {6}, 6) == [5]
    assert sorted(function.lines_feeding(None, {6})) == [2, 5]


def test_call_s_result_under_two_names_may_be_one_too_many(read):
    text = """
        def forward(self, h):
            residual = h = self.norm(h)
            h = self.f(h)
            return residual + h
    """

    assert feeding(read, text, None, calls=[2, 3]) == [2]
    assert feeding(read, text.replace("residual = h =", "residual ="), None, calls=[2, 3]) == []


def test_body_begins_after_the_docstring(read):
    function, _ = read('def forward(self, x):\n    """Say what."""\n    return x\n')

    assert (function.first, function.last) == (3, 3)


def test_decorators_belong_to_the_function(read):
    function, _ = read("@one\n@two\ndef forward(self, x):\n    return x\n")

    assert function.node.name == "forward"
    assert function.first == 4


def test_statement_over_several_lines_is_one(read):
    function, _ = read("def forward(self, x):\n    y = self.a(\n        x,\n    )\n    return y\n")

    assert statement_at(function.tree, 3) == (2, 4)
    assert statement_at(function.tree, 1) == (1, 1)


def test_smallest_loop_is_taken(read):
    function, _ = read(
        "def forward(self, x):\n    for a in x:\n        while a:\n            a = f(a)\n        x = a\n    return x\n"
    )

    assert innermost_loop(function.tree, 4, 4) == (3, 4)
    assert innermost_loop(function.tree, 4, 5) == (2, 5)
    assert innermost_loop(function.tree, 6, 6) is None


@pytest.mark.parametrize("text", ["def forward(self, x:\n    return\n", "", "x = 1\n"])
def test_source_that_cannot_be_read_has_no_function(tmp_path, text):
    path = tmp_path / "broken.py"
    path.write_text(text)

    assert function_at(Site(str(path), 1, 1, "forward", 1, 2)) is None
    assert function_at(Site(str(tmp_path / "nothing.py"), 1, 1, "forward", 1, 2)) is None
