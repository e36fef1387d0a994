"""The only places where two subsystems meet: one file for each pair.

Each file is named after both, first the one that asks. What is asked for is a Protocol of the
first; its class here answers with the verbs and the wire structs of the second.
"""
