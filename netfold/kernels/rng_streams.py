"""Streams of random numbers: the value in `mix` that keeps draws with one key, for different ends, apart.

Do not change a number: another number is another draw, and changes results.
"""

from __future__ import annotations

# After a scenario's seed: draws for the fate of a packet on its links.
WORKER_PACKET = 1  # a packet from a worker to its switch
RESULT = 2  # a result from a switch to a worker
FLOW_PACKET = 3
FLOW_ACK = 4
LOOPBACK = 5  # a result or partial on its switch's loopback
PARTIAL = 10  # a partial from a switch to its parent
DOWN_RESULT = 11  # a result from a switch to a child switch
TIMER_RESULT = 12  # RESULT and LOOPBACK of a slot whose timer has fired
TIMER_LOOPBACK = 18
SERVER_REPLY = 16  # ATP: from the server to its switch, and from there to a worker
SERVER_RESULT = 17

# After a scenario's seed: all other draws.
RING_MERGE = 6  # bits that survive a SIGN merge on a ring
SIGN_MERGE = 13  # and on a switch
SERVER_MERGE = 24  # and at a parameter server
GATHERED_MERGE = 25  # and of messages that every worker has gathered
FLOW_ROUTE = 7  # key by which a flow takes one of equal paths
SWITCH_ROUTE = 8  # path of an aggregation tree
SPRAY = 50  # path of a packet that is sprayed
VALIANT = 51  # not after the seed: a flow's intermediate group
FLOWLET = 57  # path of a flowlet
JITTER = 9  # extra wait of a retransmitted unit
FIRST_ENTRY = 14  # ATP: entry of a position in a worker's window
PROPOSED_ENTRY = 15  # ATP: entry that the server proposes after a collision
PLACEMENT = 52  # order in which workers take hosts
BURST_CHAIN = 19  # steps of a link's chain
RANDOM_K = 26  # elements that codec random_k sends
BIRD = 29  # rows that codecs bird and bird_plus keep
BIRD_SECOND = 30  # and of those, the rows that they send; also of bird_shared
BIRD_SHARED = 31  # rows that codec bird_shared keeps, and how norms are rounded for it
REPEAT_SEED = 53  # seeds of a variant's or a point's repeats
DEVICE_JITTER = 54  # how much slower or faster than usual a worker's device is in a step
JOB_ARRIVALS = 56  # gaps between the jobs of a template
COUNT_SKETCH = 48  # counters and signs of codec count_sketch

# After a packet's key.
FATE = 32  # + the fate; LOSS has none
FLIPPED_WORD = 40
FLIPPED_BIT = 41
COPY = 42  # key of a copy

FILTER = 0xB100F  # after a round: hashes of a Bloom filter

RING_FLOW_SEED = 5  # a seed, not a stream: keys of a ring's flows; the engine adds to it
