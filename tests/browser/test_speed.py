"""How large and how fast the site of a hundred stacks and a hundred cases is."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import pytest
from playwright.sync_api import Browser

from browser.site_world import large, make_site

CHOOSE_STAGE: Final = """(value) => {
    const form = document.getElementById("filters");
    form.stage.value = value;
    form.stage.dispatchEvent(new Event("input", { bubbles: true }));
    document.body.getBoundingClientRect();
}"""


@pytest.fixture(scope="module")
def hundred(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_site(tmp_path_factory.mktemp("large"), large(100, 100))


def test_it_is_under_two_megabytes(hundred: Path) -> None:
    sizes = {path.relative_to(hundred): path.stat().st_size for path in hundred.rglob("*") if path.is_file()}
    assert sum(sizes.values()) < 2e6
    assert sizes[Path("data/grid.js")] < 300_000


def test_it_is_there_within_a_second_and_filtered_within_a_tenth(browser: Browser, hundred: Path) -> None:
    """By the processor time of the page's thread, scripts and layout and all: what else a machine does is not its."""
    page = browser.new_page(viewport={"width": 1440, "height": 900})
    clock = page.context.new_cdp_session(page)
    clock.send("Performance.enable", {"timeDomain": "threadTicks"})

    def spent() -> float:
        told = {one["name"]: one["value"] for one in clock.send("Performance.getMetrics")["metrics"]}
        return float(told["ThreadTime"])

    began = spent()
    page.goto(f"{hundred.as_uri()}/index.html")
    page.wait_for_selector("html[data-ready]", state="attached")
    assert spent() - began < 1
    filters = []
    for value in ("3", "", "1", ""):
        began = spent()
        page.evaluate(CHOOSE_STAGE, value)
        filters.append(spent() - began)
    drawn = page.locator("#grid tr.case td:not(.wait)").count()
    page.close()
    assert min(filters) < 0.1, filters
    # Of ten thousand, those in view.
    assert 500 < drawn < 4000
