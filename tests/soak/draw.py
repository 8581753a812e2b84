"""Scenario number i of a seed: networks, programs, codecs, gradients, jobs and faults, alone and together.

The generator is keyed by (seed, number), so each scenario can be drawn alone. About one in ten breaks a
rule of scenarios, on purpose or by chance, and has to be refused with a message.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from typing import Any, get_args

import networkx as nx

import netfold.sim.scenario.faults
from netfold.topologies.files.node_link import to_json
from netfold.topologies.graph import LinkSpec, add_host, add_link, add_switch, new_graph

Mapping = dict[str, Any]
BUFFERS = ["8KB", "64KB", "16MiB", "16MiB", "16MiB"]
RATES = ["1Gbps", "10Gbps", "25Gbps", "100Gbps", "100Gbps"]
DELAYS = ["0ps", "100ns", "1us", "1us", "5us"]
INTEGERS, VALUES = ["block_exponent", "exact"], ["block_exponent", "exact", "float32"]
TRANSFORMS = ["as drawn"] * 6 + ["denormal", "huge", "cancelling", "wide", "zero", "spike"]
HAS_BURSTS = any(
    "burst_loss" in str(kind.model_fields["kind"].annotation)
    for kind in get_args(get_args(netfold.sim.scenario.faults.Fault)[0])
)


@dataclass
class Drawn:
    """A scenario, the files beside it, and the transformation of its gradients."""

    scenario: Mapping
    files: dict[str, str] = field(default_factory=dict)
    transform: str = "as drawn"

    @property
    def faults(self) -> list[Mapping]:
        """The injected faults."""
        faults: list[Mapping] = self.scenario["faults"]
        return faults


def draw(seed: int, number: int) -> Drawn:
    """Draw one scenario."""
    chance = random.Random(f"{seed}/{number}")
    return _Drawing(chance).all()


class _Drawing:
    def __init__(self, chance: random.Random) -> None:
        self.chance = chance
        self.files: dict[str, str] = {}
        self.switches = ["s0"]

    def one(self, *values: Any) -> Any:
        return self.chance.choice(values)

    def maybe(self, share: float) -> bool:
        return self.chance.random() < share

    def all(self) -> Drawn:
        workers = self.one(1, 2, 2, 3, 3, 4, 4, 5, 6, 8)
        several = self.maybe(0.15)
        part = self.collective()
        scenario: Mapping = {
            "name": "soak",
            "seed": self.chance.randrange(2**31),
            "topology": self.topology(
                part["switch"], 2 * workers + 1 if several else workers + self.one(0, 1, 2)
            ),
            "workers": {"count": workers, "placement": self.one("pack", "spread")},
            "workload": self.workload(),
            "device": self.device(),
            "codec": part["codec"],
            "collective": part["collective"],
        }
        if part["profiles"]:
            scenario["profiles"] = part["profiles"]
        if several:
            scenario["jobs"] = self.jobs(part, workers)
        scenario["faults"] = self.faults(workers)
        return Drawn(scenario, self.files, self.one(*TRANSFORMS))

    # The network.

    def links(self) -> Mapping:
        return {"rate": self.one(*RATES), "delay": self.one(*DELAYS), "buffer": self.one(*BUFFERS)}

    def topology(self, switch: str, hosts: int) -> Mapping:
        kind = self.one("star", "star", "leaf_spine", "leaf_spine", "file")
        if kind == "file":
            return self.graph(switch, hosts)
        common = {"kind": kind, **self.links(), "switch": switch}
        if kind == "star":
            return {**common, "hosts": hosts}
        leaves = self.one(1, 2, 2, 3)
        shape = {"leaves": leaves, "spines": self.one(1, 1, 2, 3), "hosts_per_leaf": -(-hosts // leaves)}
        self.switches = [f"leaf{n}" for n in range(leaves)] + [f"spine{n}" for n in range(shape["spines"])]
        return {**common, **shape, "uplink_rate": self.one(common["rate"], *RATES)}

    def graph(self, switch: str, hosts: int) -> Mapping:
        """Switches in a tree, perhaps with an extra link; switches can differ."""
        count = self.one(2, 3, 4, 5)
        self.switches = [f"x{n}" for n in range(count)]
        graph: nx.Graph = new_graph("drawn")
        for index in range(hosts):
            add_host(graph, f"h{index}")
        for name in self.switches:
            add_switch(graph, name, 1, switch if self.maybe(0.8) else self.one("plain", "ideal"))
        for index in range(hosts):
            add_link(graph, f"h{index}", self.switches[index % count], self.link())
        for index in range(1, count):
            add_link(graph, self.switches[self.chance.randrange(index)], self.switches[index], self.link())
        if count > 2 and self.maybe(0.5) and not graph.has_edge("x0", f"x{count - 1}"):
            add_link(graph, "x0", f"x{count - 1}", self.link())
        self.files["net.json"] = to_json(graph)
        return {"kind": "file", "path": "net.json"}

    def link(self) -> LinkSpec:
        return LinkSpec(self.one(10**9, 10**10, 10**11), self.one(0, 10**5, 10**6), self.one(10**4, 1 << 24))

    # The jobs.

    def jobs(self, part: Mapping, workers: int) -> list[Mapping]:
        second: Mapping = {"name": "b", "workers": self.chance.randint(1, workers)}
        if self.maybe(0.4):
            other = self.collective(part["switch"])
            second |= {"codec": other["codec"], "collective": other["collective"]}
        if self.maybe(0.3):
            second["start"] = self.time()
        return [{"name": "a"}, second]

    def workload(self) -> Mapping:
        if self.maybe(0.02):
            return {"kind": "training", "model": "mlp", "batch": 16, "steps": self.one(1, 2)}
        elements = self.one(
            1, 2, 63, 64, 65, 256, 1000, self.chance.randint(1, 4000), self.chance.randint(1, 4000)
        )
        written: Mapping = {
            "kind": "synthetic",
            "elements": elements,
            "steps": self.one(1, 1, 2, 3),
            "density": self.one(0.0, 0.01, 0.05, 0.3, 1.0, 1.0),
            "pattern": self.one("iid", "iid", "rows", "columns", "blocks"),
            "row_elements": self.one(1, 16, 64),
            "overlap": self.one(0.0, 0.5, 1.0),
            "distribution": self.one("normal", "lognormal", "loguniform", "integer"),
        }
        if self.maybe(0.3):
            written["bucket"] = self.one("256B", "1000B", "4KiB")
        return written

    def device(self) -> Mapping:
        kind = self.one("none", "none", "fixed", "roofline")
        if kind == "fixed":
            rate = {"memory_rate": "100Gbps"} if self.maybe(0.5) else {}
            return {"kind": kind, "forward": "3us", "backward": self.one("0us", "20us"), **rate}
        return {"kind": kind, "model": "v100"} if kind == "roofline" else {"kind": kind}

    def codec(self, values: list[str]) -> Mapping:
        """Any codec whose words can be added as the network can; some options are not allowed."""
        kind = self.one(
            "fixed_point", "factor", "exact", "packed", "block_sparse", "lossless", "lossless", "auto"
        )
        if "float32" in values and self.maybe(0.2):
            return {"kind": "none"}
        block = {"block_elements": self.one(64, 256, 4096)} if self.maybe(0.4) else {}
        chosen = {"values": self.one(*values)}
        index = {"index": self.one("flat", "two_level", "bloom")}
        match kind:
            case "fixed_point":
                return {"kind": kind, **block}
            case "factor":
                return {"kind": "fixed_point", "factor": self.one(1.0, 1e3, 1e6, 1e6, 1e8)}
            case "exact":
                return {"kind": kind, **block}
            case "packed":
                return {"kind": kind, **chosen, **index, **block}
            case "block_sparse":
                style = {"blocks": self.one("lookahead", "bitmap"), "columns": self.one(1, 4, 512)}
                return {"kind": kind, **chosen, **style}
            case "auto":
                return {"kind": kind, **chosen}
        setting = self.one("repaired", "repaired", "rotated", "published")
        written = {"kind": kind, "setting": setting, **chosen}
        if setting == "published":
            return {**written, "ratio": self.one(1.5, 5, 10, 50), "index_bits": self.one(1, 4)}
        load = {"load": self.one(0.05, 0.3, 0.77, 0.81)} if self.maybe(0.6) else {}
        return {**written, "schedule": self.one("staged", "concurrent"), **index, **load, **block}

    def collective(self, switch: str = "") -> Mapping:
        """A program, a switch that can run it (mostly), and a codec that it can carry (mostly)."""
        program = self.one(
            "switchml", "switchml", "switchml", "atp", "timed", "tree", "tree", "ring", "torus_2d"
        )
        profiles: list[Mapping] = []
        factor = {"kind": "fixed_point", "factor": self.one(1e3, 1e6)}
        waits = {"timeout": self.one("300us", "2ms"), "first_timeout": "2ms"}
        common: Mapping = {"kind": "in_network", "program": program, "slots": self.one(4, 8, 64)}
        match program:
            case "ring" | "torus_2d":
                own = self.one("tofino1", "plain", "ideal")
                window = self.one(1, 4, 32, 512)
                written: Mapping = {
                    "kind": program,
                    "window": window,
                    "ack_every": self.one(1, min(4, window)),
                }
                written["frame"] = self.one("udp-256", "udp-1024", "roce-1024", "roce-2048")
                codec = self.codec(VALUES)
            case "switchml":
                own = self.one("tofino1", "tofino1", "tofino2", "ideal", "fpga", "trio", "mine")
                if own == "mine":
                    profiles = [
                        {"name": own, "like": self.one("tofino1", "fpga"), "overflows": ["saturate", "wrap"]}
                    ]
                written = {**common, **waits, "timeout_max": "4ms"}
                written["frame"] = self.one("udp-256", "udp-1024", "roce-1024")
                written["aggregators"] = self.one("auto", "one", "tree")
                if own in ("ideal", "fpga", "mine") or self.maybe(0.1):
                    written["overflow"] = self.one("auto", "wrap", "saturate", "sticky")
                codec = self.codec(VALUES if own in ("ideal", "fpga") else INTEGERS)
            case "tree":
                own = self.one("sharp", "ideal")
                written = {**common, "slots": self.one(4, 16)}
                written["aggregators"] = self.one("auto", "one", "tree")
                codec = self.codec(VALUES)
            case "timed":
                own = self.one("trio", "ideal")
                written = {
                    **common,
                    **waits,
                    "timeout_max": "4ms",
                    "slot_timer": self.one("5us", "50us", "1ms"),
                }
                codec = self.one(factor, factor, factor, {"kind": "none"})
            case _:
                own, codec = self.one("tofino1", "ideal", "fpga"), factor
                written = {
                    **common,
                    **waits,
                    "slots": self.one(8, 100),
                    "entries": self.one(100, 200, 20_000),
                }
                written["adaptive"] = self.one(True, False)
        return {"switch": switch or own, "profiles": profiles, "codec": codec, "collective": written}

    # The faults.

    def time(self) -> str:
        return f"{round(10 ** self.chance.uniform(-1, 2.5), 3)}us" if self.maybe(0.9) else "0us"

    def places(self) -> list[str]:
        return [self.one("*", "*", "h0->*", "*->h1", "h1->*", f"*->{self.one(*self.switches)}")]

    def faults(self, workers: int) -> list[Mapping]:
        count = self.one(0, 0, 1, 1, 1, 2, 2, 3, 4)
        return [self.fault(workers) for _ in range(count)]

    def fault(self, workers: int) -> Mapping:
        on_packets = [
            "loss",
            "loss",
            "corruption",
            "duplicate",
            "reorder",
            *(["burst_loss"] if HAS_BURSTS else []),
        ]
        on_links = ["link_down", "link_rate", "switch_reboot"]
        on_workers = ["worker_crash", "worker_pause", "start_skew", "slow_host"]
        kind = self.one(*on_packets, *on_packets, *on_links, *on_links, *on_workers)
        written: Mapping = {"kind": kind}
        if kind in on_packets:
            return written | self.on_packets(kind)
        if kind == "switch_reboot":
            clears = self.one("registers", "tables", "both")
            lasts = {} if clears == "registers" else {"for": self.time()}
            return written | {
                "switch": self.one(*self.switches),
                "at": self.time(),
                "clears": clears,
                **lasts,
            }
        if kind in on_links:
            rate = {"rate": self.one("100Mbps", "1Gbps")} if kind == "link_rate" else {}
            lasts = {} if self.maybe(0.1) else {"for": f"{1 + self.chance.randrange(200)}us"}
            return written | {"links": self.places(), "at": self.time(), **lasts, **rate}
        written["worker"] = self.chance.randrange(workers)
        match kind:
            case "worker_crash":
                return written | {"at": self.time()}
            case "worker_pause":
                return written | {"at": self.time(), "for": f"{1 + self.chance.randrange(100)}us"}
            case "start_skew":
                return written | {"delay": f"{1 + self.chance.randrange(300)}us"}
        return written | {"factor": self.one(1.5, 10.0)}

    def on_packets(self, kind: str) -> Mapping:
        written: Mapping = {"links": self.places()}
        if self.maybe(0.2):
            written |= {"from": "5us", "until": f"{6 + self.chance.randrange(200)}us"}
        if kind == "burst_loss":
            return written | {"good_to_bad": self.one(0.001, 0.02), "bad_to_good": self.one(0.1, 0.5)}
        written["rate"] = self.one(0.0, 0.001, 0.02, 0.05, 0.2)
        match kind:
            case "corruption":
                written["detected"] = self.one(True, False)
            case "duplicate":
                written["delay"] = self.one("0us", "3us", "100us", "3ms")
            case "reorder":
                written["delay"] = self.one("1us", "3us", "100us", "3ms")
        return written
