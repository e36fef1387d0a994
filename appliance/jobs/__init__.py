"""Jobs: commands and containers that run on a schedule, after an event, or when asked for."""
