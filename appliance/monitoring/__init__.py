"""Make metrics from the numbers that the doctor's checks read."""
