"""AReaL: the allocator, the controller's dispatch with rows riding on `ppo_update`, and the workers' splits.

Guarantees: every minibatch trains the trajectories that AReaL would have put into it; the ranks of a group
run the planned rows or, all of them, AReaL's own microbatches.
"""

from routepack_opt.integrations.areal.allocator import allocate, register
from routepack_opt.integrations.areal.controller import (
    controller_update,
    dispatch_tensors,
    install_controller,
    sequence_lengths,
)
from routepack_opt.integrations.areal.worker import allocate_synced, install_worker, worker_update

#: Version whose contract this package was written for.
READ_FROM = "AReaL 1.0.4 and 2.0.0 (cbff54d6)"

__all__ = [
    "READ_FROM",
    "allocate",
    "allocate_synced",
    "controller_update",
    "dispatch_tensors",
    "install_controller",
    "install_worker",
    "register",
    "sequence_lengths",
    "worker_update",
]
