"""What makes drawn values sensible: sizes that are quick to run, names that exist, keys that go together.

A new key or kind needs no hint: it is drawn from its schema. A hint is for what a schema cannot say.
"""

from __future__ import annotations

from typing import Any

import networkx as nx

from netfold.sim.workload.device_rooflines import HARDWARE
from netfold.topologies.graph import LinkSpec, add_host, add_link, add_switch, new_graph
from netfold.topologies.topology_files import to_json
from tests.soak import files
from tests.soak.language import language
from tests.soak.values import Fix, Hint, Scene, Section

GRAPHML = """<graphml xmlns="http://graphml.graphdrawing.org/xmlns"><graph id="g" edgedefault="undirected">
<node id="a"/><node id="b"/><node id="c"/><edge source="a" target="b"/><edge source="b" target="c"/>
</graph></graphml>"""


def of(*values: Any) -> Hint:
    """One of some values."""
    return lambda scene: scene.one(*values)


# Networks. Each kind gets room for the workers.


def _up(hosts: int, parts: int) -> int:
    return -(-hosts // parts)


def leaf_spine(scene: Scene, found: Section) -> None:
    leaves = scene.one(1, 2, 2, 3)
    found |= {"leaves": leaves, "spines": scene.one(1, 1, 2, 3), "hosts_per_leaf": _up(scene.hosts, leaves)}
    scene.switches = (*(f"leaf{n}" for n in range(leaves)), "spine0")


def fat_tree(scene: Scene, found: Section) -> None:
    k = scene.one(2, 4)
    found["k"] = k
    if "hosts_per_edge" in found or scene.hosts > k**3 // 4:
        found["hosts_per_edge"] = max(1, _up(scene.hosts, k * k // 2))
    for key in ("aggregations", "core_links"):
        if key in found:
            found[key] = scene.one(1, 1, 2)


def on_switches(key: str, *counts: int) -> Fix:
    """A network of some switches with hosts on each."""

    def fix(scene: Scene, found: Section) -> None:
        found[key] = scene.one(*counts)
        switches = 2 ** found[key] if key == "dimension" else found[key]
        found["hosts_per_switch"] = _up(scene.hosts, switches)

    return fix


def torus(scene: Scene, found: Section) -> None:
    found["dimensions"] = scene.one([2, 2], [3], [4], [2, 3], [2, 2, 2])
    switches = 1
    for size in found["dimensions"]:
        switches *= size
    found["hosts_per_switch"] = _up(scene.hosts, switches)


def clos(scene: Scene, found: Section) -> None:
    pods, edges, aggregations = scene.one(2, 3), scene.one(1, 2), scene.one(1, 2)
    found |= {"pods": pods, "edges_per_pod": edges, "aggregations": aggregations}
    found |= {"cores": aggregations * scene.one(1, 2), "hosts_per_edge": _up(scene.hosts, pods * edges)}


def slim_fly(scene: Scene, found: Section) -> None:
    found |= {"q": 3, "hosts_per_switch": _up(scene.hosts, 18)}


def jellyfish(scene: Scene, found: Section) -> None:
    on_switches("switches", 4, 6)(scene, found)
    found["degree"] = scene.one(2, 3)


def dragonfly(scene: Scene, found: Section) -> None:
    routers, links = scene.one(1, 2), scene.one(1, 2, 2)
    groups = scene.chance.randint(max(2, links + 1), max(2, routers * links + 1))
    found |= {"groups": groups, "routers_per_group": routers, "global_links": links}
    found["hosts_per_router"] = _up(scene.hosts, groups * routers)


def bcube(scene: Scene, found: Section) -> None:
    n, k = scene.one((2, 1), (2, 2), (3, 1), (4, 0))
    found |= {"n": n if n ** (k + 1) >= scene.hosts else 4, "k": k if n ** (k + 1) >= scene.hosts else 1}


def rail_optimized(scene: Scene, found: Section) -> None:
    pods, islands = scene.one(1, 1, 2), scene.one(1, 2)
    found |= {"pods": pods, "islands_per_pod": islands, "spines": scene.one(1, 2)}
    found["gpus_per_island"] = max(2, _up(scene.hosts, pods * islands))


def topology_file(scene: Scene, found: Section) -> None:
    if scene.maybe(0.4):
        scene.files["net.graphml"] = GRAPHML.encode()
        found |= {"path": "net.graphml", "hosts_per_switch": _up(scene.hosts, 3)}
        return
    found["path"] = "net.json"
    for key in ("hosts_per_switch", "rate", "delay", "buffer", "switch"):
        found.pop(key, None)
    scene.files["net.json"] = to_json(_graph(scene)).encode()


def _graph(scene: Scene) -> nx.Graph:
    """Switches in a tree, perhaps with an extra link; switches can differ."""
    count = scene.one(2, 3, 4)
    scene.switches = tuple(f"x{n}" for n in range(count))
    profile = switch(scene)
    graph: nx.Graph = new_graph("drawn")
    for index in range(scene.hosts):
        add_host(graph, f"h{index}")
    for name in scene.switches:
        add_switch(graph, name, 1, profile if scene.maybe(0.8) else scene.one("plain", "ideal"))

    def link() -> LinkSpec:
        return LinkSpec(
            scene.one(10**9, 10**10, 10**11), scene.one(0, 10**5, 10**6), scene.one(10**5, 1 << 24)
        )

    for index in range(scene.hosts):
        add_link(graph, f"h{index}", scene.switches[index % count], link())
    for index in range(1, count):
        add_link(graph, scene.switches[scene.chance.randrange(index)], scene.switches[index], link())
    if count > 2 and scene.maybe(0.5) and not graph.has_edge("x0", f"x{count - 1}"):
        add_link(graph, "x0", f"x{count - 1}", link())
    return graph


def switch(scene: Scene) -> str:
    """A profile that can run the program, mostly."""
    able = {
        "switchml": ("tofino1", "tofino2", "ideal", "fpga", "fpga", "trio", *scene.profiles),
        "tree": ("sharp", "sharp", "ideal"),
        "timed": ("trio", "ideal"),
        "atp": ("tofino1", "ideal", "fpga"),
    }
    program = scene.kinds.get("collective.program", "")
    if program in able and scene.maybe(0.95):
        return str(scene.one(*able[program]))
    return str(scene.one("ideal", "ideal", "ideal", "tofino1", *scene.profiles))


def links_of(scene: Scene) -> Any:
    return [scene.one("*", "*", "h0->*", "*->h1", "h1->*", f"*->{scene.one(*scene.switches)}")]


def time_of(scene: Scene) -> str:
    return f"{round(10 ** scene.chance.uniform(-1, 2.5), 3)}us" if scene.maybe(0.9) else "0us"


# Workers, workloads, devices.


def workers(scene: Scene) -> Any:
    return scene.workers


def placement(scene: Scene) -> Any:
    if wanted := scene.kinds.get("workers.placement"):
        return wanted
    return [f"h{n}" for n in range(scene.workers)]


def all_workers(scene: Scene) -> Any:
    if "workers.placement" in scene.kinds or scene.maybe(0.3):
        return {"count": scene.workers, "placement": placement(scene)}
    return scene.workers


def synthetic(scene: Scene, found: Section) -> None:
    """Exactly one of the keys that say how large a gradient is."""
    size = (
        "tensors"
        if scene.kinds.get("device") == "trace"
        else scene.one("elements", "elements", "tensors", "tensors", "profile")
    )
    for key in ("elements", "tensors", "profile", "shrink"):
        if key != size:
            found.pop(key, None)
    if size == "elements":
        found[size] = scene.one(1, 2, 63, 64, 65, 256, 1000, scene.chance.randint(1, 3000))
    elif size == "tensors":
        three = ["t0=100", "t1=10x10", "t2=100"]
        found[size] = (
            three
            if scene.kinds.get("device") == "trace"
            else scene.one(three, three, ["w=4x16", 5], [1, 700], ["30x20"])
        )
    else:
        found |= {
            size: files.layer_profile(scene),
            **({"shrink": scene.one(1, 2, 10)} if scene.maybe(0.5) else {}),
        }
    short(scene, found)


def short(scene: Scene, found: Section) -> None:
    """`bucket` is short for a fusion."""
    if "fusion" in found:
        found.pop("bucket", None)


def gradient_file(scene: Scene, found: Section) -> None:
    found["path"] = files.gradient_file(scene, bool(found.get("per_step")))
    short(scene, found)


def recording(scene: Scene, found: Section) -> None:
    found["path"] = files.recording(scene)
    short(scene, found)


def chakra(scene: Scene, found: Section) -> None:
    found["path"] = files.chakra(scene)
    if "group" in found and scene.maybe(0.7):
        found.pop("group")
    short(scene, found)


DATA = {"mlp": "digits", "mlp_784": "digits", "cnn": "digits", "ncf": "movielens-100k"}


def training(scene: Scene, found: Section) -> None:
    """Data that the model can read, mostly, and few samples."""
    short(scene, found)
    found |= {"batch": scene.one(1, 2, 8), "steps": scene.one(1, 1, 2)}
    model = found.get("model")
    kind = model.get("kind") if isinstance(model, dict) else model
    if scene.maybe(0.2) or not isinstance(model, dict):
        found["model"] = (
            files.user_model(scene) if kind == "user" or ".py" in str(kind) else kind
        )  # short forms
    if "data" in found and found["data"] is not None and scene.maybe(0.8):
        if kind in DATA:
            found["data"] = DATA[kind]
        else:
            found.pop("data")
    if kind != "ncf" and scene.maybe(0.95):
        found.pop("expand", None)
    if kind == "ncf" and isinstance(model, dict):
        found.pop("expand", None)


def user(scene: Scene, found: Section) -> None:
    found["make"] = files.user_model(scene)


def heads(scene: Scene, found: Section) -> None:
    """Heads divide the width; what is left out is large, so little is."""
    heads = scene.one(1, 2)
    found |= {"heads": heads, "width": heads * scene.one(4, 8), "layers": 1}
    if found["kind"] == "bert_qa":
        found |= {"vocabulary": 1000, "sequence": 16, "positions": scene.one(16, 32), "inner": 16}
    else:
        found |= {"context": 8}


def lstm(scene: Scene, found: Section) -> None:
    found |= {"vocabulary": scene.one(10, 50), "embedding": 4, "hidden": 4, "bptt": 4}
    if found["kind"] == "lstm_1b":
        found["samples"] = scene.one(2, 5)


DEVICES = tuple(HARDWARE)
MODELS = ("v100", "a100", "h100", "p100", "t4")


def roofline(scene: Scene, found: Section) -> None:
    """Exactly one of the keys that say which device it is."""
    which = scene.one("name", "name", "file", "model")
    for key in ("name", "file", "model"):
        if key != which:
            found.pop(key, None)
    names = {"name": DEVICES, "model": MODELS}
    found[which] = files.device_file(scene) if which == "file" else scene.one(*names[which])
    if which != "name":
        for key in ("precision", "efficiency", "memory_efficiency", "launch"):
            if scene.maybe(0.95):
                found.pop(key, None)
    different(scene, found)
    if scene.maybe(0.35):
        found |= {"codec": "host", "host": "cpu_core", "link": scene.one("pcie3", "pcie4", "pcie5")}
    if found.get("codec") != "host":
        for key in ("host", "link"):
            found.pop(key, None)


def different(_: Scene, found: Section) -> None:
    """A worker is slow once."""
    if slow := found.get("slow"):
        found["slow"] = list({one.get("worker"): one for one in slow}.values())


def changed(scene: Scene, found: Section) -> None:
    """An override changes something."""
    if not set(found) & {"rate", "delay", "buffer"} and scene.maybe(0.95):
        found[scene.one("rate", "delay", "buffer")] = None
    for key, value in {"rate": "25Gbps", "delay": "2us", "buffer": "1MiB"}.items():
        if key in found and (found[key] is None or not scene.maybe(0.1)):
            found[key] = value


def sgd(_: Scene, found: Section) -> None:
    if found.get("nesterov"):
        found["momentum"] = 0.9


def sasg(_: Scene, found: Section) -> None:
    if found.get("fraction_bits") is not None:
        found["aggregation"] = "incremental"


def link_rate(scene: Scene, found: Section) -> None:
    found["rate"] = scene.one("100Mbps", "1Gbps")


def device_trace(scene: Scene, found: Section) -> None:
    different(scene, found)
    found["path"] = files.device_trace(scene)


def partition(scene: Scene) -> Any:
    return scene.one([["t0"], ["t1", "t2"]], [[0], [1, 2]], [["layer0", 1]], [[0]], [["w", "b"]])


# Codecs: keys that exclude or need each other.


def factor(scene: Scene, found: Section) -> None:
    if "values" in found or found["kind"] != "fixed_point":
        if found.get("values") == "factor":
            found["factor"] = scene.one(1.0, 1e3, 1e6)
            found.pop("block_elements", None)
        else:
            found.pop("factor", None)
        if found["kind"] == "marsit" and "values" not in found:
            found.pop("block_elements", None)
    elif scene.kinds.get("collective.program") in ("timed", "atp") or found.get("factor") is not None:
        found["factor"] = scene.one(1.0, 1e3, 1e6, 1e6, 1e8)
        found.pop("block_elements", None)


def dense(scene: Scene, found: Section) -> None:
    if scene.kinds.get("collective.program") in ("timed", "atp"):
        found["values"] = "factor"
    factor(scene, found)


def lossless(scene: Scene, found: Section) -> None:
    if "index_bits" in found and scene.maybe(0.5):
        found["setting"] = "published"
    if found.get("setting") == "published":
        if "ratio" in found:
            found["ratio"] = scene.one(1.5, 5.0, 10.0, 50.0)
        for key in ("schedule", "index", "load", "block_elements"):
            found.pop(key, None)
    else:
        for key in ("ratio", "index_bits"):
            found.pop(key, None)


def bird_plus(scene: Scene, found: Section) -> None:
    if found.get("gamma") is not None:
        found.pop("ratio", None)
    elif found.get("of") == "values":
        found["gamma"] = 2.0
        found.pop("ratio", None)


# Collectives.


def windows(scene: Scene, found: Section) -> None:
    if "ack_every" in found or found.get("window", 99) < 16:
        found["ack_every"] = scene.one(1, min(4, found.get("window", 4)))
    if found.get("kind") == "torus_2d" or "rows" in found:
        grid(scene, found)


def grid(scene: Scene, found: Section) -> None:
    for key in ("rows", "columns"):
        if key in found:
            found[key] = scene.one(*[n for n in range(1, scene.workers + 1) if scene.workers % n == 0])
    if found.get("rows") and "columns" in found:
        found["columns"] = max(1, scene.workers // found["rows"])


def in_network(scene: Scene, found: Section) -> None:
    program = found.get("program", "switchml")
    if program == "atp" and not isinstance(found.get("frame"), dict):
        found["frame"] = "atp"
    elif found.get("frame") == "atp":
        found.pop("frame")
    if program in ("switchml", "timed", "atp") and scene.maybe(0.9):
        found |= {"timeout": scene.one("auto", "released", "300us", "2ms")}
        if program != "atp":
            found["timeout_max"] = "4ms"
    if program == "timed":
        found["slot_timer"] = scene.one("5us", "50us", "1ms")
    if program in PROGRAM_KEYS and (scene.kinds.get("collective") != "hierarchical" or scene.maybe(0.5)):
        # Keys that a program does not have are refused; few of them remain.
        for key in sorted(set().union(*PROGRAM_KEYS.values()) - PROGRAM_KEYS[program]):
            if key in found and scene.maybe(0.85):
                found.pop(key)
    if found.get("overflow") not in (None, "auto") and scene.maybe(0.6):
        found.pop("overflow")
    if "switch" in found:
        found["switch"] = scene.one("auto", "auto", *scene.switches)
    if "server" in found:
        found["server"] = scene.one("auto", "auto", "h0", f"h{scene.hosts - 1}")


PROGRAM_KEYS = {
    "switchml": {
        *("timeout", "first_timeout", "timeout_max", "aggregators", "tree", "multicast", "overflow"),
        *("message_packets", "trees"),
    },
    "tree": {"aggregators", "tree", "trees", "multicast"},
    "timed": {"timeout", "first_timeout", "timeout_max", "slot_timer"},
    "atp": {"timeout", "first_timeout", "server", "entries", "ecn_threshold", "adaptive"},
}


def hierarchical(scene: Scene, found: Section) -> None:
    """Groups of some of the workers; the key is that which there is."""
    windows(scene, found)
    keys = {key for key in ("groups", "group_size", "group_count") if key in language_keys("hierarchical")}
    for key in sorted(keys)[1:] if scene.maybe(0.5) else sorted(keys)[:-1]:
        found.pop(key, None)
    if not keys & set(found) and scene.maybe(0.9):
        key = scene.one(*sorted(keys))
        found[key] = HINTS[f"collective.{key}"](scene)


def language_keys(kind: str) -> set[str]:
    """The keys of a kind of collective."""
    prefix = f"collective[{kind}]."
    return {key.removeprefix(prefix) for key in language().keys if key.startswith(prefix)}


def frame(scene: Scene, found: Section) -> None:
    found |= {"words": scene.one(1, 32, 64, 256), "overhead": scene.one("82B", "82B", "20B")}
    for key in ("first", "last"):
        if scene.maybe(0.5):
            found[key] = scene.one("0B", "8B")
    if scene.maybe(0.5):
        found["ack"] = scene.one("84B", "100B", "84B", "64B")


# The profile of a switch: a known one, and little that differs.


def profile(scene: Scene, found: Section) -> None:
    found |= {"name": "mine", "like": scene.one("tofino1", "fpga", "ideal", "sharp", "trio")}
    kept = set(
        scene.chance.sample(
            others := [key for key in found if key not in ("name", "like", "summary")], min(len(others), 4)
        )
    )
    for key in [key for key in found if key not in kept | {"name", "like", "summary"}]:
        found.pop(key)


# Faults.


def packets(scene: Scene, found: Section) -> None:
    if "from" in found or "until" in found:
        found |= {"from": "5us", "until": f"{6 + scene.chance.randrange(200)}us"}


def reboot(scene: Scene, found: Section) -> None:
    found["switch"] = scene.one(*scene.switches)
    if found.get("clears") == "registers":
        found.pop("for", None)


def job_of(scene: Scene) -> Any:
    return scene.one(*scene.jobs) if scene.jobs else None


def of_worker(scene: Scene, found: Section) -> None:
    if not scene.jobs or found.get("job") is None:
        found.pop("job", None)
        if len(scene.jobs) > 1:
            found["job"] = scene.one(*scene.jobs)


def burst(scene: Scene, found: Section) -> None:
    found |= {"good_to_bad": scene.one(0.001, 0.02, "1%"), "bad_to_good": scene.one(0.1, 0.5, "50%")}
    if "loss_good" in found:
        found["loss_good"] = scene.one(0, "1%")
    if "loss_bad" in found:
        found["loss_bad"] = scene.one(1, "50%")
    packets(scene, found)


def slow(scene: Scene, found: Section) -> None:
    found["worker"] = scene.chance.randrange(scene.workers)


HINTS: dict[str, Hint] = {
    "name": of("soak"),
    "seed": lambda scene: scene.chance.randrange(2**31),
    "topology.switch": switch,
    "topology.without": of(["spine0"], ["*-spine0"], ["s0*-s1*"], ["core0"]),
    "*.nvlink_switch": of("plain", "ideal"),
    "topology.name": of("sndlib/polska", "topozoo/Abilene"),
    "topology.links.match": of("*", "h0-*", "*-*"),
    "topology.switch_profiles.match": of("*", "s*", "*0"),
    "topology.switch_profiles.profile": switch,
    "*.rate": of("10Gbps", "25Gbps", "100Gbps", "100Gbps"),
    "*.buffer": of("64KB", "1MiB", "16MiB", "16MiB"),
    "workers": all_workers,
    "workers.count": workers,
    "workers.placement": placement,
    "workload.path": of("nothing"),
    "workload.profile": files.layer_profile,
    "workload.steps": of(1, 1, 2),
    "workload.row_elements": of(1, 16, 64),
    "workload.bucket": of("256B", "1000B", "4KiB"),
    "workload.fusion.bytes": of("256B", "1000B", "4KiB"),
    "workload.fusion.buckets": partition,
    "workload.group": of("dp"),
    "workload.learning_rate": of(0.001, 0.1),
    "workload.local_steps": of(1, 1, 2, 3),
    "workload.evaluate.every": of(1, 2),
    "workload.evaluate.target": of(0.05, "90%", 0.5),
    "workload.schedule.warmup": of(0, 1, 2),
    "workload.model.hidden": of([8], [4, 4]),
    "workload.model.expand": of([1, 1], [2, 1]),
    "workload.expand": of([1, 1], [1, 2]),
    "device[roofline]": lambda scene: scene.one("v100", "a100", "cpu_core", files.device_file(scene)),
    "device[none]": of("none"),
    "device.host": of("cpu_core", "cpu_socket"),
    "device.slow.worker": lambda scene: scene.chance.randrange(scene.workers),
    "device.slow.factor": of(1.5, 2),
    "device.jitter.spread": of("10%", 0.3),
    "hosts.cores": of(1, 2),
    "*.per_byte_send": of("1ps", "100ps"),
    "*.per_byte_receive": of("1ps", "100ps"),
    "*.per_packet_send": of("10ns", "100ns"),
    "*.per_packet_receive": of("10ns", "100ns"),
    "overlap.buckets_in_flight": of(1, 2, 64),
    "codec.share": of(0.01, 0.1, 0.5, 1.0),
    "codec.ratio": of(0.1, 0.5, 1.0),
    "codec.gamma": of(0.0, 1.0, 2.0),
    "codec.alpha": of(0.5, 40.0),
    "codec.eta_s": of(0.001, 0.1),
    "codec.momentum": of(0.0, 0.9),
    "codec.load": of(0.05, 0.3, 0.77, 0.81),
    "codec.factor": of(1.0, 1e3, 1e6),
    "codec.block_elements": of(64, 256, 4096),
    "codec.unit_elements": of(64, 256),
    "codec.columns": of(1, 4, 512),
    "codec.rows": of(1, 3, 5),
    "codec.latency_us": of(1.0, 10.0),
    "codec.rate_gbps": of(10.0, 100.0),
    "codec.memory_gbps": of(100.0, 1000.0),
    "codec.fraction_bits": of(8, 20, 24),
    "collective.window": of(1, 4, 32, 512),
    "collective.slots": of("auto", "auto", 4, 8, 64),
    "collective.entries": of(100, 200, 20_000),
    "collective.message_packets": of(1, 2, 4),
    "collective.aggregators": of("auto", "one", "tree", "tree", "tor", "core", 1, 2),
    "collective.trees": of(1, 1, 2),
    "collective.inner.trees": of(1, 2),
    "collective.outer.trees": of(1, 2),
    "*.timeout": of("auto", "auto", "released", "300us", "2ms"),
    "*.first_timeout": of("300us", "2ms"),
    "*.timeout_max": of("4ms", "100ms"),
    "*.slot_timer": of("5us", "50us", "1ms"),
    "*.chunk": of("256B", "4KiB", "64KiB"),
    "collective.groups": of(2, 2, 2, 2, 2, "rack", "island", 1),
    "collective.group_size": of(2, 2, 2, 1, 3),
    "collective.group_count": of(2, 2, 2, 1, 3),
    "collective.servers": of(1, 1, 2),
    "collective.placement": of("pack", "spread", "beside_workers", ["h0"], ["h1"]),
    "published.source": of("table 3"),
    "faults.rate": of(0.0, 0.001, "2%", 0.05, 0.2),
    "faults.links": links_of,
    "faults.at": time_of,
    "faults.for": lambda scene: f"{1 + scene.chance.randrange(200)}us",
    "faults.delay": of("1us", "3us", "100us", "3ms"),
    "faults.reroute": of("never", "20us", "300us"),
    "faults.worker": lambda scene: scene.chance.randrange(scene.workers),
    "faults.job": job_of,
    "faults.factor": of(1.5, 10.0),
    "jobs.start": time_of,
    "jobs.count": of(1, 2),
    "jobs.arrivals.gap": of("1us", "20us", "200us"),
    "jobs.arrivals.mean_gap": of("1us", "20us", "200us"),
    "jobs.arrivals.at": of(["0us"], ["0us", "5us"], ["3us", "3us"]),
    "sweep.seeds": of(1, 2, [3], [1, 2]),
    "sweep.seed": of([1, 2]),
    "*.like": of("tofino1", "fpga", "ideal"),
    "*.merges": lambda scene: scene.some(("add", "or", "max", "float_add", "sign", "table_add")),
    "*.overflows": lambda scene: scene.some(("wrap", "saturate", "sticky")),
    "*.adder_bits": lambda scene: scene.some((8, 16, 32)),
    "*.port_rate": of("100Gbps", "200Gbps"),
    "*.stages": of(12, 20),
    "*.salus_per_stage": of(4, 8),
    "*.salu_lanes": of(1, 2, 4),
    "*.words_out": of(1, 2),
    "*.sram_blocks_per_stage": of(48, 80),
    "*.map_rams_per_stage": of(48, 80),
    "*.block_rows": of(1024, 2048),
    "*.block_row_bits": of(64, 128),
    "profiles.memory": of("1MiB", "16MiB"),
    "profiles.operations": of(64, 1000),
    "profiles.groups": of(1, 8),
    "profiles.pipes": of(1, 4),
    "profiles.parser_limit": of("200B", "1000B"),
    "*.phv_bits": of(4096, 6000),
    "*.bitmap_bits": of(32, 64),
}
for _key in ("collective.inner", "collective.outer"):
    HINTS |= {
        f"{_key}.{name}": HINTS[f"collective.{name}"] for name in ("slots", "entries", "message_packets")
    }

FIXES: dict[str, Fix] = {
    "topology[star]": lambda scene, found: found.update(hosts=scene.hosts),
    "topology[leaf_spine]": leaf_spine,
    "topology[fat_tree]": fat_tree,
    "topology[dumbbell]": lambda scene, found: found.update(hosts_per_side=_up(scene.hosts, 2)),
    "topology[ring]": on_switches("switches", 3, 4),
    "topology[hypercube]": on_switches("dimension", 1, 2, 3),
    "topology[torus]": torus,
    "topology[clos]": clos,
    "topology[hyperx]": torus,
    "topology[slim_fly]": slim_fly,
    "topology[jellyfish]": jellyfish,
    "topology[dragonfly]": dragonfly,
    "topology[bcube]": bcube,
    "topology[rail_optimized]": rail_optimized,
    "topology[topohub]": lambda scene, found: found.update(hosts_per_switch=scene.one(1, 1, 2)),
    "topology[file]": topology_file,
    "workload[synthetic]": synthetic,
    "workload[file]": gradient_file,
    "workload[trace]": recording,
    "workload[chakra]": chakra,
    "workload[training]": training,
    "workload.model[user]": user,
    "workload.model[bert_qa]": heads,
    "workload.model[gpt]": heads,
    "workload.model[lstm]": lstm,
    "workload.model[lstm_1b]": lstm,
    "device[roofline]": roofline,
    "device[trace]": device_trace,
    "codec[fixed_point]": factor,
    "codec[dense]": dense,
    "codec[marsit]": factor,
    "codec[lossless]": lossless,
    "codec[sasg]": sasg,
    "topology.links": changed,
    "workload.optimizer[sgd]": sgd,
    "faults[link_rate]": link_rate,
    "device[fixed]": different,
    "device[measured]": different,
    "codec[bird_plus]": bird_plus,
    "collective": windows,
    "collective[in_network]": in_network,
    "collective[hierarchical]": hierarchical,
    "collective.inner[in_network]": in_network,
    "collective.outer[in_network]": in_network,
    "collective.inner[torus_2d]": grid,
    "collective.outer[torus_2d]": grid,
    "collective.frame": frame,
    "collective.inner.frame": frame,
    "collective.outer.frame": frame,
    "profiles": profile,
    "faults[loss]": packets,
    "faults[corruption]": packets,
    "faults[duplicate]": packets,
    "faults[reorder]": packets,
    "faults[burst_loss]": burst,
    "faults[switch_reboot]": reboot,
    "faults[switch_down]": reboot,
    "faults[worker_crash]": of_worker,
    "faults[worker_pause]": of_worker,
    "faults[start_skew]": of_worker,
    "faults[slow_host]": of_worker,
}
