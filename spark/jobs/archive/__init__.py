"""Old segments of all logs as partitioned Parquet with a catalogue."""
