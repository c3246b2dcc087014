"""One module per training system: which of its tensors are expert state, and where they live."""
