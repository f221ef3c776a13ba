"""The torture program: random clients, faults, and a checker of what must hold all the same."""
