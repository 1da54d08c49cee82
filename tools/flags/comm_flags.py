"""The flags of `engine train` about the exchange of gradients: one for each field of `comm_param` about it."""

from __future__ import annotations

from mgcaffe.tools.flags.parsing import FlagParser, number_from, positive_float

TRANSFER_TYPES = ("float32", "float16", "bfloat16")
TRANSPORTS = ("auto", "mpi", "gloo", "nccl")
SCHEDULES = ("auto", "optimal", "mgwfbp", "wfbp", "single", "threshold")


def add_comm_flags(parser: FlagParser) -> None:
    """Add one flag for each field of `comm_param`."""
    parser.flag(
        "schedule",
        "how gradients are merged for all-reduce; auto tries the best plans and keeps the fastest (default: auto)",
        choices=SCHEDULES,
    )
    parser.flag(
        "bucket_mb", "size of a group under --schedule=threshold, in MiB (default: 25)",
        type=positive_float, metavar="MB",
    )  # fmt: skip
    parser.flag(
        "calibration_iterations", "iterations whose times the plan is made from (default: 10)",
        type=number_from(0), metavar="N",
    )  # fmt: skip
    parser.flag("plan_file", "use this plan instead of a schedule (`engine plan --export` writes one)", metavar="FILE")
    parser.flag(
        "cost_file",
        "costs of an all-reduce that were measured on these hosts; where the file has none, they are measured and "
        "written to it",
        metavar="FILE",
    )
    parser.flag(
        "emulate_link",
        "let each all-reduce of gradients take at least a + b x bytes seconds by sleeping, as a=9.08e-4,b=7.40e-10: "
        "shows what a schedule does on a slower network",
        metavar="LINK",
    )
    parser.setting(
        "overlap_forward",
        "let the next forward pass run while the last groups are on their way; a layer waits for its "
        "own parameters only (where it is left out, schedule 'auto' tries it)"
    )  # fmt: skip
    parser.flag(
        "allreduce_type", "type that gradients travel in; 16 bits are added up in float32 (default: float32)",
        choices=TRANSFER_TYPES,
    )  # fmt: skip
    parser.flag(
        "transport",
        "over what gradients travel (default: auto: nccl on GPUs where it can, else mpi, or gloo under torchrun)",
        choices=TRANSPORTS,
    )
    parser.setting(
        "exchange_products",
        "exchange the gradient of a large inner product's weight as the two matrices whose product it is, where these "
        "are much smaller (default: true)",
    )
    parser.setting("hierarchical", "add up gradients within each host first, then between hosts")
    parser.switch(
        "deterministic", "measure nothing, so that every run does the same (schedules that need it send one group)"
    )
