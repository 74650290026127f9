"""Builds every model of ``preflight_models`` on the meta device, real and tiny; a JSON line for each.

A process of its own: it imports torch, and its memory is measured.
"""

from __future__ import annotations

import json
import sys
import time

from preflight_models import MODELS

from harness.preflight._meta import Refused, answer


def main() -> None:
    for name, (config, _) in MODELS.items():
        if len(sys.argv) > 1 and name not in sys.argv[1:]:
            continue
        began = time.process_time()
        try:
            said = answer({"config": config, "shrink": 12})
        except Refused as error:
            said = {"fault": str(error)}
        print(json.dumps({"model": name, "seconds": time.process_time() - began, **said}), flush=True)


if __name__ == "__main__":
    main()
