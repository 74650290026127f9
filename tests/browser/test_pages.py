"""The other pages, their links into one another, and that everybody can use all of them."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from pathlib import Path
from typing import Final

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, Page, expect

from browser.site_world import NAIVE

Open = Callable[[str], Page]

LOOKS: Final = list(itertools.product(("desktop", "phone"), ("light", "dark")))
VIEWS: Final = {
    "grid": "index.html",
    "filtered": "index.html#verdict=NO_UPDATE&package=deepspeed",
    "nothing": "index.html#q=zzz",
    "cell": f"index.html#case={NAIVE}&stack=ds-0.17.0",
    "mine": "mine.html",
    "my versions": "mine.html#deepspeed=0.18.3&torch=2.13.0",
    "stack": "stack.html#stack=ds-0.18.0",
    "unsolvable": "stack.html#stack=torch-2.2.1",
    "compare": "compare.html#a=ds-0.18.0&b=ds-0.19.0",
    "kinds": "kinds.html",
    "kind": "kind/c.html",
    "case": f"case/{NAIVE}.html",
}


@pytest.mark.parametrize("view", VIEWS)
@pytest.mark.parametrize("open_page", LOOKS, indirect=True, ids=map("-".join, LOOKS))
def test_everybody_can_use_it(open_page: Open, view: str) -> None:
    """axe finds nothing, and nothing sticks out to the side."""
    page = open_page(VIEWS[view])
    page.evaluate("document.querySelectorAll('main details').forEach(one => { one.open = true; })")
    # It would load the style sheets anew, which no page from disk may.
    found = Axe().run(page, options={"preload": False})
    assert found.violations_count == 0, found.generate_report()
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")


def test_compare(open_page: Open) -> None:
    page = open_page("compare.html#a=ds-0.18.0&b=ds-0.19.0")
    out = page.locator("#out")
    expect(out).to_contain_text("0.18.0 → 0.19.0")
    expect(page.locator("#counts")).to_have_text("12 verdicts worse, 12 better, 0 another fault, 33 the same.")
    rows = out.locator("tbody tr")
    expect(rows).to_have_count(2)
    expect(rows.first).to_contain_text("freeze_except_before_engine")
    expect(rows.first).to_contain_text("▼ worse")
    page.locator("#c-only").select_option("better")
    expect(rows).to_have_count(1)
    expect(rows).to_contain_text(NAIVE)
    page.get_by_role("button", name="Swap").click()
    expect(rows).to_contain_text("freeze_except_before_engine")
    assert page.url.endswith("compare.html#a=ds-0.19.0&b=ds-0.18.0&only=better")
    again = open_page("compare.html#a=ds-0.19.0&b=ds-0.18.0&only=better")
    assert again.locator("#out").inner_text() == out.inner_text()


def test_compare_two_days_of_a_stack(open_page: Open) -> None:
    page = open_page("compare.html#a=latest@2026-11-01&b=latest@2026-12-05")
    expect(page.locator("#out")).to_contain_text("2026-11-01 → 2026-12-05")
    expect(page.locator("#counts")).to_contain_text("12 better")


def test_compare_with_a_stack_that_cannot_be_installed(open_page: Open) -> None:
    page = open_page("compare.html#a=torch-2.2.1&b=ds-0.19.0")
    expect(page.locator("#out")).to_contain_text("One of them cannot be installed")


def test_my_versions(open_page: Open) -> None:
    page = open_page("mine.html")
    page.get_by_label("deepspeed").fill("0.18.0")
    page.get_by_role("button", name="Show").click()
    out = page.locator("#out")
    expect(out).to_contain_text("1 stack with just these versions was measured")
    expect(out.get_by_role("heading")).to_have_text("What bites (3)")
    expect(out.locator("tbody tr", has_text=NAIVE)).to_contain_text("NO_UPDATE 12 of 14")
    assert page.url.endswith("mine.html#deepspeed=0.18.0")
    page.get_by_label("deepspeed").fill("0.20")
    page.get_by_label("deepspeed").press("Enter")
    expect(out).to_contain_text("Just these were not measured. The nearest is latest@2026-12-05: ")
    expect(out).to_contain_text("deepspeed 0.19.0, yours 0.20.")
    page.get_by_label("deepspeed").fill("newest")
    page.get_by_label("deepspeed").press("Enter")
    expect(out).to_contain_text("Not a version: deepspeed newest")


def test_what_pip_freeze_prints(open_page: Open) -> None:
    page = open_page("mine.html")
    page.locator("summary", has_text="pip freeze").click()
    page.locator("#paste").fill("numpy==2.4.6\nDeepSpeed==0.17.0\ntorch==2.13.0+cu130 # mine\nnonsense\nrequests==2.1")
    expect(page.get_by_label("deepspeed")).to_have_value("0.17.0")
    expect(page.get_by_label("torch")).to_have_value("2.13.0")
    expect(page.locator("#out")).to_contain_text("with just these versions")


def test_a_stack(open_page: Open) -> None:
    page = open_page("stack.html#stack=ds-0.18.0")
    expect(page.get_by_role("heading", level=1)).to_have_text("ds-0.18.0")
    expect(page.locator("#out tbody tr")).to_have_count(3)
    page.locator("#s-stage").select_option("0")
    expect(page.locator("#out tbody tr")).to_have_count(1)
    page.get_by_role("link", name="newer: 0.19.0").click()
    expect(page.get_by_role("heading", level=1)).to_have_text("ds-0.19.0")
    page.goto(page.url.partition("#")[0] + "#stack=gone")
    expect(page.locator("#out")).to_contain_text("Nothing was measured on gone")


def test_a_case_has_its_story_its_boundary_and_what_it_did(open_page: Open) -> None:
    page = open_page(f"case/{NAIVE}.html")
    expect(page.get_by_text("What you see.")).to_be_visible()
    picture = page.get_by_role("img", name="DeepSpeed:")
    expect(picture).to_be_visible()
    said = picture.locator("title").text_content()
    assert said is not None
    assert "stages 1, 2 or 3: NO_UPDATE 0.17.0 to 0.18.0; TRAINS 0.19.0" in said
    expect(page.locator("#out details").first).to_contain_text("0.17.0 to 0.18.0")
    expect(page.locator("pre", has_text="def unfreeze_more_after_engine")).to_be_visible()


def test_what_is_written_needs_no_script(browser: Browser, site: Path) -> None:
    context = browser.new_context(java_script_enabled=False)
    page = context.new_page()
    page.goto(f"{site.as_uri()}/case/{NAIVE}.html")
    expect(page.get_by_text("What you see.")).to_be_visible()
    expect(page.get_by_role("img", name="DeepSpeed:")).to_be_visible()
    context.close()
    assert "need JavaScript" in (site / "index.html").read_text(encoding="utf-8")


def test_every_link_leads_somewhere(open_page: Open, site: Path) -> None:
    for file in sorted(site.rglob("*.html")):
        page = open_page(str(file.relative_to(site)))
        for link in page.locator("a[href]").evaluate_all("all => all.map(one => one.href)"):
            if link.startswith("file:"):
                assert Path(link.partition("#")[0].removeprefix("file://")).is_file(), (file, link)
            else:
                assert link.startswith("https://github.com/")
        page.close()
