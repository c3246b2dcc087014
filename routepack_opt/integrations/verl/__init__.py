"""verl: the driver's `_balance_batch` (V0 and V1), the workers' `prepare_micro_batches`, and the partitioner.

Guarantees: every optimizer step trains the samples that it would have trained; the workers of a group run the
planned rows or, all of them, the trainer's own microbatches.
"""

from routepack_opt.integrations.verl.driver import balance_batch, balance_batch_meta, install_driver
from routepack_opt.integrations.verl.worker import (
    install_worker,
    prepare_micro_batches,
    seqlen_balanced_partitions,
)

#: Version whose contract this package was written for.
READ_FROM = "verl 0.9.1 and 0.10.0.dev (1dda039b)"

__all__ = [
    "READ_FROM",
    "balance_batch",
    "balance_batch_meta",
    "install_driver",
    "install_worker",
    "prepare_micro_batches",
    "seqlen_balanced_partitions",
]
