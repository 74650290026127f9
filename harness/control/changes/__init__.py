"""What changed between two sets of observed stacks, and an issue for each change."""

from __future__ import annotations

from harness.control.changes._compare import Change, Item, Shift, compare
from harness.control.changes._issues import IssuesFailed, Tracker
from harness.control.changes._show import as_body, as_text, title_of

__all__ = ["Change", "IssuesFailed", "Item", "Shift", "Tracker", "as_body", "as_text", "compare", "title_of"]
