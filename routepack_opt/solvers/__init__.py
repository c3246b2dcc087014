"""How problems are solved: construction, certification, annealing and exact solves."""
