"""What is solved exactly about rows: feasibility of a fixed row count (Eqs. 6-8) and pattern flow.

`cpsat` and `pyomo` hold the fixed-row model with every layout rule, `arcflow` the flow over cell fillings,
`export` writes them to files for other solvers. Nothing here solves.
"""
