"""Read-only views of an engine, between runs of its loop."""

from __future__ import annotations

from netfold.sim.engine.interface import Disturbance, Job, Outstanding, PointView, SlotState, WaitingTransfer
from netfold.sim.engine.observe import inspect as inspection
from netfold.sim.engine.tables import rows
from netfold.sim.engine.tables.world import World
from netfold.topologies.network import Network


class EngineViews:
    """Counters and states of an engine's links, workers, flows and switches; nothing here changes them."""

    world: World
    network: Network
    _jobs: list[Job]

    @property
    def now_ps(self) -> int:
        """Simulated time."""
        return int(self.world.clock[0].now_ps)

    @property
    def links_count(self) -> int:
        """Links of the network."""
        return len(self.network.link_names)

    @property
    def packet_hops(self) -> int:
        """Packets delivered across a link so far."""
        return int(self.world.clock[0].packet_hops)

    @property
    def events(self) -> int:
        """Events processed so far."""
        return int(self.world.clock[0].events)

    @property
    def progress(self) -> int:
        """Units completed and flow packets received in order so far."""
        return int(self.world.clock[0].progress)

    def streams_share(self, job: int) -> float:
        """Share of the units of a job's open streams that are complete; 0 if none is open."""
        streams = self.world.streams
        open_streams = streams[(streams["job"] == job) & (streams["is_open"] != 0)]
        units = int(open_streams["units_count"].sum())
        return int(open_streams["completed_count"].sum()) / units if units else 0.0

    def schedules_share(self, job: int) -> float:
        """Share of the transfers of a job's open schedules that are processed; 0 if none is open."""
        found = self.world.schedules
        found = found[(found["job"] == job) & (found["is_open"] != 0) & (found["unfinished"] > 0)]
        transfers = int(found["transfers_count"].sum())
        return int(found["processed"].sum()) / transfers if transfers else 0.0

    def waiting_transfers(self) -> list[WaitingTransfer]:
        """Transfers of schedules that are sent and not delivered, by flow."""
        return inspection.waiting_transfers(self.world)

    @property
    def busy_until_ps(self) -> int:
        """When the last merge of a schedule ends that has begun."""
        return int(self.world.clock[0].busy_until_ps)

    def flow_retransmissions(self, job: int) -> int:
        """Packets that all flows of a job have sent again."""
        return inspection.flow_counts(self.world, job)[0]

    def flow_reordering(self, job: int) -> tuple[int, int]:
        """Packets of a job's flows that later ones had overtaken, and those sent again in vain."""
        _, reordered, spurious = inspection.flow_counts(self.world, job)
        return reordered, spurious

    @property
    def log(self) -> list[tuple[int, ...]]:
        """Events since `start_log`: (time_ps, order, what, where, owner, unit, part, attempt)."""
        return [tuple(row) for row in self.world.log[: self.world.clock[0].log_count].tolist()]

    def link_counters(self) -> list[dict[str, int]]:
        """Counters of every link, by name."""
        return inspection.link_counters(self.world)

    def worker_counters(self, job: int, worker: int) -> dict[str, int]:
        """Counters of one worker's streams."""
        stream = self.world.streams[int(self.world.jobs[job].first_stream) + worker]
        return {name: int(stream[name]) for name in ("timeouts", "retransmitted_packets", "stale_results")}

    def switch_counters(self, job: int) -> dict[str, int]:
        """What a job's switches did, all together."""
        points = self.point_counters(job)
        return {name: sum(point[name] for point in points) for name in rows.POINT_COUNTERS}

    def point_counters(self, job: int) -> list[dict[str, int]]:
        """What each switch of a job's tree did, by point."""
        return inspection.point_counters(self.world, job)

    def split_counters(self, job: int) -> list[int]:
        """Results that each split of a job has split, by split."""
        splits = self.world.splits
        return [int(packets) for packets in splits["packets"][splits["job"] == job]]

    def job_points(self, job: int) -> list[PointView]:
        """The switches of a job's tree and the children of each, by point."""
        return inspection.job_points(self.world, job)

    def outstanding(self, job: int) -> list[Outstanding]:
        """Units that the job's workers have sent and whose results they wait for, by worker."""
        return inspection.outstanding(self.world, self._jobs[job].program, job)

    def slot_state(self, job: int, point: int, slot: int, version: int) -> SlotState:
        """State of one version of a slot at a point; with a server: of the entry with that number."""
        return inspection.slot_state(self.world, self._jobs[job].program, job, (point, slot, version))

    def leaks(self, job: int) -> list[str]:
        """Slots that are neither idle nor complete, and entries that are claimed; of a job that has ended."""
        return inspection.leaks(self.world, self._jobs[job].program, job, self.network.nodes)

    def disturbances(self) -> list[Disturbance]:
        """Packets that faults have duplicated, delayed or changed since the start, by fault."""
        return inspection.disturbances(self.world)

    def rule_counters(self) -> list[int]:
        """Packets that each rule has struck."""
        return [int(struck) for struck in self.world.rules["struck"]]

    def down_links(self) -> list[int]:
        """Links that are down."""
        return inspection.down_links(self.world)

    def sent_bytes(self, link: int) -> int:
        """Bytes that a link has carried so far."""
        return int(self.world.links[link].sent_bytes)

    def flow_counters(self, number: int) -> dict[str, int]:
        """Counters of a flow; only until its row is reused."""
        return inspection.flow_counters(self.world, number)
