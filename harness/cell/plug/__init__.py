"""Behind the pytest plugin: settings, session, items, reporter, fixture."""

from __future__ import annotations
