"""Rates and lags of the last hour, from samples that the process keeps of its own metrics."""
