"""From the release that is bad to the release that made it so."""

from __future__ import annotations
