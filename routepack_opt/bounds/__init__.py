"""Lower bounds: on the row count (`rows`, `dff`) and on the components of the score."""
