//! What runs observed: rows, statistics, CSV, Parquet, pcapng, manifests.
