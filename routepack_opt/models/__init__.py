"""What is solved exactly: variables, constraints, objectives and hints. No solving here."""
