"""Makes metrics of the numbers that the doctor's checks read."""
