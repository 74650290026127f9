"""What has come out since matrix/releases.toml was written, as the package index tells it."""

from __future__ import annotations

from harness.control.discover._edit import with_releases
from harness.control.discover._index import Index, IndexFailed, Release
from harness.control.discover._news import Consequences, News, consequences, news_of

__all__ = ["Consequences", "Index", "IndexFailed", "News", "Release", "consequences", "news_of", "with_releases"]
