"""A real browser, and a page in it that may not complain about anything."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final, Literal

import pytest
from playwright.sync_api import Browser, ConsoleMessage, Page, sync_playwright

from browser.site_world import make_site, small

#: On the PATH of Debian, Ubuntu and GitHub's machines.
NAMES: Final = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
SIZES: Final = {"desktop": (1440, 900), "phone": (390, 844)}

#: Their views are made by scripts, which say when they are ready.
SCRIPTED: Final = ("index.html", "stack.html", "mine.html", "compare.html")

Open = Callable[[str], Page]


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    found = os.environ.get("THAWCHECK_CHROMIUM") or next(filter(None, map(shutil.which, NAMES)), None)
    if found is None:
        pytest.fail(
            f"there is no browser: none of {', '.join(NAMES)} is on the PATH; install one "
            "(apt-get install chromium), or name it by THAWCHECK_CHROMIUM=/path/to/it"
        )
    # Chromium's own sandbox refuses to run as root, which is what containers are.
    arguments = ["--no-sandbox"] if os.geteuid() == 0 else []
    with sync_playwright() as playwright:
        started = playwright.chromium.launch(executable_path=found, args=arguments)
        yield started
        started.close()


@pytest.fixture(scope="session")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_site(tmp_path_factory.mktemp("small"), small())


@pytest.fixture
def open_page(browser: Browser, site: Path, request: pytest.FixtureRequest) -> Iterator[Open]:
    """Opens a page of the site from disk; indirectly parametrized, at another size or in the dark."""
    look: tuple[str, Literal["light", "dark"]] = getattr(request, "param", ("desktop", "light"))
    size, scheme = look
    width, height = SIZES[size]
    hand = size == "phone"
    context = browser.new_context(
        viewport={"width": width, "height": height},
        color_scheme="dark" if scheme == "dark" else "light",
        has_touch=hand,
        is_mobile=hand,
    )
    complaints: list[str] = []

    def heard(message: ConsoleMessage) -> None:
        if message.type in ("error", "warning"):
            complaints.append(message.text)

    def opened(address: str) -> Page:
        page = context.new_page()
        page.on("console", heard)
        page.on("pageerror", lambda error: complaints.append(str(error)))
        page.on("requestfailed", lambda one: complaints.append(f"cannot be loaded: {one.url}"))
        page.on("request", lambda one: None if one.url.startswith(("file:", "data:")) else complaints.append(one.url))
        page.goto(f"{site.as_uri()}/{address}")
        if address.partition("#")[0] in SCRIPTED or address.startswith("case/"):
            page.wait_for_selector("html[data-ready]", state="attached")
        return page

    yield opened
    pwned = [page.evaluate("window.pwned") for page in context.pages]
    context.close()
    assert complaints == []
    assert pwned == [None] * len(pwned)
