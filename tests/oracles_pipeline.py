"""A slow pipeline: a clock that ticks one unit at a time, and workers that look what they may start."""


def ticking_makespan(forward, backward, orders):
    """Whole durations [row][virtual stage], operations of every stage in order; returns the last tick."""
    stages = len(orders)
    virtual = len(forward[0])
    finished = set()
    queues = [list(order) for order in orders]
    running = [None] * stages  # (operation, virtual stage, ticks left)
    now = 0
    while any(queues) or any(running):
        changed = True
        while changed:  # zero-length operations finish within a tick
            changed = False
            for s in range(stages):
                if running[s] and running[s][2] == 0:
                    op, v, _ = running[s]
                    finished.add((op.backward, op.row, v))
                    running[s], changed = None, True
                if running[s] is None and queues[s]:
                    op = queues[s][0]
                    v = op.chunk * stages + s
                    if _may_start(op, v, virtual, finished):
                        queues[s].pop(0)
                        ticks = (backward if op.backward else forward)[op.row][v]
                        running[s], changed = (op, v, ticks), True
        if not any(queues) and not any(running):
            return now
        assert any(running), "deadlock"
        now += 1
        running = [None if task is None else (task[0], task[1], task[2] - 1) for task in running]
    return now


def _may_start(op, v, virtual, finished):
    if not op.backward:
        return v == 0 or (False, op.row, v - 1) in finished
    if v == virtual - 1:
        return (False, op.row, v) in finished
    return (True, op.row, v + 1) in finished
