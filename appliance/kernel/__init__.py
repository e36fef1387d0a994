"""Primitives for every subsystem. They know no subject of the product and import nothing else."""
