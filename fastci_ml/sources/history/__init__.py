"""The history store: append-only Parquet parts."""
