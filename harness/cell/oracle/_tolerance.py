"""How far run and twin may differ, per precision: the one table, with the reason for each.

Both figures are relative L2 errors over one parameter, so they do not depend on its size or
scale: of the gradient against the twin's, and of the weights after a step against the twin's,
relative to how far that step carries.  Frozen parameters have no tolerance: bit-equal.

Measured on clean runs (DeepSpeed 0.19.8, CPU, stages 0 to 3, 1 to 4 ranks, AdamW and SGD,
accumulation and clipping) and on the smallest planted faults (``tests/test_verdicts.py``):

==============  ============  =========  ============  ========================================
figure          clean, up to  tolerance  faults, from  which
==============  ============  =========  ============  ========================================
gradient, fp32  3.1e-7        1e-4       2.3e-3        ranks exchange gradients in bf16
gradient, bf16  4.3e-3        5e-2       6.3e-1        one of two ranks adds nothing to the sum
step            7.6e-6        1e-4       2.0e-3        weight decay 0 instead of 0.1
==============  ============  =========  ============  ========================================
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
    # shards are summed.  The twin's optimizer steps by the gradient that the run had, so a step
    # differs at most by the rounding of a clipping norm.
    "fp32": Tolerance(grad=1e-4, update=1e-4),
    # DeepSpeed rounds a gradient to bfloat16 (8 bits: 0.4 %) once per rank and micro-batch while
    # it sums; the twin sums in fp32.  Masters are fp32, so the step is held as tightly as there.
    "bf16": Tolerance(grad=5e-2, update=1e-4),
}
