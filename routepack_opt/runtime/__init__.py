"""Move the experts' state to the slots of a placement.

Start at `adapters.megatron.attach` or `adapters.huggingface.attach`; `recorder` makes windows, `canonical` and
`adapters.megatron_checkpoint` export by logical expert. Importing this package loads no torch, and the planning
of a move (`movement`) needs numpy only.
"""
