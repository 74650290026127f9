"""What single releases of a library need before they run on CPU ranks: one table.

Each measure says which releases it is for, and why; nothing else in the harness asks for a version.
None of them touches what decides who trains.
"""

from __future__ import annotations

import functools
import importlib.machinery
import importlib.util
import sys
from collections.abc import Callable
from dataclasses import dataclass
from types import ModuleType
from typing import Any, ClassVar, Final, Literal

from harness.cell.ranks._stack import installed_versions

__all__ = ["MEASURES", "Measure", "apply_measures"]

Moment = Literal["before_import", "after_import", "before_group"]


@dataclass(frozen=True)
class Measure:
    """One thing that is done for some releases of one package."""

    name: str
    package: str
    #: a version specifier; empty for every release
    versions: str
    moment: Moment
    why: str
    #: gets the backend of the process group
    act: Callable[[str], None]

    def is_for(self, backend: str) -> bool:
        """Whether the release that is installed needs it; ranks on GPUs need none."""
        from packaging.specifiers import SpecifierSet

        installed = installed_versions().get(self.package)
        return (
            backend == "gloo"
            and installed is not None
            and SpecifierSet(self.versions, prereleases=True).contains(installed)
        )


def _stand_in(*names: str) -> Callable[[str], None]:
    """Modules that are empty, where the real ones are not installed."""

    def act(_: str) -> None:
        for name in names:
            if name not in sys.modules and importlib.util.find_spec(name) is None:
                sys.modules[name] = ModuleType(name)
                sys.modules[name].__spec__ = importlib.machinery.ModuleSpec(name, None)

    return act


def _remove_stand_ins(_: str) -> None:
    for name in _INTEL:
        module = sys.modules.get(name)
        if module is not None and module.__spec__ is not None and module.__spec__.loader is None:
            del sys.modules[name]


def _switch_ops_off(_: str) -> None:
    ops = getattr(sys.modules.get("deepspeed"), "ops", None)
    table = getattr(ops, "__compatible_ops__", None)
    if table is not None:
        for name in ("deepspeed_shm_comm", "deepspeed_ccl_comm"):
            table[name] = False


def _name_backend(backend: str) -> None:
    from deepspeed.accelerator import get_accelerator

    get_accelerator()._communication_backend_name = backend  # noqa: SLF001  # there is no other way to say it


class _InOrder:
    """The handle of a collective that is complete only when all before it are, as on one CUDA stream."""

    _under_way: ClassVar[list[Any]] = []

    def __init__(self, work: Any) -> None:
        self._work = work
        self._under_way.append(work)

    def wait(self, *args: Any, **kwargs: Any) -> Any:
        while self._work in self._under_way:
            self._under_way.pop(0).wait(*args, **kwargs)
        return self._work.wait(*args, **kwargs)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._work, name)


def _gather_in_order(_: str) -> None:
    from deepspeed.comm.torch import TorchBackend

    for name in ("all_gather", "all_gather_base", "all_gather_into_tensor"):
        original = getattr(TorchBackend, name, None)
        if original is not None and not hasattr(original, "in_order"):
            setattr(TorchBackend, name, _in_order(original))


def _in_order(original: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    def gather(*args: Any, **kwargs: Any) -> Any:
        work = original(*args, **kwargs)
        return _InOrder(work) if kwargs.get("async_op") and work is not None else work

    gather.in_order = True  # type: ignore[attr-defined]
    return gather


_INTEL: Final = ("intel_extension_for_pytorch", "oneccl_bindings_for_pytorch")

MEASURES: Final = (
    Measure(
        "Intel's packages stood in for",
        "deepspeed",
        "<0.14.1",
        "before_import",
        "the CPU accelerator refuses to be chosen unless both can be imported, and uses neither under gloo",
        _stand_in(*_INTEL),
    ),
    Measure(
        "stand-ins taken away",
        "deepspeed",
        "<0.14.1",
        "after_import",
        "accelerate and transformers look for the same packages, and would use what they found",
        _remove_stand_ins,
    ),
    Measure(
        "optional communication ops off",
        "deepspeed",
        "",
        "after_import",
        "the shared-memory op is compiled at the first init_distributed (30 to 80 s), releases share its build "
        "folder, and it leaks 66 MiB a rank in /dev/shm; without a compiler it would be off as well",
        _switch_ops_off,
    ),
    Measure(
        "backend named",
        "deepspeed",
        "<0.14.1",
        "before_group",
        "the CPU accelerator insists on the ccl backend, and the group is gloo's",
        _name_backend,
    ),
    Measure(
        "gathers complete in order",
        "deepspeed",
        "<0.19.8",
        "before_group",
        "of the gathers of several parameters it awaits the last alone, which is enough on a CUDA stream; gloo's end "
        "in any order, and weights are read half gathered (2 of 300 runs on 0.16.9; deepspeedai/DeepSpeed#8539)",
        _gather_in_order,
    ),
)


def apply_measures(moment: Moment, backend: str) -> None:
    """Do what the installed releases need at ``moment``; repeating it does no harm."""
    for measure in MEASURES:
        if measure.moment == moment and measure.is_for(backend):
            measure.act(backend)
