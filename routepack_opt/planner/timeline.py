"""When the parts of a step's preparation ended, and whether packing held up training (Eqs. 19-20).

Guarantees: a term that was not measured is None, and so is whatever needs it; nothing is estimated.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Timeline:
    """Seconds of one window from routing readiness to admission.

    Parameters
    ----------
    lpt : float, optional
        T_LPT: window to placement.
    rows : float, optional
        Row certificate. The paper takes the rows as given; here they are part of T_pack.
    pair : float, optional
        T_pair: first packings and their pairings.
    qd : float, optional
        T_QD: the rest of the pool and the choice from it.
    sa : float, optional
        T_SA: annealing, refinement where asked for, and the final check.
    actor, aux, admit : float, optional
        T_actor (state materialization), T_aux (what it must wait for) and T_admit (data admission after the
        join), measured by the trainer.
    """

    lpt: float | None = None
    rows: float | None = None
    pair: float | None = None
    qd: float | None = None
    sa: float | None = None
    actor: float | None = None
    aux: float | None = None
    admit: float | None = None

    @property
    def pack(self) -> float | None:
        """T_pack = T_pair + T_QD + T_SA, with the rows."""
        parts = [part for part in (self.rows, self.pair, self.qd, self.sa) if part is not None]
        return sum(parts) if parts else None

    @property
    def extension(self) -> float | None:
        """Seconds by which packing held up admission: the left side of Eq. 20 minus its right, at least 0."""
        if self.lpt is None or self.pack is None or self.actor is None:
            return None
        return max(self.lpt + self.pack - self._state(self.lpt, self.actor), 0.0)

    @property
    def hidden(self) -> bool | None:
        """Whether packing was hidden behind the state branch (Eq. 20)."""
        return None if self.extension is None else self.extension == 0.0

    @property
    def target(self) -> float | None:
        """T_target, the modelled time from routing readiness to training (Eq. 19)."""
        if self.lpt is None or self.pack is None or self.actor is None or self.admit is None:
            return None
        return max(self.lpt + self.pack, self._state(self.lpt, self.actor)) + self.admit

    def _state(self, lpt: float, actor: float) -> float:
        # Without a gate of its own the state branch starts at the placement.
        return max(lpt, self.aux or 0.0) + actor

    def as_dict(self) -> dict[str, float | None]:
        """Return flat metrics, ``routepack/time_*``; ``time_hidden`` is 1 or 0."""
        names = ("lpt", "rows", "pair", "qd", "sa", "actor", "aux", "admit", "pack", "target", "extension")
        values: dict[str, float | None] = {f"routepack/time_{name}": getattr(self, name) for name in names}
        values["routepack/time_hidden"] = None if self.hidden is None else float(self.hidden)
        return values
