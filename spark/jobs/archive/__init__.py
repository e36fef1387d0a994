"""Archives old segments from all logs as partitioned Parquet with a catalogue."""
