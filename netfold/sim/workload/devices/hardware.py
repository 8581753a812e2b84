"""The table of devices: what each can do at most, what of that is reached, and who says so.

Peaks are those of vendors' data sheets, dense (without sparsity). A share is what the best published or usual
measurement of large matrix products, and of streams through memory, reached. Real layers reach less: small
matrices, odd shapes and short kernels are not in these shares. Where no measurement is named, the share is an
assumption, and says so.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, NamedTuple

from netfold.units import PS_PER_US

Precision = Literal["fp32", "tf32", "bf16", "fp16"]

_ASSUMED = "assumed"
_MAMF = (
    "measured: BF16 matrix products, Bekman, Machine Learning Engineering, 'Maximum Achievable Matmul FLOPS'"
)
_AS_BF16 = "assumed to be that of BF16"
_VOLTA = "measured: Jia et al., Dissecting the NVIDIA Volta GPU Architecture via Microbenchmarking, 2018"
_TURING = "measured: Jia et al., Dissecting the NVIDIA Turing T4 GPU via Microbenchmarking, 2019"
_LAUNCH = (
    "assumed; Gray, Getting Started with CUDA Graphs, 2019, has 3.8 µs from one short kernel to the next on "
    "a V100, to which PyTorch's operators add"
)
_STREAMS = "assumed: kernels of a codec are streams through memory"
_CODECS = (
    "measured: `netfold calibrate` on one core of an Intel Xeon: netfold's own codecs pass 5.5 counted bytes "
    "a nanosecond where a copy passes 14: bits are packed and numbers rounded one by one"
)
_CALLS = "assumed: an operator of PyTorch on a processor, backward included"


class Rate(NamedTuple):
    """A peak rate, and what of it programs reach."""

    peak: int  # operations or bytes per second
    share: float  # of the peak that is reached
    source: str  # of the share


class Link(NamedTuple):
    """The link between a device and its host."""

    name: str
    bytes_per_s: int  # in one direction, line codes taken off
    share: float  # of it that copies of pinned memory reach
    start_ps: int  # of a copy
    source: str


_COPIES = (
    "share: Neugebauer et al., Understanding PCIe Performance for End Host Networking, SIGCOMM 2018: headers "
    "and flow control leave about 4/5; start: assumed"
)
LINKS = {
    link.name: link
    for link in (
        Link("pcie3", 15_754_000_000, 0.8, 10 * PS_PER_US, _COPIES),  # 16 lanes · 8 GT/s · 128/130
        Link("pcie4", 31_508_000_000, 0.8, 10 * PS_PER_US, _COPIES),
        Link("pcie5", 63_015_000_000, 0.8, 10 * PS_PER_US, _COPIES),
    )
}


@dataclass(frozen=True)
class Hardware:
    """A device of the table."""

    name: str
    title: str
    source: str  # of the peaks
    arithmetic: Mapping[Precision, Rate]  # floating-point operations per second
    memory: Rate  # bytes per second
    launch_ps: int  # from one short kernel to the next
    launch_source: str
    link: str | None  # a name in LINKS; None: it is the host
    codec_share: float  # of the memory bandwidth that is reached, for what codecs count as read and written
    codec_source: str


def _tera(count: float) -> int:
    """Operations per second from TFLOPS with three decimals at most."""
    return round(count * 1000) * 10**9


def _gpu(
    name: str,
    title: str,
    source: str,
    arithmetic: Mapping[Precision, tuple[float, float, str]],
    memory: tuple[int, float, str],
    link: str,
) -> Hardware:
    """A row of the table, from TFLOPS and GB/s."""
    rates: dict[Precision, Rate] = {
        precision: Rate(_tera(peak), share, of) for precision, (peak, share, of) in arithmetic.items()
    }
    bandwidth = Rate(memory[0] * 10**9, *memory[1:])
    return Hardware(name, title, source, rates, bandwidth, 5 * PS_PER_US, _LAUNCH, link, 1.0, _STREAMS)


HARDWARE = {
    row.name: row
    for row in (
        _gpu(
            "p100",
            "NVIDIA Tesla P100, SXM2, 16 GB",
            "NVIDIA Tesla P100 data sheet (2016): SXM2, 16 GB",
            {"fp32": (10.6, 0.9, _ASSUMED), "fp16": (21.2, 0.85, _ASSUMED)},
            (732, 0.70, _VOLTA),
            "pcie3",
        ),
        _gpu(
            "t4",
            "NVIDIA T4, 16 GB",
            "NVIDIA T4 data sheet (2019)",
            {
                "fp32": (8.1, 0.6, f"{_ASSUMED}: at 70 W its clock falls under load"),
                "fp16": (65, 0.5, f"{_ASSUMED}: at 70 W its clock falls under load"),
            },
            (300, 0.73, f"{_TURING}: 220 GB/s"),
            "pcie3",
        ),
        _gpu(
            "v100",
            "NVIDIA V100, SXM2",
            "NVIDIA V100 data sheet (2020): SXM2",
            {
                "fp32": (15.7, 0.9, _ASSUMED),
                "fp16": (
                    125,
                    0.66,
                    "measured: Markidis et al., NVIDIA Tensor Core Programmability, Performance & Precision, "
                    "2018: 83 TFLOPS",
                ),
            },
            (900, 0.83, f"{_VOLTA}: 750 GB/s"),
            "pcie3",
        ),
        _gpu(
            "a100",
            "NVIDIA A100, SXM, 40 GB",
            "NVIDIA A100 data sheet (2020): SXM, 40 GB",
            {
                "fp32": (19.5, 0.9, _ASSUMED),
                "tf32": (156, 0.87, _AS_BF16),
                "bf16": (312, 0.87, f"{_MAMF}: 271.2 TFLOPS"),
                "fp16": (312, 0.87, _AS_BF16),
            },
            (1555, 0.9, f"{_ASSUMED}: usual for streams through HBM2"),
            "pcie4",
        ),
        _gpu(
            "h100",
            "NVIDIA H100, SXM, 80 GB",
            "NVIDIA H100 data sheet (2023): SXM, 80 GB",
            {
                "fp32": (67, 0.8, _ASSUMED),
                "tf32": (494.7, 0.8, _AS_BF16),
                "bf16": (989.4, 0.8, f"{_MAMF}: 792.1 TFLOPS"),
                "fp16": (989.4, 0.8, _AS_BF16),
            },
            (3350, 0.9, f"{_ASSUMED}: usual for streams through HBM3"),
            "pcie5",
        ),
        _gpu(
            "b200",
            "NVIDIA B200, SXM, 1000 W",
            "NVIDIA Blackwell Architecture Technical Brief (2024): HGX B200",
            {
                "fp32": (80, 0.8, _ASSUMED),
                "tf32": (1125, 0.776, _AS_BF16),
                "bf16": (2250, 0.776, f"{_MAMF}: 1745 TFLOPS"),
                "fp16": (2250, 0.776, _AS_BF16),
            },
            (8000, 0.9, f"{_ASSUMED}: usual for streams through HBM3e"),
            "pcie5",
        ),
        Hardware(
            "cpu_core",
            "one core of an AMD EPYC 7763",
            "AMD EPYC 7003 data sheet (2021): 3.5 GHz boost, 32 float32 operations a cycle; 8 channels of "
            "DDR4-3200, which a core shares",
            {"fp32": Rate(112 * 10**9, 0.8, _ASSUMED)},
            Rate(204_800_000_000, 0.1, f"{_ASSUMED}: what one core keeps in flight is about 20 GB/s"),
            4 * PS_PER_US,
            _CALLS,
            None,
            0.4,
            _CODECS,
        ),
        Hardware(
            "cpu_socket",
            "an AMD EPYC 7763, 64 cores",
            "AMD EPYC 7003 data sheet (2021): 2.45 GHz, 64 cores of 32 float32 operations a cycle; 8 "
            "channels of DDR4-3200",
            {"fp32": Rate(5_017_600_000_000, 0.7, _ASSUMED)},
            Rate(204_800_000_000, 0.8, f"{_ASSUMED}: usual for STREAM on this processor"),
            8 * PS_PER_US,
            f"{_CALLS}, on many threads",
            None,
            0.4,
            _CODECS,
        ),
    )
}
