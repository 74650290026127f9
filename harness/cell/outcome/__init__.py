"""What came of a case: verdicts, records, what is expected of them, how they are kept and shown."""

from __future__ import annotations
