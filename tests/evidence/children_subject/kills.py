"""What a child does that is to be killed: functions in some order, each written down once it has begun."""

import os
import random
import sys
import time
from pathlib import Path


def work(log):
    import steps

    handle = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    with Path(log + ".pids").open("a") as pids:
        pids.write(f"{os.getpid()}\n")

    def note(name):
        os.write(handle, f"{name}\n".encode())

    rng = random.Random(os.getpid())
    for number in rng.sample(range(40), 20):
        getattr(steps, f"step_{number}")(note)
        time.sleep(0.005)
    note(f"end {os.getpid()}")


if __name__ == "__main__":
    work(sys.argv[1])
