"""The page of a check, as a person uses it."""

import json
import re

import pytest
from controls import NAMELESS, click_everything


@pytest.fixture
def check_page(sight, site, checks):
    def look(test, **context):
        return sight(**context).open(site / "checks" / f"{checks[test]['id']}.html")

    return look


ALL = [
    "test_scale_of_attention", "test_missing_residual", "test_activation_under_names", "test_right_port", "test_wrong_weight",
    "test_regression", "test_mean_over_pads", "test_mask_that_is_dropped", "test_rows_alone", "test_little_headroom",
    "test_overflow", "test_enough_headroom", "test_head_of_another_class",
]  # fmt: skip


@pytest.mark.parametrize("test", ALL)
def test_every_control_can_be_clicked_and_has_a_name(check_page, test):
    page = check_page(test)

    assert click_everything(page) >= 3
    assert page.evaluate(NAMELESS) == []


@pytest.mark.parametrize("test", ALL)
def test_narrow_screen_is_enough(check_page, test):
    page = check_page(test, viewport={"width": 360, "height": 700})

    assert page.evaluate("document.documentElement.scrollWidth") <= 360


def test_both_sources_are_shown_with_their_lines_marked(check_page, checks):
    page = check_page("test_scale_of_attention")

    marked = page.locator("#source figure").nth(0).locator("tr.marked").inner_text()

    assert "scores = query @ key.mT * hidden.shape[-1] ** -0.5" in marked
    assert page.locator("#source figure").nth(1).locator("tr.marked").count() == 10
    assert "modeling_llama.py" in page.locator("#source figure").nth(1).inner_text()


def test_code_wider_than_its_box_wraps_and_every_character_is_seen(check_page):
    page = check_page("test_scale_of_attention", viewport={"width": 360, "height": 700})

    boxes = page.evaluate(
        "[...document.querySelectorAll('#source .lines')].map(box => [box.scrollWidth, box.clientWidth])"
    )
    heights = page.evaluate(
        "[...document.querySelectorAll('#source .lines tr')].map(row => [row.innerText.length, row.clientHeight])"
    )

    assert boxes
    assert all(needed <= seen for needed, seen in boxes)
    longest, shortest = max(heights), min(heights)
    assert longest[0] > 60
    assert longest[1] >= 2 * shortest[1]  # its row is as high as two lines are


def test_curve_is_drawn_and_read_with_the_keyboard(check_page, checks):
    page = check_page("test_activation_under_names")
    calls = checks["test_activation_under_names"]["forward"]["own"]
    culprit = next(call for call in calls if call["path"] == "blocks.1.mixer")
    assert page.locator("#curve canvas").bounding_box()["width"] > 600

    page.focus("#curve")
    page.keyboard.press("Home")
    first = page.inner_text("#curve-readout")
    for _ in range(sum(call["ended"] < culprit["ended"] for call in calls if call["state"] != "not compared")):
        page.keyboard.press("ArrowRight")

    assert first.startswith("tokens (Embedding)")
    assert page.inner_text("#curve-readout").startswith("blocks.1.mixer (Mixer)")
    assert "differs as model.layers.1.mlp" in page.inner_text("#curve-readout")


def test_curve_shows_layers_alone_where_that_is_chosen(check_page):
    page = check_page("test_regression")
    page.select_option("#curve-of", "layers")
    page.focus("#curve")
    page.keyboard.press("Home")

    assert page.inner_text("#curve-readout").startswith("model.layers.0 (")


def test_curve_is_a_table_too(check_page, checks):
    page = check_page("test_regression")

    page.click("#depth summary")

    page.locator("#curve-table tr.is-culprit").wait_for()
    rows = page.locator("#curve-table tbody tr")
    assert rows.count() == len(checks["test_regression"]["forward"]["own"])
    assert page.locator("#curve-table tr.is-culprit th").inner_text() == "model.layers.2.mlp"


def test_call_and_the_one_that_stands_for_it_are_marked_together(check_page):
    page = check_page("test_activation_under_names")
    page.locator("#own [role=treeitem]", has=page.locator(":scope > .row", has_text="attention_norm")).last.locator(
        "> .row"
    ).click()

    assert "attention_norm" in page.locator("#own .is-chosen > .row").inner_text()
    assert "input_layernorm" in page.locator("#reference .is-chosen > .row").inner_text()


def test_ports_with_other_names_are_paired_by_values(check_page, checks):
    page = check_page("test_scale_of_attention")
    pairs = checks["test_scale_of_attention"]["forward"]["pairs"]

    assert sum(pair["by"] == "values" for pair in pairs) > 25
    assert page.locator("#own .is-culprit > .row").inner_text().split()[-1].endswith("×")
    assert "self_attn" in page.locator("#reference .is-chosen > .row").inner_text()


def test_tree_is_walked_with_the_keyboard(check_page):
    page = check_page("test_regression")
    page.locator("#own [role=treeitem]").first.focus()

    page.keyboard.press("ArrowLeft")
    folded = page.locator("#own [role=treeitem]:visible").count()
    page.keyboard.press("ArrowRight")
    page.keyboard.press("ArrowRight")
    page.keyboard.press("Enter")

    assert folded == 1
    assert page.locator("#own [role=treeitem]:visible").count() > 1
    assert page.evaluate("document.activeElement.getAttribute('aria-level')") == "2"
    assert page.locator("#own .is-chosen").count() == 1


