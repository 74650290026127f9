"""Ranks as processes: the zygote that forks them, the supervisor that watches them, what runs inside."""

from __future__ import annotations
