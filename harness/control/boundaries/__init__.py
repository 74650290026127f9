"""Where along one package's releases a case begins, or ends, to do something."""

from __future__ import annotations

from harness.control.boundaries._axis import Axis, axes_of
from harness.control.boundaries._changes import Change, changes_along
from harness.control.boundaries._did import Did
from harness.control.boundaries._fixes import Agreement, Finding, check_fix

__all__ = ["Agreement", "Axis", "Change", "Did", "Finding", "axes_of", "changes_along", "check_fix"]
