"""What was measured, to read, compare and link to: a static site, and the same for terminals, issues and machines.

The modules that draw need jinja2 and rich, which `pip install thawcheck[report]` brings, so they are imported where a
command asks for them.
"""

from __future__ import annotations

from harness.control.report._atlas import Atlas, make_atlas
from harness.control.report._sources import SourceError, Sources, read_sources

__all__ = ["Atlas", "SourceError", "Sources", "make_atlas", "read_sources"]
