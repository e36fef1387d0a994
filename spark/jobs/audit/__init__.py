"""The log alone, played again, against a snapshot of the tables."""
