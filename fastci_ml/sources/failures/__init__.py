"""Why an attempt failed: rules as data, over messages and logs of all ranks."""
