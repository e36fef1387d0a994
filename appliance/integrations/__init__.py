"""Connects pairs of subsystems, with one file for each pair.

A file is named after both subsystems, the one that calls first. The calling subsystem defines a
Protocol; the class here implements it with the service and wire structs of the other one.

Files that begin with `checks` are the doctor's checks across several subsystems.
"""
