"""Primitives for every subsystem. Primitives know no product subject and import nothing else."""
