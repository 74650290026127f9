"""``thawcheck cases``: what there is to run."""

from __future__ import annotations

import argparse
import json
from typing import Any

from harness.cell._catalog import shipped
from harness.cell._kinds import KINDS
from harness.control._exit import Exit, Usage

__all__ = ["add_to", "execute"]


def add_to(commands: Any) -> None:
    parser = commands.add_parser("cases", help="list the cases", description="List the shipped cases.")
    parser.add_argument("--json", action="store_true", help="as JSON, with every variant")
    parser.add_argument("--kind", metavar="KIND", help="only those of one fault kind, A to Q or CONTROL")
    parser.set_defaults(execute=execute)


def execute(args: argparse.Namespace) -> Exit:
    if args.kind is not None and args.kind not in KINDS:
        raise Usage(f"--kind: no kind is called {args.kind!r}; there is: {', '.join(KINDS)}")
    cases = [case for case in shipped() if args.kind in (None, case.kind)]
    if args.json:
        plain = [
            {
                "name": case.name,
                "kind": case.kind,
                "summary": case.summary,
                "recipe": case.recipe,
                "moment": case.moment,
                "happens": case.happens,
                "why": case.why,
                "instead": case.instead,
                "cure": case.cure,
                "refs": case.refs,
                "world": case.world,
                "variants": [options.id for options in case.variants],
            }
            for case in cases
        ]
        print(json.dumps(plain, indent=2))
        return Exit.OK
    width = max((len(case.name) for case in cases), default=0)
    for case in cases:
        print(f"{case.name:<{width}}  {case.kind:<7}  {len(case.variants):>2} variants  {case.summary}")
    return Exit.OK
