"""Computes values that the appliance and the Spark jobs share. Needs only the standard library,
because the job image contains no further appliance code."""
