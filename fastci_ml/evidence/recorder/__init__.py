"""The recorder inside the test process: standard library only, and no callback of it ever raises."""
