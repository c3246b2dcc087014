"""Move the experts' state to the slots of a placement.

Start at `attach` of `adapters.megatron` or `adapters.huggingface`. `recorder` makes windows; `canonical` and
`adapters.megatron_checkpoint` export by logical expert. Importing this package loads no torch, and planning a
move (`movement`) needs numpy only.
"""
