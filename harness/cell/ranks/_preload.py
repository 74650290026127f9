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
import select
import signal
import sys
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import NoReturn

from harness.cell.ranks import _limits
from harness.cell.ranks._device import DEVICES
from harness.cell.ranks._releases import apply_measures
from harness.cell.ranks._stack import installed_versions
from harness.cell.ranks._start import own_session

__all__ = ["Preload", "thread_count"]

#: Imported always, where installed; their absence is reported, not fatal.
_NAMED = ("torch", "torch.distributed", "deepspeed", "transformers", "accelerate")
#: Needed by every case: without them nothing can be measured.
_NEEDED = ("torch", "deepspeed")
#: Never learned: the user's own modules may change between runs or do things when imported.
_LIBRARIES = frozenset(
    "torch deepspeed transformers accelerate peft trl axolotl safetensors tokenizers huggingface_hub numpy "
    "sympy mpmath networkx packaging pydantic pydantic_core yaml regex tqdm einops psutil jinja2 filelock "
    "fsspec requests httpx datasets pyarrow pandas".split()
)


def thread_count() -> int:
    """Threads of this process, those of extension modules included."""
    return len(list(Path("/proc/self/task").iterdir()))


def _is_library(name: str) -> bool:
    return name.partition(".")[0] in _LIBRARIES or name.partition(".")[0] in sys.stdlib_module_names


class Preload:
    """The list for one environment and device, kept at ``<prefix>/share/thawcheck``.

    :param stop: says that there is no more time to learn.
    """

    def __init__(self, device: str, stop: Callable[[], bool] = lambda: False) -> None:
        self._device = device
        self._stop = stop
        key = json.dumps([sys.version, device, installed_versions()], sort_keys=True)
        name = f"preload-{hashlib.sha256(key.encode()).hexdigest()[:16]}.json"
        self._path = Path(sys.prefix) / "share" / "thawcheck" / name
        self._learned: set[str] = set()
        #: modules whose import starts a thread, after which nothing may be forked
        self._avoided: set[str] = set()
        #: modules of which that is not known, since there was no time to try them
        self._untried: set[str] = set()

    def load(self, *, learned: bool = True) -> dict[str, str]:
        """Import everything; what is needed and could not be imported, with the reason.

        :param learned: what ranks were seen to import, too, which pays off from the second case on.
        """
        missing = {}
        backend = DEVICES[self._device].backend
        apply_measures("before_import", backend)
        for name in _NAMED:
            try:
                importlib.import_module(name)
                if name == "deepspeed":
                    apply_measures("after_import", backend)
            except Exception as error:  # noqa: BLE001  # old releases fail on import in every way there is
                if name in _NEEDED:
                    missing[name] = f"{type(error).__name__}: {error}"
        if learned and not missing:
            self._recall()
            self._import(self._learned)
            if thread_count() == 1:
                self.learn(self._untried)
        return missing

    def learn(self, modules: Iterable[str]) -> bool:
        """Import what ranks had to import, which may take seconds; True when something was new.

        Where there is no time, it is left to the next start.
        """
        new = self._unknown(modules)
        if not new:
            return False
        unsafe = _unsafe(new, self._stop)
        if unsafe is None:
            self._untried.update(new)
            self._save()
            return False
        self._avoided |= unsafe
        self._learned.update(new)
        self._save()  # first, whatever becomes of this process meanwhile
        self._import(new)
        return True

    def _unknown(self, modules: Iterable[str]) -> list[str]:
        known = self._learned | self._avoided | set(sys.modules)
        return sorted(name for name in modules if name not in known and _is_library(name))

    def _import(self, modules: Iterable[str]) -> None:
        for name in sorted(modules):
            if not (_below(name, self._avoided) or self._stop()):
                # A module that cannot be imported here is left to the ranks, as before.
                with contextlib.suppress(Exception):
                    importlib.import_module(name)

    def _save(self) -> None:
        """Keep the list, with what another zygote of this environment learned meanwhile; a
        read-only environment only costs the next start its warm-up."""
        self._recall()
        self._untried -= self._learned | self._avoided
        kept = {"import": self._learned, "avoid": self._avoided, "try": self._untried}
        fresh = self._path.with_name(f"{self._path.name}.{os.getpid()}")
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            fresh.write_text(json.dumps({key: sorted(names) for key, names in kept.items()}))
            fresh.replace(self._path)
        except OSError:
            with contextlib.suppress(OSError):
                fresh.unlink()

    def _recall(self) -> None:
        """Take in the kept list."""
        try:
            kept = json.loads(self._path.read_text())
            learned, avoided, untried = (set(map(str, kept[key])) for key in ("import", "avoid", "try"))
        except (OSError, ValueError, KeyError, TypeError):
            return
        self._learned |= learned
        self._avoided |= avoided
        self._untried |= untried


def _below(name: str, tops: Iterable[str]) -> bool:
    """Whether ``name`` is one of ``tops`` or inside one."""
    return any(name == top or name.startswith(f"{top}.") for top in tops)


def _unsafe(modules: Sequence[str], stop: Callable[[], bool]) -> set[str] | None:
    """Those whose import starts a thread, or ends the process: found out in forked children.

    None when stopped.  A thread cannot be taken back, and a zygote with two may never fork again; so each list is
    tried in a child first, which stops at the module to blame.
    """
    blamed: set[str] = set()
    while True:
        reading, writing = os.pipe()
        child = os.fork()
        if not child:
            _try(writing, [name for name in modules if not _below(name, blamed)])
        os.close(writing)
        said = _hear(reading, stop)
        os.close(reading)
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        if said is None:
            return None
        *tried, end = said.split("\n")
        if end == "all" or not tried:
            return blamed
        blamed.add(tried[-1])


def _hear(reading: int, stop: Callable[[], bool]) -> str | None:
    """All that comes through a pipe; None when stopped."""
    heard = b""
    while True:
        while not select.select([reading], [], [], 0.1)[0]:
            if stop():
                return None
        if not (more := os.read(reading, 1 << 16)):
            return heard.decode()
        heard += more


def _try(writing: int, modules: Sequence[str]) -> NoReturn:
    """In the child: import one after another, each named before it is tried."""
    try:
        own_session()
        signal.alarm(_limits.IMPORT)
        for name in modules:
            os.write(writing, f"{name}\n".encode())
            with contextlib.suppress(Exception):
                importlib.import_module(name)
            if thread_count() > 1:
                os._exit(0)
        os.write(writing, b"all")
    finally:
        os._exit(0)
