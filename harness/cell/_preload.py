"""Which modules the zygote imports before it forks: a few named, the rest learned.

The first optimizer and the first engine import some 1,500 modules (torch._dynamo, _inductor,
DeepSpeed's Muon ...); which ones differs with every release.  So ranks report what they had to
import, the zygote imports it too, and the list is kept in the environment for its next start.
"""

from __future__ import annotations

import contextlib
import hashlib
import importlib
import json
import os
import sys
from collections.abc import Iterable
from pathlib import Path

from harness.cell._stack import installed_versions

__all__ = ["Preload", "thread_count"]

#: Imported always, where installed; their absence is reported, not fatal.
_NAMED = ("torch", "torch.distributed", "deepspeed", "transformers", "accelerate")
#: Needed by every case: without them nothing can be measured.
_NEEDED = ("torch", "deepspeed")
#: Never learned: the user's own modules may change between runs or do things when imported.
_LIBRARIES = frozenset(
    "torch deepspeed transformers accelerate peft axolotl safetensors tokenizers huggingface_hub numpy "
    "sympy mpmath networkx packaging pydantic pydantic_core yaml regex tqdm einops psutil jinja2 filelock "
    "fsspec requests httpx datasets pyarrow pandas".split()
)


def thread_count() -> int:
    """Threads of this process, those of extension modules included."""
    return len(os.listdir("/proc/self/task"))


def _is_library(name: str) -> bool:
    return name.partition(".")[0] in _LIBRARIES or name.partition(".")[0] in sys.stdlib_module_names


class Preload:
    """The list for one environment and device, kept at ``<prefix>/share/thawcheck``."""

    def __init__(self, device: str) -> None:
        self._device = device
        key = json.dumps([sys.version, device, installed_versions()], sort_keys=True)
        name = f"preload-{hashlib.sha256(key.encode()).hexdigest()[:16]}.json"
        self._path = Path(sys.prefix) / "share" / "thawcheck" / name
        self._learned: set[str] = set()
        #: modules whose import started a thread, after which nothing may be forked
        self._avoided: set[str] = set()

    def load(self) -> dict[str, str]:
        """Import everything; what is needed and could not be imported, with the reason."""
        missing = {}
        for name in _NAMED:
            try:
                importlib.import_module(name)
            except Exception as error:  # noqa: BLE001  # old releases fail on import in every way there is
                if name in _NEEDED:
                    missing[name] = f"{type(error).__name__}: {error}"
        if not missing:
            with contextlib.suppress(OSError, ValueError, KeyError, TypeError):
                kept = json.loads(self._path.read_text())
                self._avoided.update(kept["avoid"])
                self._import(kept["import"])
        return missing

    def learn(self, modules: Iterable[str]) -> bool:
        """Import what ranks had to import; True when something was new."""
        new = self._import(modules)
        if new:
            self._save()
        return new

    def _import(self, modules: Iterable[str]) -> bool:
        new = sorted(set(modules) - self._learned - self._avoided - set(sys.modules))
        for name in filter(_is_library, new):
            threads = thread_count()
            # A module that cannot be imported here is left to the ranks, as before.
            with contextlib.suppress(Exception):
                importlib.import_module(name)
            (self._learned if thread_count() == threads else self._avoided).add(name)
        return any(map(_is_library, new))

    def _save(self) -> None:
        """Keep the list; a read-only environment only costs the next start its warm-up."""
        with contextlib.suppress(OSError):
            self._path.parent.mkdir(parents=True, exist_ok=True)
            fresh = self._path.with_name(f"{self._path.name}.{os.getpid()}")
            fresh.write_text(json.dumps({"import": sorted(self._learned), "avoid": sorted(self._avoided)}))
            fresh.replace(self._path)
