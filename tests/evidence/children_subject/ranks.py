"""A program for torchrun."""

import os
import sys
import time

import torch
import torch.distributed as dist
import work

rank = work.by_rank()
dist.init_process_group("gloo")
total = torch.ones(1)
dist.all_reduce(total)
assert total == 2
if sys.argv[1] == "meets":
    work.by_rank_of(rank)
elif sys.argv[1] == "dies" and rank == 1:
    os.kill(os.getpid(), 9)
elif sys.argv[1] == "hangs":
    time.sleep(600)
dist.barrier()
dist.destroy_process_group()
