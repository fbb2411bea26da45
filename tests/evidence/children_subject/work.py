"""What the children of the checks run: each function by one check only, and in a child only."""

import json
import os
from functools import lru_cache
from pathlib import Path

HERE = Path(__file__).parent


def by_subprocess():
    return 1


def by_copied_environment():
    return 1


def by_module():
    return 1


def by_spawn(x):
    return x


def by_fork(x):
    return x


def by_forkserver(x):
    return x


def by_pool(x):
    return x


def by_executor(x):
    return x


def by_bare_fork():
    return 1


def by_exit_at_once():
    return 1


def by_grandchild():
    return 1


def by_grandchild_of_shell():
    return 1


def by_terminated():
    return 1


def by_terminated_in_c():
    return 1


def by_killed():
    return 1


def by_exec():
    return 1


def by_script():
    return 1


def by_posix_spawn():
    return 1


def by_asyncio():
    return 1


def by_task(name):
    return name


def by_untold_task(name):
    return name


def by_server(name):
    return name


def reads_data():
    return json.loads((HERE / "data.json").read_text())["value"]


@lru_cache
def remembered():
    return filled()


def filled():
    return 1


def by_cache():
    return remembered()


class Rows:
    """A dataset of torch's, without torch: workers get its items."""

    def __len__(self):
        return 4

    def __getitem__(self, index):
        return by_worker(index)


def by_worker(index):
    return index


def by_rank():
    return int(os.environ["RANK"])


def by_rank_of(rank):
    return rank


def waits():
    import time

    time.sleep(60)


def ends():
    os._exit(0)
