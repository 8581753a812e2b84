"""What bounds a job: its aggregation time, split into parts that add up to 100 %.

The time to split is `aggregation_ps` of all finished steps: the time in which some bucket was being
aggregated, from the first worker's encoding to the last worker's decoded result. It is split in two stages,
from the records of the run and the samples of its network alone. Nothing is taken from the scenario.

**1. The critical path** (`path.py`). Each round is walked backwards from its end, at the worker that finished
last. Where rounds overlap, the time counts for the one that began first, as in `results/breakdown.py`.

- While a worker encodes or decodes, its *device* bounds the round, with that stage. What it takes longer
  than the median of the workers at the same place is a *straggler*'s: without that worker it would not
  be there.
- An operation on the network needs the words of all workers. So its network time begins when the last
  worker's does, and the walk goes on at that worker.
- While that worker waits for its device, or is not in the round yet, what its device does instead counts
  (*straggler* if it is not in the round: some other worker is).
- All else is *network* time.

**2. Network time** (`network_time.py`), sample by sample (`engine/observe/samples.py`). The *busiest link* of
a sample is, of the links that were busy for at least 95 % of what the busiest one was, the one that was busy
longest in all the network time of the job. Let b be its busy share of the sample, d the share of units that
senders wait for and of which no packet is on its way (they wait for a retransmission timer), and u the share
of senders that have more to send than their window allows. In this order:

    b >= 95 %                    all of it *link* (*loopback* if it leads from a switch to itself, *host* if
                                 it is what a host does for packets)
    no unit is waited for, and   b link, the rest *merging*: of all that an operation does, only hosts
    no packet is on its way      that merge leave the network empty. So is network time without samples,
                                 which are taken while some process waits for the network
    nothing began or ended in    d *timer*, (1 - d)·u *window*; of the remaining (1 - d)·(1 - u): b link and
    it, and u > 0                1 - b *latency*. Senders that have more to send, while no link is always
                                 busy, are held by their windows; so are the links, while they are busy
    otherwise                    b link; of the rest d timer, (1 - d)·u window, (1 - d)·(1 - u) latency:
                                 messages end and begin within the sample

*Latency* is thus the time in which packets are on their way, nobody has more to send, and no link is always
busy: delays and transmission of single packets, over hops one after the other.

**The bound** is the cause with the largest part. `faster` is what the same records say of a remedy: the
aggregation time over what it would be if that resource did twice as much (a link twice as fast, with all that
are as busy; twice the slots; a device, timer or delay of half the time), or, of a straggler, were like the
median. The time that a link or the window bounds cannot fall below the time for which any other link was busy
meanwhile. Other limits may come up, so it is an upper bound.

A sample has its 48 busiest links. How long others were busy follows from their busy time in all the run, so
all links that are as busy are counted.

Approximations: within a sample nothing is known of order, but a time when hosts merge and the network is
empty is a sample of its own if it is longer than 1/4096 of all time so far; samples are at most 1/16 of the
time that was waited until then; what senders wait for is the mean of what was found at the sample's ends.
"""

from netfold.sim.bounds.bound import Network, Part, bounds
from netfold.sim.bounds.causes import CAUSES, Cause

__all__ = ["CAUSES", "Cause", "Network", "Part", "bounds"]
