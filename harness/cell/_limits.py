"""Every deadline of the runner, in seconds, each with its reason.  One place per decision."""

from __future__ import annotations

from typing import Final

#: No tick from any rank for this long is a HANG.  A healthy two-rank tiny-Llama case takes
#: about half a second altogether, so ten is twenty times its whole life.
PROGRESS: Final = 10.0

#: Ranks started by spawn import torch, DeepSpeed and transformers first: 4 to 14 s measured on
#: two busy cores, when nothing ticks inside one long extension-module import.
SPAWN_START: Final = 120.0

#: After one rank raised, how long its peers may still report an error of their own (the same
#: AssertionError on every rank is the common case) before they count as blocked and are ended.
PEER_GRACE: Final = 0.5

#: faulthandler prints from its signal handler within 0.2 s even inside a blocked collective.
STACK_DUMP: Final = 0.6

#: Ranks that reported are released and leave by ``os._exit``; what is still there is killed.
EXIT: Final = 2.0

#: Zygote start: imports are 5 to 8 s warm; a cold disk and two busy cores took over 40 s.
ZYGOTE_START: Final = 180.0
