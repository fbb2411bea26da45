"""Running a plan where the tests run; standard library and pytest only, except for outcomes."""
