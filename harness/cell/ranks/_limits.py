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

#: Zygote start: imports are 5 to 8 s warm; a cold disk and two busy cores took over 40 s.  All of Axolotl are 7,200
#: modules and 22 s of processor time, which took 170 s on two cores that fifteen others shared.
ZYGOTE_START: Final = 360.0

#: What ranks imported within a case is all imported by then, or something in it waits for ever.
IMPORT: Final = 120

#: After this long without a tick, and with no processor time spent, a job counts as standing still,
#: and another may run beside it.
IDLE: Final = 1.0

#: Ranks on several machines import from a shared disk, each at its own pace, before they meet.
MEET: Final = 300.0

#: When to say that others are still awaited, so that a wait does not look like a hang.
MEET_NOTICE: Final = 15.0

#: How often a rank's keeper says that it is there, and looks for what the others say.
BEAT: Final = 0.25
LOOK: Final = 0.1

#: A keeper not heard of for so long is gone: twenty beats, and half of the time that makes a
#: HANG of the ranks that now wait for its rank.
GONE: Final = 5.0

#: After a launcher told us to end (it does when it lost a rank): how long to find out who is
#: gone, and how many missed beats tell it.  Launchers wait 30 s before they kill.
STOPPING: Final = 2.5
STOPPING_GONE: Final = 1.5

#: Once a job is over: how long its keepers have to dump stacks, end ranks and write what they
#: saw; less than two seconds where nothing is wrong, and a keeper that takes longer is gone.
GATHER: Final = 10.0