def test_tree_shows_what_differs_alone_and_goes_to_the_culprit(check_page):
    page = check_page("test_regression")
    page.click("#unfold")
    everything = page.locator("#own [role=treeitem]").count()

    page.check("#only")
    telling = page.locator("#own [role=treeitem]").count()
    page.uncheck("#only")
    page.click("#fold")
    page.click("#to-culprit")

    assert 0 < telling < everything == 45
    assert "mlp" in page.evaluate("document.activeElement.firstElementChild.innerText")


def test_heat_map_says_what_the_file_says(check_page, checks):
    grid = checks["test_regression"]["forward"]["elements"]
    page = check_page("test_regression")
    assert page.locator("#heats canvas").count() == 3

    page.locator("#heats canvas").first.focus()
    for key in ("ArrowRight", "ArrowRight", "ArrowDown"):
        page.keyboard.press(key)

    told = page.inner_text("#heat-readout")
    place = 1 * grid["columns"] + 1
    assert told.startswith("batch 0, token 1, feature 2: expected ")  # of two features the one that differs more
    expected, actual = (float(re.search(rf"{name} (-?[\d.e-]+)", told).group(1)) for name in ("expected", "actual"))
    assert expected == pytest.approx(grid["expected"][place], rel=5e-3, abs=1e-9)
    assert actual == pytest.approx(grid["actual"][place], rel=5e-3, abs=1e-9)


def test_elements_are_a_scatter_and_a_histogram_too(check_page):
    page = check_page("test_regression")

    for view, places in (("scatter", ["#scatter"]), ("histogram", ["#histogram", "#differences"])):
        page.locator(f"input[value={view}] + span").click()
        for place in places:
            assert page.locator(f"{place} canvas").bounding_box()["height"] > 100
    assert page.locator("#heats").is_hidden()


def test_values_say_what_is_explained_and_lead_to_their_producers(check_page, checks):
    page = check_page("test_scale_of_attention")
    record = checks["test_scale_of_attention"]["forward"]["values"]
    culprit = next(value for value in record if value["is_culprit"])

    row = page.locator("tr.is-culprit", has_text=str(culprit["index"])).first

    assert culprit["state"] == "open"
    assert "open" in row.inner_text()
    row.locator("a[href^='#v']").first.click()
    assert page.locator(":target").count() == 1


def test_what_is_copied_can_be_used(check_page, checks):
    page = check_page("test_scale_of_attention")

    page.click("text=Copy command")
    page.click("text=Copy Markdown")
    page.wait_for_function("window.copied.length === 2")

    command, markdown = page.evaluate("window.copied")
    assert command == f"pytest {checks['test_scale_of_attention']['test']}"
    assert "```python\n        scores = query @ key.mT * hidden.shape[-1] ** -0.5\n```" in markdown
    assert page.locator("#said").inner_text() == "Copied"


def test_padding_shows_what_is_probably_wrong(check_page):
    assert "Probably:" in check_page("test_mask_that_is_dropped").inner_text("#verdict")


def test_overflow_shows_headroom_by_module(check_page):
    page = check_page("test_little_headroom")
    assert page.locator("#headroom-rows tr.is-culprit").inner_text().startswith("model.layers.1.mlp.down_proj")

    page.select_option("#headroom-sort", "ratio")
    tightest = page.locator("#headroom-rows tbody tr").first.inner_text()
    page.fill("#headroom-search", "layers.2.mlp")

    assert "4.29e+04" in tightest
    assert page.locator("#headroom-rows tbody tr:visible").count() == 5


def test_overflow_that_happened_has_no_headroom_left(check_page):
    page = check_page("test_overflow")

    assert page.inner_text("#answer").startswith("model.layers.1.mlp.down_proj Linear module")
    assert page.locator("#headroom-rows tr.is-culprit .bad").count() == 1
    assert "inf of 512 elements" in page.inner_text("#facts")


def test_load_shows_the_weights_that_did_not_fit(check_page):
    assert "score.weight" in check_page("test_head_of_another_class").inner_text("#load-1")


def test_data_of_a_page_is_that_of_the_file(check_page, checks):
    page = check_page("test_regression")

    data = json.loads(page.locator("#data").text_content())

    assert data["own"]["index"] == [call["index"] for call in checks["test_regression"]["forward"]["own"]]


def test_pictures(check_page, picture):
    for test, name, section in (
        ("test_scale_of_attention", "page-check", None),
        ("test_scale_of_attention", "page-depth-and-modules", "#depth"),
        ("test_scale_of_attention", "page-values", "#values"),
        ("test_regression", "page-elements", "#elements"),
        ("test_little_headroom", "page-overflow", None),
    ):
        page = check_page(test)
        if section:
            page.evaluate("place => document.querySelector(place).scrollIntoView({behavior: 'instant'})", section)
            page.wait_for_timeout(200)
        picture(page, name)
