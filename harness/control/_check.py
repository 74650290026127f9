"""``thawcheck check``: will this configuration train what its author thinks it trains?"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any, Final

from harness.cell.ranks._device import DEVICES
from harness.control._exit import Exit, Usage, help_texts
from harness.preflight._check import Asked, check
from harness.preflight._dialects import DIALECTS
from harness.preflight._finding import Level
from harness.preflight._report import as_dict, as_text

__all__ = ["add_to", "execute"]

_EXITS: Final = {Level.INPUT: Exit.USAGE, Level.WRONG: Exit.DIFFERS, Level.UNKNOWN: Exit.FAILED}


def add_to(commands: Any) -> None:
    parser = commands.add_parser(
        "check",
        help="tell what a configuration of one's own will train, before it does",
        **help_texts(
            "Read a model's configuration and what trains it, without weights and without the network; tell what each "
            "pattern matches and what is known to go wrong on the versions installed here; then train a tiny model "
            "of the same architecture on two ranks.",
            {
                Exit.OK: "safe, or safe but for what is told",
                Exit.DIFFERS: "not safe",
                Exit.USAGE: "bad usage or input",
                Exit.FAILED: "nothing wrong was found, and two ranks could not be had; or the harness itself failed",
            },
        ),
    )
    what = parser.add_argument_group("what to check")
    what.add_argument("--axolotl", type=Path, metavar="FILE", help="an Axolotl configuration")
    what.add_argument("--model", metavar="PATH", help="a model's folder, its config.json, or a safetensors file")
    what.add_argument("--deepspeed", type=Path, metavar="FILE", help="a DeepSpeed JSON")
    what.add_argument("--trainer", type=Path, metavar="FILE", help="arguments of the Trainer, as JSON or YAML")
    what.add_argument(
        "--train", action="append", metavar="PATTERN", help="parameters that are to train; again for more"
    )
    what.add_argument("--match", choices=[*DIALECTS], default="glob", help="how --train is read (default: glob)")
    parser.add_argument("--world", type=int, default=8, metavar="N", help="ranks of the real job (default: 8)")
    parser.add_argument("--trust-remote-code", action="store_true", help="run the code that comes with the model")
    parser.add_argument("--device", choices=DEVICES, default="cpu", help="where the two ranks train (default: cpu)")
    parser.add_argument("--fast", action="store_true", help="no ranks")
    parser.add_argument("--json", action="store_true", help="as JSON")
    parser.set_defaults(execute=execute)


def execute(args: argparse.Namespace) -> Exit:
    _refuse(args)
    result = check(
        Asked(
            axolotl=args.axolotl,
            model=args.model,
            deepspeed=args.deepspeed,
            trainer=args.trainer,
            train=tuple(args.train) if args.train else None,
            dialect=args.match,
            world=args.world,
            trust=args.trust_remote_code,
            fast=args.fast,
            device=args.device,
        )
    )
    print(json.dumps(as_dict(result, args.world), indent=2) if args.json else as_text(result, args.world))
    return _EXITS.get(result.level, Exit.OK)


def _refuse(args: argparse.Namespace) -> None:
    faults = []
    if args.axolotl is None and args.model is None:
        faults.append("name what to check: --axolotl FILE, or --model PATH with --deepspeed or --trainer")
    if args.axolotl is not None:
        also = [name for name in ("model", "deepspeed", "trainer", "train") if getattr(args, name) is not None]
        faults += [f"--axolotl says that itself: leave --{name} out" for name in also]
    elif args.model is not None and args.deepspeed is None and args.trainer is None:
        faults.append("--model: name what trains it, too: --deepspeed FILE or --trainer FILE")
    if args.world < 1:
        faults.append(f"--world must be 1 rank or more, found {args.world}")
    if faults:
        raise Usage("\n".join(faults))
