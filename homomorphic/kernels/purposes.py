"""What keyed numbers are for: the value of `mix` that keeps the draws of one key apart, once for all code.

Numbers stay what they are: another number is another draw, and other results.
"""

# Behind a scenario's seed: what decides the fate of a packet on its links, …
WORKER_PACKET = 1  # from a worker to its switch
RESULT = 2  # from a switch to a worker
FLOW_PACKET = 3
FLOW_ACK = 4
LOOPBACK = 5  # a result or partial on its switch's loopback
PARTIAL = 10  # from a switch to its parent
DOWN_RESULT = 11  # from a switch to a child that is one
TIMER_RESULT = 12  # RESULT and LOOPBACK of a slot whose timer has fired
TIMER_LOOPBACK = 18
SERVER_REPLY = 16  # ATP: from the server to its switch, and from there to a worker
SERVER_RESULT = 17

# … and all else.
RING_MERGE = 6  # bits that survive where a ring merges by SIGN, …
SIGN_MERGE = 13  # … and where a switch does
RING_ROUTE = 7  # path of a worker's flow among equal ones
SWITCH_ROUTE = 8  # path between a worker and its switch
JITTER = 9  # how much longer a unit waits that was sent again
FIRST_ENTRY = 14  # ATP: entry of a place in a worker's window
PROPOSED_ENTRY = 15  # ATP: entry that the server proposes after a collision
BURST_CHAIN = 19  # steps of a link's chain

# Behind a packet's key.
FATE = 32  # + the fate; LOSS has none
FLIPPED_WORD = 40
FLIPPED_BIT = 41
COPY = 42  # key of a copy

FILTER = 0xB100F  # behind a round: hashes of a Bloom filter

RING_FLOW_SEED = 5  # a seed, no purpose: keys of a ring's flows, to which the engine adds its own
