"""JUnit XML of any flavour."""
