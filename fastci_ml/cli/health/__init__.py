"""What `fastci-ml doctor` looks at, with nothing but the standard library."""
