"""The grid: what it shows, its filters, links into it, and the way through it by keyboard."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from playwright.sync_api import Page, expect

from browser.site_world import HOSTILE_CASE, HOSTILE_MESSAGE, NAIVE

Open = Callable[[str], Page]

CASES = 5
STACKS = 6


def said(page: Page) -> str:
    return page.locator("#said").inner_text()


def shown(page: Page) -> list[str]:
    return page.locator("#grid tr.case:not([hidden]) th").all_inner_texts()


def heads(page: Page) -> list[str]:
    return [str(one.get_attribute("aria-label")) for one in page.locator("#grid tr.stacks a").all()]


def row(page: Page, case: str) -> list[str]:
    """The words of its cells, which are there for who cannot see the symbols."""
    return page.locator("#grid tr.case", has_text=case).locator("td").all_text_contents()


def test_every_case_and_stack_is_there(open_page: Open) -> None:
    page = open_page("index.html")
    assert said(page) == "5 cases, 6 stacks, 285 verdicts"
    assert HOSTILE_CASE in shown(page)
    assert heads(page) == [*"latest@2026-11-01 latest@2026-12-05 ds-0.17.0 ds-0.18.0 ds-0.19.0 torch-2.2.1".split()]
    assert row(page, NAIVE) == ["NO_UPDATE", "TRAINS", "NO_UPDATE", "NO_UPDATE", "TRAINS", "UNSOLVABLE"]


def test_a_symbol_stands_in_each_cell(open_page: Open) -> None:
    page = open_page("index.html")
    cell = page.locator("#grid tr.case", has_text=NAIVE).locator("td").first
    assert cell.evaluate("one => getComputedStyle(one, '::before').content").startswith('"="')
    assert "mixed" in (cell.get_attribute("class") or "")


@pytest.mark.parametrize(
    ("field", "value", "cases", "stacks"),
    [
        ("q", "unfreeze more", [NAIVE], STACKS),
        ("kind", "C", [NAIVE], STACKS),
        ("driver", "trainer", ["trainer_freeze_except_before"], STACKS),
        ("axis", "DeepSpeed", None, 3),
        ("device", "cpu", None, STACKS),
        ("package", "deepspeed", None, 5),
        ("stage", "0", None, STACKS),
    ],
)
def test_each_filter_leaves_what_it_says(
    open_page: Open, field: str, value: str, cases: list[str] | None, stacks: int
) -> None:
    page = open_page("index.html")
    every = shown(page)
    control = page.locator(f"#filters [name={field}]")
    if field == "q":
        control.fill(value)
    else:
        control.select_option(value)
    # Of somebody's own there is one variant, at stage 1.
    left = [one for one in every if one != HOSTILE_CASE] if field == "stage" else every
    assert shown(page) == (left if cases is None else cases)
    assert len(heads(page)) == stacks
    assert f"{field}=" in page.url
    again = open_page(f"index.html{page.url[page.url.index('#') :]}")
    assert (shown(again), heads(again), said(again)) == (shown(page), heads(page), said(page))
    page.get_by_role("button", name="Clear").click()
    assert shown(page) == every
    assert "#" not in page.url


def test_versions_of_a_package(open_page: Open) -> None:
    page = open_page("index.html")
    expect(page.locator("#f-from")).to_be_disabled()
    page.locator("#f-package").select_option("deepspeed")
    page.locator("#f-from").select_option("0.18.0")
    assert heads(page) == ["latest@2026-11-01", "latest@2026-12-05", "ds-0.18.0", "ds-0.19.0"]
    page.locator("#f-to").select_option("0.18.0")
    assert heads(page) == ["ds-0.18.0"]
    assert "package=deepspeed&from=0.18.0&to=0.18.0" in page.url


def test_a_stage_decides_what_a_cell_shows(open_page: Open) -> None:
    page = open_page("index.html#stage=0")
    assert row(page, NAIVE)[:5] == ["TRAINS"] * 5
    page.locator("#f-stage").select_option("3")
    assert row(page, NAIVE)[:5] == ["NO_UPDATE", "TRAINS", "NO_UPDATE", "NO_UPDATE", "TRAINS"]
    assert page.locator("#grid td.mixed").count() == 0


def test_verdicts_are_chosen_in_the_legend(open_page: Open) -> None:
    page = open_page("index.html")
    page.get_by_role("button", name="NO_UPDATE").click()
    assert shown(page) == [NAIVE]
    assert "verdict=NO_UPDATE" in page.url
    page.get_by_role("button", name="FROZEN_DRIFT").click()
    assert set(shown(page)) == {NAIVE, "freeze_except_before_engine"}
    assert page.locator("#grid td.dim").count() > 0
    expect(page.get_by_role("button", name="NO_UPDATE")).to_have_attribute("aria-pressed", "true")


def test_what_is_not_as_expected(open_page: Open) -> None:
    """Nothing is expected here but that all trains, so what does not is marked."""
    page = open_page("index.html")
    page.locator("#odd").click()
    assert "trainer_freeze_except_before" not in shown(page)
    assert NAIVE in shown(page)
    assert "odd=1" in page.url


def test_nothing_fits(open_page: Open) -> None:
    page = open_page("index.html#q=no+such+case+at+all")
    expect(page.locator("#nothing")).to_be_visible()
    assert said(page) == "0 cases, 6 stacks, 0 verdicts"


@pytest.mark.parametrize("hash_", ["#kind=a&stage=9&package=x&from=1&verdict=WHAT&case=a&stack=b", "#%ff", "#=&&"])
def test_a_link_that_makes_no_sense_shows_all(open_page: Open, hash_: str) -> None:
    page = open_page(f"index.html{hash_}")
    assert len(shown(page)) == CASES
    assert len(heads(page)) == STACKS


def test_a_cell_tells_all_and_has_a_link(open_page: Open) -> None:
    page = open_page("index.html")
    page.locator("#grid tr.case", has_text=NAIVE).locator("td").nth(2).click()
    dialog = page.get_by_role("dialog")
    expect(dialog.get_by_role("heading", name=f"{NAIVE} on ds-0.17.0")).to_be_visible()
    expect(dialog).to_contain_text("layers.2.weight, layers.2.bias")
    expect(dialog).to_contain_text(f"tox run -e ds-0.17.0 -- -- -k {NAIVE}")
    expect(dialog).to_contain_text("Not as expected: expected TRAINS")
    expect(dialog).to_contain_text("deepspeed")
    expect(dialog).to_contain_text("0.17.0")
    expect(dialog.get_by_role("link", name="deepspeedai/DeepSpeed#5639")).to_have_attribute(
        "href", "https://github.com/deepspeedai/DeepSpeed/issues/5639"
    )
    again = open_page(f"index.html{page.url[page.url.index('#') :]}")
    expect(again.get_by_role("dialog")).to_contain_text("layers.2.weight, layers.2.bias")
    page.keyboard.press("Escape")
    expect(dialog).to_be_hidden()
    assert "case=" not in page.url
    # Also who came by a click goes on from there by keyboard.
    focused = page.evaluate("document.activeElement.getAttribute('aria-label')")
    assert focused.startswith(f"{NAIVE} on ds-0.17.0: ")


def test_a_hostile_name_and_message_are_text(open_page: Open) -> None:
    page = open_page("index.html")
    page.locator("#grid tr.case").last.locator("td").nth(2).click()
    dialog = page.get_by_role("dialog")
    expect(dialog.locator("pre").first).to_have_text(HOSTILE_MESSAGE, use_inner_text=False)
    expect(dialog.get_by_role("heading").first).to_contain_text(HOSTILE_CASE)
    assert dialog.locator("img, b, script").count() == 0
    dialog.get_by_role("link", name="All about this case").click()
    expect(page.get_by_role("heading", level=1)).to_have_text(HOSTILE_CASE)
    page.wait_for_selector("html[data-ready]", state="attached")
    assert page.locator("main img, main b, main script").count() == 0
    stack = open_page("stack.html#stack=torch-2.2.1")
    expect(stack.locator("#out")).to_contain_text("</script><script>window.pwned=2</script>")


def test_the_way_through_it_by_keyboard(open_page: Open) -> None:
    page = open_page("index.html")
    page.locator("#clear").focus()
    # The legend's buttons, then one stop for the whole grid.
    for _ in range(20):
        page.keyboard.press("Tab")
        if page.evaluate("document.activeElement.tagName") == "TD":
            break
    assert page.evaluate("document.activeElement.tagName") == "TD"
    page.keyboard.press("Control+Home")
    first = page.evaluate("document.activeElement.getAttribute('aria-label')")
    assert first == "freeze_all_engine_unfreeze on latest@2026-11-01: RAISES, 14 variants; not as expected"
    page.keyboard.press("ArrowDown")
    page.keyboard.press("ArrowRight")
    page.keyboard.press("ArrowRight")
    focused = page.evaluate("document.activeElement.getAttribute('aria-label')")
    assert focused == f"{NAIVE} on ds-0.17.0: 12 NO_UPDATE, 2 TRAINS of 14 variants; not as expected"
    expect(page.locator("#line")).to_contain_text(NAIVE)
    page.keyboard.press("Enter")
    expect(page.get_by_role("dialog")).to_be_visible()
    page.keyboard.press("Escape")
    assert page.evaluate("document.activeElement.getAttribute('aria-label')") == focused
    page.keyboard.press("Home")
    assert page.evaluate("document.activeElement.textContent") == NAIVE
    page.keyboard.press("ArrowUp")
    page.keyboard.press("End")
    page.keyboard.press("ArrowUp")
    assert page.evaluate("document.activeElement.getAttribute('aria-label')") == "torch-2.2.1"
    page.keyboard.press("Enter")
    expect(page).to_have_url(f"{page.url.rpartition('/')[0]}/stack.html#stack=torch-2.2.1")
