"""The index, as a person uses it."""

import pytest
from controls import click_everything


@pytest.fixture
def index(sight, site):
    return sight().open(site / "index.html")


def shown(page):
    return page.locator("#cards > li:visible").count()


def test_it_has_a_card_for_each_check_also_those_that_passed(index, checks):
    assert shown(index) == len(checks) == 13
    assert index.locator(".card.failed").count() == sum(check["status"] == "failed" for check in checks.values())
    assert index.locator("h1").inner_text() == "10 of 13 checks failed"


def test_card_shows_verdict_coverage_and_the_worst_share_of_tolerance(index):
    card = index.locator(".card", has_text="test_right_port")

    text = card.inner_text()

    assert "passed" in text
    assert "31 of 45 calls" in text
    assert "of tolerance" in text


def test_verdict_kind_and_search_filter_together(index):
    index.locator("input[value=failed] + span").click()
    assert shown(index) == 10
    index.select_option("#kind", "Padding")
    assert shown(index) == 2
    index.fill("#search", "pooled mean")
    assert shown(index) == 1
    assert index.locator("#count").inner_text() == "1 of 13 checks"


def test_search_without_a_hit_says_so_and_can_be_taken_back(index):
    index.fill("#search", "nothing like it")
    assert index.locator("#none").is_visible()

    index.click("#clear")

    assert shown(index) == 13
    assert index.locator("#none").is_hidden()


def test_cards_are_sorted_by_what_is_chosen(index):
    index.select_option("#sort", "worst")
    worst = [
        float(value) for value in index.locator("#cards > li").evaluate_all("all => all.map(e => e.dataset.worst)")
    ]
    index.select_option("#sort", "test")
    names = index.locator("#cards > li").evaluate_all("all => all.map(e => e.dataset.test)")

    assert worst == sorted(worst, reverse=True)
    assert names == sorted(names)


def test_what_is_chosen_stands_in_the_address(index, sight, site):
    index.fill("#search", "padding")
    fragment = index.evaluate("location.hash")

    again = sight().open(site / "index.html", fragment)

    assert again.input_value("#search") == "padding"
    assert shown(again) == shown(index)


def test_slash_begins_a_search(index):
    index.keyboard.press("/")
    index.keyboard.type("overflow")

    assert index.input_value("#search") == "overflow"


def test_culprit_is_one_click_away(index, checks):
    index.click("text=test_scale_of_attention")

    assert index.locator("#answer").inner_text().startswith(checks["test_scale_of_attention"]["culprit"]["path"])
    assert index.locator("#source tr.marked").first.is_visible()


def test_lines_open_in_the_chosen_editor(index, checks):
    source = checks["test_scale_of_attention"]["culprit"]["source"]
    place = index.locator(".card", has_text="test_scale_of_attention").locator("a.place")
    assert place.get_attribute("href") == f"vscode://file{source['file']}:{source['first']}"

    index.select_option("#editor", "pycharm")
    assert place.get_attribute("href").startswith("pycharm://open?file=")
    index.reload()

    assert index.input_value("#editor") == "pycharm"


def test_light_and_dark_follow_the_system_and_the_button(sight, site):
    page = sight(color_scheme="dark").open(site / "index.html")
    dark = page.evaluate("getComputedStyle(document.body).backgroundColor")
    assert page.evaluate("document.documentElement.dataset.theme") == "dark"

    page.click("#theme")
    page.reload()

    assert page.evaluate("document.documentElement.dataset.theme") == "light"
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") != dark


def test_every_control_can_be_clicked(index):
    assert click_everything(index) >= 12


@pytest.mark.parametrize(("scheme", "name"), [("light", "page-index"), ("dark", "page-index-dark")])
def test_pictures(sight, site, picture, scheme, name):
    page = sight(color_scheme=scheme).open(site / "index.html")

    assert page.inner_text(".hero code").startswith("pytest tests/page/suite/checks.py")
    page.evaluate("document.querySelector('.hero code').textContent = 'pytest --tf-html=tfdebug-page'")  # not ours here
    picture(page, name)
