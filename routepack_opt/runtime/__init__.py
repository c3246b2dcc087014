"""Move the experts' state to the slots of a placement (torch)."""
