"""Documentation that is made of the cases and of what was measured."""

from __future__ import annotations

from harness.control.pages._fixes import FIXES, fixes_page
from harness.control.pages._kind import kind_page, page_of
from harness.control.pages._overview import overview
from harness.control.pages._symptoms import SYMPTOMS, symptoms_page

__all__ = ["FIXES", "SYMPTOMS", "fixes_page", "kind_page", "overview", "page_of", "symptoms_page"]
