"""How far run and twin may differ, per precision: the one table, with the reason for each.

Both figures are relative L2 errors over one parameter, so they do not depend on its size or
scale: of the gradient against the twin's, and of the weights against the twin's, relative to
how far the twin's have moved since the start.  Frozen parameters have no tolerance: bit-equal.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

__all__ = ["TOLERANCES", "Tolerance"]


@dataclass(frozen=True)
class Tolerance:
    grad: float
    update: float


TOLERANCES: Final = {
    # Ranks and twin run the same kernels on the same shards and differ in the order in which
    # shards are summed.
    "fp32": Tolerance(grad=1e-4, update=2e-3),
    # Gradients are averaged and kept in bfloat16 (8 bits: 0.4 % per rounding) by DeepSpeed, in
    # fp32 by the twin; Adam passes that on to the step of elements whose gradient is small.
    "bf16": Tolerance(grad=2e-2, update=5e-2),
}
